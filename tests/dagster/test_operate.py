"""One Dagster job for all operations on a streaming job: its launchpad's choices, what they do, and what the run says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from tests.dagster.fake_engine import make_job
from tests.dagster.instances import instance_in_memory
from tests.upgrade.upgrade_worlds import JOB, UpgradeWorld, fits
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control import JobSpec
from tidemark.errors import DefinitionError, StoreError
from tidemark.operations import build_operations
from tidemark.operations.control_jobs import control_operations
from tidemark.operations.launchpad import operate_job
from tidemark.operations.savepoint_definitions import savepoint_operations
from tidemark.operations.savepoint_names import NAMES, known_savepoints
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.gc.pins import Pins

pytestmark = pytest.mark.dagster

CONTROL = ("start", "stop", "cancel", "restart", "suspend", "resume")
SAVING = (
    *("savepoint", "dispose_savepoints", "export_savepoint", "rewind", "restore", "fork", "diff", "discard", "promote"),
    *("rescale", "upgrade", "maintenance"),
)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


class Launchpad:
    """Launches ``fares_operate``; four epochs of the job are there, and the savepoints that a test takes first."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.instance, self.world = instance, UpgradeWorld(folder, on_disk=True).started()
        self.savepoints = SavepointStore(self.world.store, JOB, self.world.clock)
        self.job = make_job(folder, JOB, store=self.world.store.uri)

    def defs(self) -> dg.Definitions:
        return build_operations(self.job, launchers=lambda: self.world.launchers, clock=self.world.clock, judge=fits)

    def launch(self, config: str = "") -> tuple[dict[str, object], dg.DagsterRun]:
        """Launch with a config as the launchpad has it, and return what the output says, and the run."""
        given = {"ops": {f"operate_{JOB}": {"config": yaml.safe_load(config)}}} if config else None
        result = self.defs().resolve_job_def(f"{JOB}_operate").execute_in_process(run_config=given, instance=self.instance)
        (output,) = (event.step_output_data for event in result.all_events if event.event_type_value == "STEP_OUTPUT")
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return {key.removeprefix("tidemark/"): value.value for key, value in output.metadata.items()}, run


@pytest.fixture
def pad(tmp_path: Path, instance: dg.DagsterInstance) -> Launchpad:
    instance.wipe_assets(list(instance.get_asset_keys()))
    return Launchpad(tmp_path, instance)


def test_as_it_is_launched_it_shows_the_job_and_changes_nothing(pad: Launchpad) -> None:
    before = pad.world.store.list()
    said, run = pad.launch()
    assert "watermark_and_late_rows" in said, "these drivers write no history, so it is empty"
    assert (said["job"], said["lifecycle"], said["health"], said["savepoints"]) == (JOB, "running", "ok", "none")
    assert run.tags["tidemark/operation"] == "status"
    assert [file.path for file in pad.world.store.list()] == [file.path for file in before]
    pad.savepoints.take("good", note="before [a] change")
    said, _ = pad.launch("do: {status: {check: true}}")
    assert "| `good` | manual |" in str(said["savepoints"])
    assert "before \\[a\\] change" in str(said["savepoints"])


def test_each_operation_is_chosen_with_its_settings(pad: Launchpad) -> None:
    said, run = pad.launch("do: {savepoint: {name: good, why: to be sure}}")
    assert said["savepoint"] == "good"
    assert (run.tags["tidemark/job"], run.tags["tidemark/operation"]) == (JOB, "savepoint")
    assert pad.savepoints.get("good").info.note == "to be sure"
    # YAML without settings: an empty value.
    said, _ = pad.launch("do:\n  rewind:\n")
    assert said["dry_run"] is True
    pad.world.driver(JOB).end(-9)
    with pytest.raises(dg.Failure, match=f"{JOB}: "):
        pad.launch("do: {status: {check: true}}")
    said, _ = pad.launch("do: {stop: {why: the lake is moved}}")
    assert said["lifecycle"] == "suspended"


@pytest.mark.parametrize(
    "config",
    ["do: {}", "do: {start: {}, stop: {}}", "do: {leap: {}}", "do: {stop: {how: later}}", "do: {stop: {job: other}}", "job: 3", "why: so"],
)
def test_a_config_that_is_no_operation_is_refused(tmp_path: Path, config: str) -> None:
    job = build_operations(make_job(tmp_path, JOB, store=str(tmp_path))).resolve_job_def(f"{JOB}_operate")
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(job, {"ops": {f"operate_{JOB}": {"config": yaml.safe_load(config)}}})


def test_its_help_names_the_operations_and_the_savepoints(pad: Launchpad) -> None:
    for number in range(NAMES + 2):
        pad.savepoints.take(f"sp-{number:02}")
    job = pad.defs().resolve_job_def(f"{JOB}_operate")
    text = str(job.description)
    assert all(f"| `{verb}` | " in text for verb in ("status", *CONTROL, *SAVING))
    (node,) = job.graph.node_defs
    assert node.config_schema is not None
    fields = getattr(node.config_schema.config_type, "fields")  # noqa: B009 - of some types only
    choices = getattr(fields["do"].config_type, "fields")  # noqa: B009
    assert all(choice.description for choice in choices.values())
    known = {name for name in (f"sp-{number:02}" for number in range(NAMES + 2)) if name in text}
    assert len(known) == NAMES
    assert "sp-13" in known
    for verb, choice in choices.items():
        for name, field in getattr(choice.config_type, "fields").items():  # noqa: B009
            chosen = (verb, name) == ("dispose_savepoints", "names") or (name == "savepoint" and verb != "stop")
            assert {known_ for known_ in known if known_ in str(field.description)} == (known if chosen else set()), (verb, name)
    rewind = getattr(choices["rewind"].config_type, "fields")["savepoint"]  # noqa: B009
    assert (rewind.is_required, rewind.default_value) == (False, "")
    assert dg.validate_run_config(job)["ops"][f"operate_{JOB}"]["config"] == {"job": JOB, "do": {"status": {"check": False}}}


