"""Savepoints that were taken outside Dagster are observed, each once on each output, however ticks fail."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from tests.dagster.fake_engine import make_job
from tests.dagster.instances import instance_in_memory
from tests.upgrade.upgrade_worlds import JOB, UpgradeWorld, fits
from tidemark.assets import build_output_asset_specs
from tidemark.cli.program.main import main
from tidemark.operations import savepoint_jobs
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.sensors import build_progress_sensor
from tidemark.sensors.reports import reported_events, savepoint_report
from tidemark.sensors.reports.progress_cursor import JobMark, SavepointMark, decode_marks, decode_savepoints, encode_marks
from tidemark.sensors.reports.reported_events import EPOCH, LINEAGE, ReportedEvents
from tidemark.sensors.reports.savepoint_report import SETTLES_MS, new_savepoints
from tidemark.state.log.progress import EpochProgress
from tidemark.state.store.layout import pin_path

pytestmark = pytest.mark.dagster

OUTPUTS = ("hourly", "late", "malformed", "rejected")


@pytest.fixture(scope="module")
def shared_instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as instance:
        yield instance


class Rig:
    """The job ``fares``, four epochs of which are there, and a sensor whose ticks report as Dagster's daemon does."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        instance.wipe_assets(list(instance.get_asset_keys()))
        self.instance, self.world = instance, UpgradeWorld(folder, on_disk=True).started()
        self.job = make_job(folder, JOB, store=self.world.store.uri)
        self.specs = build_output_asset_specs(self.job)
        self.sensor = build_progress_sensor(self.specs, clock=self.world.clock)
        self.cursor: str | None = None
        self.said = ""

    @property
    def savepoints(self) -> SavepointStore:
        return SavepointStore(self.world.store, JOB, self.world.clock)

    def take(self, name: str) -> None:
        self.savepoints.take(name)
        self.world.clock.advance(SETTLES_MS)

    def file_of(self, name: str) -> Path:
        return Path(self.savepoints.folder.location.joined(pin_path(name)).path)

    def tick(self, *, minutes: int = 5, dies_after: int | None = None) -> int:
        """Let time pass and tick; the daemon may die when it has reported so many events. Returns how many there were."""
        self.world.clock.advance(minutes * 60_000)
        result = self.sensor(dg.build_sensor_context(instance=self.instance, cursor=self.cursor))
        assert isinstance(result, dg.SensorResult)
        events = list(result.asset_events or ())
        for event in events[:dies_after]:
            self.instance.report_runless_asset_event(event)
        if dies_after is None:
            self.cursor = result.cursor
        self.said = str(result.skip_reason)
        return len(events)

    def told(self, output: str = "hourly") -> list[object]:
        found = self.instance.fetch_observations(dg.AssetKey([JOB, output]), limit=1000, ascending=True).records
        items = [record.asset_observation for record in found]
        return [item.metadata["tidemark/savepoint"].value for item in items if item is not None and "tidemark/savepoint" in item.metadata]


@pytest.fixture
def rig(tmp_path: Path, shared_instance: dg.DagsterInstance) -> Rig:
    return Rig(tmp_path, shared_instance)


def test_what_a_command_took_is_observed_once_with_its_links(rig: Rig) -> None:
    typed = CliRunner().invoke(main, ["savepoint", "trigger", JOB, "--name", "good", "--note", "why", "--store", rig.world.store.uri])
    assert typed.exit_code == 0, typed.output
    rig.tick()
    assert "1 savepoints reported" in rig.said
    assert {output: rig.told(output) for output in OUTPUTS} == {output: ["good"] for output in OUTPUTS}
    (record,) = rig.instance.fetch_observations(dg.AssetKey([JOB, "hourly"]), limit=1).records
    assert record.asset_observation is not None
    said = record.asset_observation.metadata
    assert {"tidemark/table_version", "tidemark/restore", "tidemark/restorable", "tidemark/taken_by", "tidemark/note"} <= set(said)
    assert Path(str(said["tidemark/savepoint_path"].value)) == rig.file_of("good")
    assert "tidemark/taken_in_run" not in said
    assert "- source trips: no file was read yet" in str(said["tidemark/restorable"].value)
    assert rig.tick() == 0
    assert "savepoints reported" not in rig.said


def test_another_savepoint_of_the_name_is_told_and_a_copied_file_is_not(rig: Rig) -> None:
    rig.take("a")
    rig.tick()
    os.utime(rig.file_of("a"), (1, 1))
    rig.sensor = build_progress_sensor(rig.specs, clock=rig.world.clock)
    assert rig.tick() == 0
    rig.savepoints.dispose("a")
    assert rig.tick() == 0
    rig.take("a")
    rig.tick()
    assert rig.told() == ["a", "a"]


def test_one_that_a_run_may_just_be_observing_waits(rig: Rig) -> None:
    rig.savepoints.take("a")
    assert rig.tick(minutes=0) == 0
    assert "1 savepoints wait for the next tick" in rig.said
    rig.world.clock.advance(SETTLES_MS)
    assert rig.tick(minutes=0) == len(OUTPUTS)
    rig.take("b")
    assert rig.tick(minutes=1) == 0, "they are listed every five minutes"
    assert rig.tick(minutes=4) == len(OUTPUTS)


