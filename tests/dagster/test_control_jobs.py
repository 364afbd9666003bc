"""Operations on jobs as the launchpad starts them: what is asked for, done, waited for and said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.control.worlds import World
from tests.dagster.control_world import launchers, make_world
from tests.dagster.fake_engine import make_job
from tests.dagster.instances import instance_in_memory
from tidemark.control.desired.spec_store import read_spec, require_spec
from tidemark.control.model.spec import JobSpec, RestartPolicy
from tidemark.errors import DefinitionError, DurationError, NotReachedError, SourceError, UnknownJobError
from tidemark.operations import control_jobs

pytestmark = pytest.mark.dagster

VERBS = ("start", "stop", "cancel", "restart", "suspend", "resume")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


class Launchpad:
    """Launches the operations of a job called ``fares``."""

    def __init__(self, world: World, folder: Path, instance: dg.DagsterInstance, *, spec: JobSpec | None = None) -> None:
        self.world, self.instance = world, instance
        self.job = make_job(folder, "fares", store=world.store.uri)
        self.defs = control_jobs(self.job, spec=spec, launchers=lambda: launchers(world), clock=world.clock)

    def launch(self, verb: str, **config: object) -> dict[str, object]:
        """Launch with the launchpad's defaults but for some settings, and return what the output says."""
        job = self.defs.resolve_job_def(f"fares_{verb}")
        given = {"ops": {f"{verb}_fares": {"config": config}}} if config else None
        result = job.execute_in_process(run_config=given, instance=self.instance)
        (output,) = (event.step_output_data for event in result.all_events if event.event_type_value == "STEP_OUTPUT")
        return {key.removeprefix("tidemark/"): value.value for key, value in output.metadata.items()}


@pytest.fixture
def pad(world: World, tmp_path: Path, instance: dg.DagsterInstance) -> Launchpad:
    return Launchpad(world, tmp_path, instance, spec=JobSpec("fares", "fares:job", trigger_ms=2_000))


def test_a_jobs_life_from_the_launchpad(pad: Launchpad) -> None:
    said = pad.launch("start")
    assert (said["lifecycle"], said["attempt"], said["generation"], said["wanted"]) == ("running", 1, 1, "running")
    assert require_spec(pad.world.store, "fares").spec.trigger_ms == 2_000
    pad.world.tick()
    said = pad.launch("restart", why="new driver")
    assert (said["lifecycle"], said["attempt"], said["generation"]) == ("running", 2, 2)
    said = pad.launch("stop", why="the lake is moved")
    assert (said["lifecycle"], said["wanted"]) == ("suspended", "suspended")
    assert said["epoch"] == 2, "each start is waited for until an epoch is published"
    assert "the lake is moved" in str(said["reason"])
    assert "Dagster run" in str(said["asked_by"])
    assert pad.world.alive() == []
    assert pad.launch("start")["attempt"] == 3
    said = pad.launch("cancel")
    assert said["lifecycle"] == "suspended"
    assert pad.world.of()[-1].signals == 0, "it was asked to finish, not to end at once"


def test_suspend_and_resume_only_write_the_request(pad: Launchpad) -> None:
    pad.launch("start")
    said = pad.launch("suspend")
    assert said["lifecycle"] == "draining"
    assert pad.world.driver().asked
    pad.world.tick()
    assert pad.world.alive() == []
    assert pad.launch("resume")["lifecycle"] == "starting"


def test_draining_ends_a_job_for_good(pad: Launchpad) -> None:
    pad.launch("start")
    pad.world.tick()
    assert pad.launch("stop", how="drain")["lifecycle"] == "finished"
    with pytest.raises(dg.Failure, match="does not run: its input has ended"):
        pad.launch("start")