def test_all_settings_reach_the_operation_as_they_are_given(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    job = make_job(tmp_path, JOB, store=str(tmp_path))
    given = {"launchers": dict, "clock": SYSTEM_CLOCK, "translator": None, "store": str(tmp_path)}
    operations = [
        *control_operations(job, spec=None, **given),  # type: ignore[arg-type]
        *savepoint_operations(job, judge=None, **given),  # type: ignore[arg-type]
    ]
    assert [operation.verb for operation in operations] == [*CONTROL, *SAVING]
    reached: dict[str, dict[str, Any]] = {}

    def note(verb: str) -> Callable[[dg.OpExecutionContext, Any], None]:
        return lambda _, form: reached.update({verb: form.model_dump()})

    noted = [replace(operation, carry_out=note(operation.verb)) for operation in operations]
    (op,) = operate_job(noted, JOB).graph.node_defs
    assert isinstance(op, dg.OpDefinition)

    # The job's only op once for each operation, so that one run is enough.
    @dg.graph
    def each_once() -> None:
        for operation in noted:
            op.alias(operation.verb)()

    special = {"columns": {"hourly": {"fares": "sums", "old": None}}, "uids": {"a": "b"}, "keep": 3, "epoch": 7, "savepoint": "good"}
    wanted: dict[str, dict[str, Any]] = {}
    for operation in noted:
        fields = operation.form.model_fields
        settings: dict[str, Any] = {name: value for name, value in special.items() if name in fields}
        wanted[operation.verb] = operation.form(job="other", **settings).model_dump()
    # Every setting is written out, as the launchpad may do.
    given_settings = {verb: {name: value for name, value in form.items() if name != "job"} for verb, form in wanted.items()}
    run = {"ops": {verb: {"config": {"job": "other", "do": {verb: settings}}} for verb, settings in given_settings.items()}}
    assert each_once.to_job(executor_def=dg.in_process_executor).execute_in_process(run_config=run, instance=instance).success
    assert reached == wanted


def test_what_is_built(tmp_path: Path) -> None:
    job = make_job(tmp_path, "fares", store=str(tmp_path))

    def names(**options: object) -> set[str]:
        defs = build_operations(job, **options)  # type: ignore[arg-type]
        dg.Definitions.validate_loadable(defs)
        jobs = {each.name for each in defs.resolve_all_job_defs()} - {"__ASSET_JOB"}
        return {name.removeprefix("fares_") for name in jobs} | {each.name for each in defs.schedules or ()}

    schedules = {"fares_savepoint_schedule", "fares_maintenance_schedule"}
    assert names() == {"operate", "savepoint", "maintenance", *schedules}
    assert names(savepoints=False) == {"operate"}
    assert names(single_jobs=True) == {"operate", *CONTROL, *SAVING, *schedules}
    assert names(single_jobs=True, savepoints=False) == {"operate", *CONTROL}
    store = build_operations(store=str(tmp_path))
    assert {each.name for each in store.resolve_all_job_defs()} == {"tidemark_operate"}
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(store.resolve_job_def("tidemark_operate"), {})
    with pytest.raises(DefinitionError, match="no job store"):
        build_operations(make_job(tmp_path))
    with pytest.raises(DefinitionError, match="that of job 'cabs'"):
        build_operations(job, spec=JobSpec("cabs", "fares:job"))


def test_a_store_that_cannot_be_read_does_not_keep_definitions_from_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    assert known_savepoints(str(tmp_path / "file" / "jobs"), ["fares"]) == {}
    monkeypatch.delenv("NO_SUCH_STORE", raising=False)
    assert known_savepoints(dg.EnvVar("NO_SUCH_STORE"), ["fares"]) == {}
    assert known_savepoints(str(tmp_path / "jobs"), ["fares"]) == {}
    assert not (tmp_path / "jobs").exists(), "reading makes nothing"
    (tmp_path / "jobs").mkdir()
    assert known_savepoints(str(tmp_path / "jobs"), ["fares"]) == {"fares": []}


def test_a_job_whose_savepoints_cannot_be_read_does_not_hide_those_of_others(pad: Launchpad, monkeypatch: pytest.MonkeyPatch) -> None:
    pad.savepoints.take("good")
    files = Pins.files

    def refused(pins: Pins) -> dict[str, int]:
        if pins.log.job == "locked":
            raise StoreError("access is denied", fix="allow it")
        return files(pins)

    monkeypatch.setattr(Pins, "files", refused)
    assert known_savepoints(pad.world.store.uri, ["locked", JOB]) == {JOB: ["good"]}