def test_many_are_told_tick_by_tick_and_do_not_hide_how_far_the_job_was_reported(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savepoint_report, "SAVEPOINTS_AT_ONCE", 4)
    monkeypatch.setattr(reported_events, "_FIRST_PAGE", 3)
    key = dg.AssetKey([JOB, "hourly"])
    rig.instance.report_runless_asset_event(dg.AssetObservation(key, metadata={LINEAGE: "a1", EPOCH: 1}))
    names = [f"s{number}" for number in range(6)]
    for place, name in enumerate(names):
        rig.take(name)
        os.utime(rig.file_of(name), (place, place))
    assert rig.tick() == 4 * len(OUTPUTS)
    assert "2 savepoints wait for the next tick" in rig.said
    assert rig.told() == names[:4], "oldest first"
    assert rig.tick(minutes=0) == 2 * len(OUTPUTS)
    assert rig.told() == names
    epochs = [EpochProgress(JOB, "a1", epoch, epoch, 100, 10, 1) for epoch in range(4)]
    assert [epoch.epoch for epoch in ReportedEvents(rig.instance).not_observed(key, epochs)] == [2, 3]


@pytest.mark.parametrize("dies_after", [0, 1, 3, 4, 6, 8])
def test_a_tick_that_dies_half_way_and_a_lost_cursor_lose_and_repeat_nothing(rig: Rig, dies_after: int) -> None:
    rig.take("a")
    rig.take("b")
    rig.tick(dies_after=dies_after)
    rig.take("c")
    for cursor in (rig.cursor, None, "nonsense", '{"format":1,"jobs":{},"savepoints":{"fares":7}}'):
        rig.cursor = cursor
        rig.tick()
    for output in OUTPUTS:
        assert Counter(rig.told(output)) == Counter(["a", "b", "c"]), output


def test_what_a_run_of_dagsters_took_is_observed_by_that_run_alone(rig: Rig) -> None:
    defs = savepoint_jobs(rig.job, launchers=lambda: rig.world.launchers, clock=rig.world.clock, judge=fits)
    config = {"ops": {f"savepoint_{JOB}": {"config": {"name": "by-run"}}}}
    assert defs.resolve_job_def(f"{JOB}_savepoint").execute_in_process(run_config=config, instance=rig.instance).success
    rig.world.clock.advance(SETTLES_MS)
    assert rig.tick() == 0
    assert rig.told() == ["by-run"]


def test_what_a_sensor_told_first_the_run_does_not_tell_again(rig: Rig) -> None:
    """A rewind observes the savepoint that it took when it has come to its end, which may be a while."""
    rig.take("good")
    rig.tick()
    rig.world.want(JOB, wanted="suspended")
    rig.world.run(rig.world.reconciler(), 20)

    def tell(*_: object) -> bool:
        rig.world.clock.advance(SETTLES_MS)
        assert rig.tick() == 2 * len(OUTPUTS), "the one that it took, and the one that keeps its end"
        return False

    defs = savepoint_jobs(rig.job, launchers=lambda: rig.world.launchers, clock=rig.world.clock, judge=fits)
    config = {"ops": {f"rewind_{JOB}": {"config": {"savepoint": "good", "dry_run": False}}}}
    with pytest.MonkeyPatch.context() as patched:
        # Between the savepoint and the end of the rewind.
        patched.setattr("tidemark.savepoints.rewind.rewinding.revert_table", tell)
        assert defs.resolve_job_def(f"{JOB}_rewind").execute_in_process(run_config=config, instance=rig.instance).success
    for output in OUTPUTS:
        found = Counter(rig.told(output))
        assert set(found.values()) == {1}, found
        assert len(found) >= 2


def test_a_damaged_savepoint_does_not_keep_the_others_from_being_told(rig: Rig) -> None:
    for name in ("a", "b", "c"):
        rig.take(name)
    rig.file_of("b").write_bytes(b"nonsense")
    rig.tick()
    assert sorted(map(str, rig.told())) == ["a", "c"]
    assert "1 jobs cannot be read (1 of them damaged): fares" in rig.said
    assert rig.tick() == 0


def test_the_cursor_keeps_savepoints_beside_the_jobs_and_reads_that_of_an_older_release() -> None:
    marks, savepoints = {"fares": JobMark("a1", 7, 3, {"hourly": 5})}, {"fares": {"good": SavepointMark(3, 4)}}
    text = encode_marks(marks, savepoints)
    assert (decode_marks(text), decode_savepoints(text)) == (marks, savepoints)
    older = '{"format":1,"jobs":{"fares":["a1",7,3,{"hourly":5}]}}'
    assert (decode_marks(older), decode_savepoints(older)) == (marks, {})
    assert new_savepoints({"a": 2, "b": 1, "good": 3}, savepoints["fares"]) == ["b", "a"]
    assert new_savepoints({"good": 4}, savepoints["fares"]) == ["good"]