def test_a_job_that_fails_fails_the_run_with_its_error(world: World, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pad = Launchpad(world, tmp_path, instance, spec=JobSpec("fares", "fares:job", restart=RestartPolicy(kind="none")))
    world.refuses_to_launch = 1
    with pytest.raises(dg.Failure, match="no process could be started") as failed:
        pad.launch("start")
    assert failed.value.metadata["tidemark/lifecycle"].value == "failed"
    # Starting it is trying again.
    assert pad.launch("start")["lifecycle"] == "running"
    pad.world.driver().doomed = SourceError("the folder is gone", fix="bring it back")
    pad.world.tick()
    assert pad.launch("stop")["lifecycle"] == "suspended", "it is as it was wanted"


def test_settings_of_the_code_location_are_taken_when_asked_for(pad: Launchpad) -> None:
    pad.world.submit(trigger_ms=7_000)
    pad.launch("start")
    assert require_spec(pad.world.store, "fares").spec.trigger_ms == 7_000
    pad.launch("start", resubmit=True)
    assert require_spec(pad.world.store, "fares").spec.trigger_ms == 2_000


def test_what_cannot_be_done_fails_and_leaves_the_request(pad: Launchpad) -> None:
    pad.world.submit(wanted="suspended")
    with pytest.raises(DefinitionError, match="does not run"):
        pad.launch("stop", how="drain")
    with pytest.raises(DurationError, match="timeout"):
        pad.launch("stop", timeout="soon")
    pad.launch("start")
    pad.world.driver().frozen = True
    with pytest.raises(NotReachedError, match="not yet ended"):
        pad.launch("stop", timeout="5 seconds")
    assert require_spec(pad.world.store, "fares").spec.wanted == "suspended"


def test_a_job_that_nobody_submitted(world: World, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    pad = Launchpad(world, tmp_path, instance)
    with pytest.raises(UnknownJobError, match="'fares'"):
        pad.launch("start")
    assert read_spec(world.store, "fares") is None


def test_each_form_is_filled_in_and_explains_itself(pad: Launchpad) -> None:
    jobs = {job.name: job for job in pad.defs.resolve_all_job_defs()}
    for verb in VERBS:
        job = jobs[f"fares_{verb}"]
        resolved = dg.validate_run_config(job)["ops"][f"{verb}_fares"]["config"]
        assert resolved["job"] == "fares"
        assert resolved["wait"] is (verb not in {"suspend", "resume"})
        assert resolved["timeout"] == "10 minutes"
        assert job.description
        (node,) = job.graph.node_defs
        schema = node.config_schema
        assert schema is not None
        fields = getattr(schema.config_type, "fields")  # noqa: B009 - not every type of a configuration has them
        assert all(field.description for field in fields.values()), verb
    for wrong in ({"how": "later"}, {"timeout": 3}, {"unknown": 1}, {"wait": "perhaps"}):
        with pytest.raises(dg.DagsterInvalidConfigError):
            dg.validate_run_config(jobs["fares_stop"], {"ops": {"stop_fares": {"config": wrong}}})


def test_operations_of_a_store_ask_for_the_job(world: World, instance: dg.DagsterInstance) -> None:
    defs = control_jobs(store=world.store.uri, launchers=lambda: launchers(world), clock=world.clock)
    start = defs.resolve_job_def("tidemark_start")
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(start, {})
    world.submit("rides")
    result = start.execute_in_process(run_config={"ops": {"start_tidemark": {"config": {"job": "rides"}}}}, instance=instance)
    assert result.success
    assert [process.job for process in world.alive("rides")] == ["rides"]


def test_operations_of_several_jobs_merge(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path / name, name, store=str(tmp_path)) for name in ("fares", "night-rides")]
    defs = dg.Definitions.merge(*(control_jobs(job) for job in jobs), control_jobs(store=str(tmp_path)))
    dg.Definitions.validate_loadable(defs)
    names = {job.name for job in defs.resolve_all_job_defs()}
    assert {f"{stem}_{verb}" for stem in ("fares", "night_rides", "tidemark") for verb in VERBS} <= names


def test_what_operations_cannot_be_is_refused(tmp_path: Path) -> None:
    job: tm.Job = make_job(tmp_path)
    with pytest.raises(DefinitionError, match="no job store"):
        control_jobs(job)
    with pytest.raises(DefinitionError, match="that of job 'fares'"):
        control_jobs(job, spec=JobSpec("fares", "fares:job"), store=str(tmp_path))
    with pytest.raises(DefinitionError, match="does not name a job"):
        control_jobs(job, spec=JobSpec("cabs", "fares"), store=str(tmp_path))
