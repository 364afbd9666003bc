"""Operations on savepoints and on a job's code, as the launchpad starts them; drivers are fakes that commit to a real log and table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest
from deltalake import DeltaTable

from tests.dagster.fake_engine import make_job
from tests.dagster.instances import instance_in_memory
from tests.upgrade.upgrade_worlds import JOB, NEW, OLD, UpgradeWorld, fits
from tidemark.assets.report.savepoint_observations import browser_url
from tidemark.control.desired.spec_store import read_spec, require_spec
from tidemark.control.model.upgrade_records import newest_step
from tidemark.control.view.change_log import changes_of
from tidemark.errors import DefinitionError, JobRunningError, RewindError, UnknownSavepointError, UpgradeError
from tidemark.locations import Location
from tidemark.operations import control_jobs, savepoint_jobs
from tidemark.operations.savepoint_config import RestoreForm
from tidemark.operations.savepoint_ops import SavepointOperator
from tidemark.savepoints.api.maintenance import vacuum_tables
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore_history import record_restore
from tidemark.sensors.reports.reported_events import EPOCH, LINEAGE, ReportedEvents
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import RestoreRef
from tidemark.state.status.history import read_history
from tidemark.state.store.layout import STATE

pytestmark = pytest.mark.dagster

VERBS = (
    *("savepoint", "dispose_savepoints", "export_savepoint", "rewind", "restore", "fork", "diff", "discard", "promote"),
    *("rescale", "upgrade", "maintenance"),
)


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


class Launchpad:
    """Launches the operations of the job ``fares``, four epochs of which are there."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, world: UpgradeWorld) -> None:
        self.folder, self.instance, self.world = folder, instance, world
        self.job = make_job(folder, JOB, store=world.store.uri)
        self.defs = savepoint_jobs(self.job, launchers=lambda: world.launchers, clock=world.clock, judge=fits)

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.world.store, JOB, self.world.clock)

    def launch(self, verb: str, **config: object) -> dict[str, object]:
        """Launch with the launchpad's defaults but for some settings, and return what the output says."""
        given = {"ops": {f"{verb}_{JOB}": {"config": config}}} if config else None
        result = self.defs.resolve_job_def(f"{JOB}_{verb}").execute_in_process(run_config=given, instance=self.instance)
        (output,) = (event.step_output_data for event in result.all_events if event.event_type_value == "STEP_OUTPUT")
        return {key.removeprefix("tidemark/"): value.value for key, value in output.metadata.items()}

    def suspend(self) -> None:
        self.world.want(JOB, wanted="suspended")
        self.world.run(self.world.reconciler(), 20)


def observed_savepoint(pad: Launchpad) -> object:
    (record,) = pad.instance.fetch_observations(dg.AssetKey([JOB, "hourly"]), limit=1).records
    observed = record.asset_observation
    assert observed is not None
    return observed.metadata["tidemark/savepoint"].value


@pytest.fixture
def pad(tmp_path: Path, instance: dg.DagsterInstance) -> Launchpad:
    # Clocks stand still: a savepoint of another test may be of the same name and time.
    instance.wipe_assets(list(instance.get_asset_keys()))
    return Launchpad(tmp_path, instance, UpgradeWorld(tmp_path, on_disk=True).started())


def test_a_savepoint_is_observed_on_every_output(pad: Launchpad) -> None:
    said = pad.launch("savepoint", name="good", why="before the tariff", labels={"ticket": "7"})
    assert (said["savepoint"], said["savepoint_epoch"], said["savepoint_kind"], said["state_rows"]) == ("good", 3, "manual", 40)
    taken = pad.savepoints.get("good")
    assert (taken.info.note, dict(taken.info.labels)) == ("before the tariff", {"ticket": "7"})
    assert "Dagster run" in taken.info.by
    for output in pad.job.outputs:
        (record,) = pad.instance.fetch_observations(dg.AssetKey([JOB, output]), limit=1).records
        observed = record.asset_observation
        assert observed is not None
        assert observed.metadata["tidemark/savepoint"].value == "good"
        # These say how far the job was reported by the progress sensor, which a savepoint does not.
        assert "tidemark/epoch" not in observed.metadata
        assert ("tidemark/table_version" in observed.metadata) == (output == "hourly")
        path, run = (observed.metadata[f"tidemark/{key}"] for key in ("savepoint_path", "taken_in_run"))
        assert (type(path), Path(str(path.value)).is_file()) == (dg.PathMetadataValue, True)
        assert isinstance(run, dg.DagsterRunMetadataValue)
        assert run.value == record.run_id
        assert "tidemark/savepoint_url" not in observed.metadata, "no browser follows a link to a local folder"


def test_a_savepoint_in_a_bucket_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    pages = {place: browser_url(Location.parse(place)) for place in ("s3://lake/jobs/a b", "gs://lake/jobs", "az://lake/jobs", "/srv/jobs")}
    assert pages == {
        "s3://lake/jobs/a b": "https://s3.console.aws.amazon.com/s3/buckets/lake?prefix=jobs/a%20b/",
        "gs://lake/jobs": "https://console.cloud.google.com/storage/browser/lake/jobs",
        "az://lake/jobs": None,
        "/srv/jobs": None,
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert browser_url(Location.parse("s3://lake/jobs")) is None


def test_an_observed_savepoint_does_not_hide_how_far_the_job_was_reported(pad: Launchpad) -> None:
    epochs = read_history(pad.world.store, JOB) or [EpochProgress(JOB, "a1", epoch, epoch, 100, 10, 1) for epoch in range(4)]
    key = dg.AssetKey([JOB, "late"])
    pad.instance.report_runless_asset_event(dg.AssetObservation(key, metadata={LINEAGE: epochs[1].lineage, EPOCH: epochs[1].epoch}))
    pad.launch("savepoint")
    assert [epoch.epoch for epoch in ReportedEvents(pad.instance).not_observed(key, epochs)] == [2, 3]


def test_savepoints_are_exported_and_disposed_of(pad: Launchpad) -> None:
    with pytest.raises(UnknownSavepointError, match="has no savepoint"):
        pad.launch("export_savepoint")
    pad.launch("savepoint", name="a")
    for _ in range(3):
        pad.world.clock.advance(1000)
        pad.launch("savepoint", kind="periodic")
    said = pad.launch("export_savepoint", savepoint="a")
    assert str(said["export"]).endswith(f"_exports/{JOB}/a")
    assert (Path(str(said["export"])) / "index.json").exists()
    assert pad.launch("export_savepoint", to=str(pad.folder / "there"))["savepoint_kind"] == "periodic"
    assert pad.launch("dispose_savepoints")["savepoints"] == 4
    assert pad.launch("dispose_savepoints", keep=1)["savepoints"] == 2
    assert pad.launch("dispose_savepoints", names=["a"])["disposed"] == "a"
    with pytest.raises(UnknownSavepointError):
        pad.launch("dispose_savepoints", names=["a"])


def test_what_was_asked_of_savepoints_is_in_the_job_s_history(pad: Launchpad) -> None:
    pad.launch("savepoint", name="good", why="before the tariff")
    pad.launch("savepoint", kind="periodic")
    pad.launch("export_savepoint", savepoint="good", to=str(pad.folder / "there"), why="for the auditors")
    pad.launch("dispose_savepoints", names=["good"], why="exported")
    pad.launch("dispose_savepoints")
    pad.launch("maintenance")
    asked = [each for each in changes_of(pad.world.store, JOB, 100) if each.kind == "request"]
    assert [each.what for each in asked] == [
        "savepoint good of epoch 3 taken: before the tariff",
        f"export of savepoint good to {pad.folder}/there: for the auditors",
        "dispose of savepoint good: exported",
        "dispose of the savepoints that retention expires",
    ], "what a schedule launches is no request"
    assert all("Dagster run" in each.by for each in asked)


def test_a_rewind_says_first_what_it_would_do(pad: Launchpad) -> None:
    pad.launch("savepoint", name="good", epoch=1)
    said = pad.launch("rewind")
    assert "table of hourly: back to version 1" in str(said["plan"])
    assert (said["dry_run"], said["refusals"]) == (True, 0)
    assert len(pad.world.rows()) == 4
    with pytest.raises(DefinitionError, match="a rewind must name its savepoint"):
        pad.launch("rewind", dry_run=False)
    assert pad.world.spec.wanted == "running"
    assert len(pad.world.rows()) == 4, "nothing was done"
    said = pad.launch("rewind", savepoint="good", dry_run=False)
    assert (said["epoch"], said["savepoint"]) == (1, "good")
    assert observed_savepoint(pad) == pad.savepoints.list()[-1].name, "the one that was taken before the tables were put back"
    assert pad.savepoints.list()[-1].info.kind == "before-rewind"
    assert pad.world.rows() == [(0, OLD), (1, OLD)]
    assert pad.world.spec.wanted == "running"
    # The newest that somebody took, not what the rewind kept of what it put back.
    assert "(good)" in str(pad.launch("rewind")["plan"])
    assert pad.launch("export_savepoint")["savepoint"] == "good"
    pad.world.run(pad.world.reconciler(), 60)
    with pytest.raises(JobRunningError):
        pad.launch("rewind", savepoint="good", dry_run=False, stop=False)


def test_a_fork_is_made_and_promoted(pad: Launchpad) -> None:
    pad.launch("savepoint", name="good", epoch=1)
    said = pad.launch("fork", code=NEW, start=False)
    assert (said["fork"], said["code"], said["wanted"]) == ("fares-what-if", NEW, "suspended")
    said = pad.launch("promote")
    assert (said["upgrade_end"], said["reason"]) == ("done", "3 good epochs")
    assert pad.world.rows() == [(0, OLD), (1, OLD), (2, NEW), (3, NEW), (4, NEW)]


def test_a_job_is_rescaled_and_restored_by_its_spec(pad: Launchpad) -> None:
    assert pad.launch("rescale", parallelism=8)["parallelism"] == "8"
    assert pad.world.spec.parallelism == 8
    assert pad.launch("rescale")["parallelism"] == "as the job has it"
    pad.launch("savepoint", name="good", epoch=1)
    with pytest.raises(DefinitionError, match="a restore must name its savepoint"):
        pad.launch("restore")
    pad.launch("restore", savepoint="good", uids={"hourly": "hourly"})
    restore = pad.world.spec.restore
    assert restore is not None
    assert (restore.savepoint, dict(restore.uids)) == ("good", {"hourly": "hourly"})
    pad.launch("restore", savepoint="good", uids={"hourly": "hourly"})
    again = pad.world.spec.restore
    assert again is not None
    assert again.identity != restore.identity, "another run is another restore"


def test_a_run_that_is_launched_again_restores_once(pad: Launchpad) -> None:
    """Retries and re-executions are runs of their own, which name the first of them."""
    for name in ("good", "other"):
        pad.launch("savepoint", name=name, epoch=1)
    operator = SavepointOperator(lambda: pad.world.store, lambda: pad.world.launchers, clock=pad.world.clock, judge=fits)
    log = logging.getLogger("the run")

    def launch(run_id: str, *, root: str | None = None, savepoint: str = "good") -> tuple[object, str]:
        run = SimpleNamespace(run_id=run_id, root_run_id=root)
        context = cast("dg.OpExecutionContext", SimpleNamespace(run=run, run_id=run_id, log=log))
        said = operator.restore(context, RestoreForm(job=JOB, savepoint=savepoint, wait=False))
        restore = pad.world.spec.restore
        assert restore is not None
        return said["tidemark/generation"], restore.identity

    first = launch("run-1")
    assert launch("run-2", root="run-1") == first, "not made yet: it is asked for already, and the driver is not started anew"
    assert launch("run-3", root="run-1", savepoint="other")[1] != first[1], "launched again with other settings"
    assert launch("run-4", root="run-1")[1] == first[1]
    newest, _ = launch("run-5")
    record_restore(pad.savepoints.folder, replace(pad.savepoints.get("good").record, restored=RestoreRef(first[1], JOB, "good")))
    assert launch("run-6", root="run-1")[0] == newest, "made: the spec is left as others want it by now"


def test_an_upgrade_comes_to_its_end_and_fails_the_run_when_it_is_the_other_one(pad: Launchpad) -> None:
    with pytest.raises(UpgradeError, match="no upgrade of the job was begun"):
        pad.launch("upgrade")
    said = pad.launch("upgrade", code=NEW, version="2")
    assert (said["upgrade_end"], said["code"]) == ("done", "fares_v2:job version 2")
    assert pad.savepoints.get(str(said["savepoint"])).info.kind == "before-upgrade"
    assert observed_savepoint(pad) == said["savepoint"]
    with pytest.raises(UpgradeError, match=r"there is nothing to abort: .* is done"):
        pad.launch("upgrade", end="abort")
    with pytest.raises(DefinitionError, match="exclude one another"):
        pad.launch("upgrade", code="fares_v3:job", end="abort")
    pad.launch("upgrade", code="fares_v3:job", wait=False)
    with pytest.raises(dg.Failure, match="is rolled back") as failed:
        pad.launch("upgrade", end="abort", why="a mistake")
    assert failed.value.metadata["tidemark/code"].value == "fares_v2:job version 2"
    # Given again, it says how the last one ended.
    with pytest.raises(dg.Failure, match="a mistake"):
        pad.launch("upgrade")
    step = newest_step(pad.world.store, JOB)
    assert step is not None
    assert "Dagster run" in step.by


def test_maintenance_keeps_what_savepoints_need(pad: Launchpad) -> None:
    pad.launch("savepoint", name="good", epoch=1)
    folder = pad.world.store.at(JOB)
    said = pad.launch("maintenance")
    assert (said["swept"], "files_marked" in said) == (False, False), "a driver that runs sweeps itself"
    pad.suspend()
    driver = JobLog(folder, JOB, pad.world.clock).acquire(current_owner("run"))
    assert pad.launch("maintenance")["swept"] is False, "somebody else is at work"
    driver.release()
    before = {file.path for file in folder.list(STATE)}
    folder.put(f"{STATE}/hourly/1-99.parquet", b"nobody's")
    # By the table's settings nothing is kept that is not in the newest version; the savepoint's files stay all the same.
    table = DeltaTable(str(pad.world.table))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    table.optimize.compact()
    assert len(table.file_uris()) == 1
    needed = {Path(file) for file in DeltaTable(str(pad.world.table), version=1).file_uris()}
    pad.world.clock.advance(4_000_000_000_000)
    said = pad.launch("maintenance")
    assert (said["swept"], said["files_marked"]) == (True, 1)
    pad.world.clock.advance(4_000_000_000_000)
    assert pad.launch("maintenance")["files_deleted"] == 1
    assert {file.path for file in folder.list(STATE)} == before
    left = {path.resolve() for path in pad.world.table.glob("*.parquet")}
    assert {Path(str(path).removeprefix("file://")).resolve() for path in needed} <= left
    with pytest.raises(RewindError, match="by other writers"):
        pad.launch("rewind", savepoint="good", dry_run=False)
    assert set(vacuum_tables(pad.world.store, JOB, clock=pad.world.clock)) == {"hourly"}


def test_each_form_is_filled_in_and_explains_itself(pad: Launchpad) -> None:
    jobs = {job.name: job for job in pad.defs.resolve_all_job_defs()}
    for verb in VERBS:
        job = jobs[f"{JOB}_{verb}"]
        resolved = dg.validate_run_config(job)["ops"][f"{verb}_{JOB}"]["config"]
        assert resolved["job"] == JOB
        assert job.description
        (node,) = job.graph.node_defs
        schema = node.config_schema
        assert schema is not None
        fields = getattr(schema.config_type, "fields")  # noqa: B009 - not every type of a configuration has them
        assert all(field.description for field in fields.values()), verb


def test_schedules_take_savepoints_that_retention_lets_go(pad: Launchpad) -> None:
    schedules = {schedule.name: schedule for schedule in pad.defs.schedules or ()}
    assert {name: schedule.cron_schedule for name, schedule in schedules.items() if isinstance(schedule, dg.ScheduleDefinition)} == {
        "fares_savepoint_schedule": "0 */6 * * *",
        "fares_maintenance_schedule": "30 3 * * *",
    }
    schedule = schedules["fares_savepoint_schedule"]
    assert isinstance(schedule, dg.ScheduleDefinition)
    ticked = schedule.evaluate_tick(dg.build_schedule_context(instance=pad.instance))
    (request,) = ticked.run_requests or ()
    job = pad.defs.resolve_job_def("fares_savepoint")
    assert job.execute_in_process(run_config=request.run_config, instance=pad.instance).success
    assert [item.info.kind for item in pad.savepoints.list()] == ["periodic"]
    other = savepoint_jobs(make_job(pad.folder, "not_begun", store=pad.world.store.uri))
    begun = {found.name: found for found in other.schedules or () if isinstance(found, dg.ScheduleDefinition)}
    ticked = begun["not_begun_savepoint_schedule"].evaluate_tick(dg.build_schedule_context(instance=pad.instance))
    assert not ticked.run_requests, "of a job that has no epoch yet there is nothing to keep"


def test_they_merge_with_other_operations_and_with_those_of_a_store(pad: Launchpad, tmp_path: Path) -> None:
    store = pad.world.store.uri
    defs = dg.Definitions.merge(pad.defs, control_jobs(pad.job), savepoint_jobs(store=store, launchers=lambda: pad.world.launchers))
    dg.Definitions.validate_loadable(defs)
    assert {f"{stem}_{verb}" for stem in (JOB, "tidemark") for verb in VERBS} <= {job.name for job in defs.resolve_all_job_defs()}
    job = defs.resolve_job_def("tidemark_savepoint")
    assert job.execute_in_process(
        run_config={"ops": {"savepoint_tidemark": {"config": {"job": JOB, "name": "by-name"}}}}, instance=pad.instance
    ).success
    assert pad.savepoints.get("by-name").record.epoch == 3
    assert require_spec(pad.world.store, JOB) == read_spec(pad.world.store, JOB)
    with pytest.raises(DefinitionError, match="no job store"):
        savepoint_jobs(make_job(tmp_path))
