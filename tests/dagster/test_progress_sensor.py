"""What is reported of jobs that run on: nothing is lost or told twice, however ticks fail and lineages change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.fake_engine import HOUR, START, FakeEpoch, commit_status, make_job, window_rows
from tests.dagster.instances import instance_in_memory
from tidemark.assets import build_output_asset_specs
from tidemark.assets.report.output_metadata import CHART_KEY
from tidemark.assets.report.summary import SUMMARY_KEY
from tidemark.errors import DefinitionError, StoreError
from tidemark.sensors import SensorOptions, build_progress_sensor
from tidemark.sensors.reports import progress as progress_module
from tidemark.sensors.reports import progress_report
from tidemark.sensors.reports.progress_cursor import JobMark, decode_marks, encode_marks
from tidemark.sensors.reports.progress_report import CHART_MS
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import write_status
from tidemark.state.store.layout import history_path
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

pytestmark = pytest.mark.dagster

MINUTE = 60_000
HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
HOURLY, LATE = dg.AssetKey(["cabs", "hourly"]), dg.AssetKey(["cabs", "late"])


@pytest.fixture(scope="module")
def shared_instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as instance:
        yield instance


@pytest.fixture
def instance(shared_instance: dg.DagsterInstance) -> dg.DagsterInstance:
    shared_instance.wipe_assets(list(shared_instance.get_asset_keys()))
    return shared_instance


class Rig:
    """A job, a sensor on it, a clock, and an instance to which ticks report as Dagster's daemon does."""

    def __init__(
        self,
        folder: Path,
        instance: dg.DagsterInstance,
        *,
        partitions: dg.TimeWindowPartitionsDefinition | None = HOURS,
        store: str | None = None,
    ) -> None:
        self.folder, self.instance, self.clock = folder, instance, ManualClock(START)
        self.store = store or str(folder / "store")
        self.job = make_job(folder, store=self.store)
        self.specs = build_output_asset_specs(self.job, partitions=partitions)
        self.sensor = build_progress_sensor(self.specs, clock=self.clock)
        self.cursor: str | None = None

    def commit(self, *epochs: FakeEpoch, lineage: str = "l1") -> None:
        commit_status(self.job, self.store, epochs, lineage=lineage)

    def evaluate(self) -> dg.SensorResult:
        result = self.sensor(dg.build_sensor_context(instance=self.instance, cursor=self.cursor))
        assert isinstance(result, dg.SensorResult)
        return result

    def tick(self, *, minutes: int = 0, dies_after: int | None = None) -> dg.SensorResult:
        """Let time pass and tick; the daemon may die when it has reported so many events."""
        self.clock.advance(minutes * MINUTE)
        result = self.evaluate()
        for event in list(result.asset_events or ())[:dies_after]:
            self.instance.report_runless_asset_event(event)
        if dies_after is None:
            self.cursor = result.cursor
        return result

    def observations(self, key: dg.AssetKey = HOURLY) -> list[dg.AssetObservation]:
        found = [record.asset_observation for record in self.instance.fetch_observations(key, limit=1000, ascending=True).records]
        return [item for item in found if item is not None]

    def numbers(self, name: str, key: dg.AssetKey = HOURLY) -> list[object]:
        return [item.metadata[f"tidemark/{name}"].value for item in self.observations(key)]

    def partitions(self, key: dg.AssetKey = HOURLY) -> list[tuple[str | None, str]]:
        found = [record.asset_materialization for record in self.instance.fetch_materializations(key, limit=1000, ascending=True).records]
        return [(item.partition, f"{(item.tags or {})['dagster/data_version']}") for item in found if item is not None]


@pytest.fixture
def rig(tmp_path: Path, instance: dg.DagsterInstance) -> Rig:
    return Rig(tmp_path, instance)


def epoch(*windows: tuple[int, int, int, int], **given: object) -> FakeEpoch:
    # The watermark of the n-th epoch is that of n hours after the start, less a minute more than a window's last moment.
    return FakeEpoch(window_rows(*windows), **{"behind_ms": MINUTE, **given})  # type: ignore[arg-type]


def test_a_job_that_never_ran_is_not_reported(rig: Rig) -> None:
    result = rig.tick()
    assert not result.asset_events
    assert "0 of 1 jobs observed" in str(result.skip_reason)


def test_the_asset_of_late_rows_links_the_partitions_that_they_belong_to(rig: Rig) -> None:
    rig.commit(
        epoch(late=1, late_windows=(START,), shortfalls=(30_000,)), epoch(late=1, late_windows=(START + HOUR,), shortfalls=(90_000,))
    )
    rig.tick()
    (found,) = rig.observations(LATE)
    shown = {key.removeprefix("tidemark/"): value.value for key, value in found.metadata.items()}
    assert shown["late_advice"] == "an allowed lateness of 10m 30s would have kept 50% of 2 late rows, one of 12m all"
    page = "/assets/cabs/hourly?view=partitions&partition=2024-03-04-0{}%3A00"
    links = [f"[2024-03-04-0{hour}:00]({page.format(hour)})" for hour in (1, 0)]
    assert shown["late_partitions"] == f"- hourly: {', '.join(links)}"
    assert all(link in str(shown["late_windows"]) for link in links)
    assert shown["results_hourly"] == HOURLY
    assert "tidemark/late_advice" not in rig.observations(HOURLY)[0].metadata


def test_epochs_are_rolled_up_at_most_every_five_minutes(rig: Rig) -> None:
    rig.commit(epoch((1, 0, 0, 3), late=2, rejected=1), epoch((1, 1, 0, 3), malformed=4))
    rig.tick()
    rig.commit(epoch(late=1))
    rig.tick(minutes=2)
    rig.commit(epoch(rejected=5, malformed=6))
    rig.tick(minutes=2)
    rig.tick(minutes=1)
    rig.tick(minutes=20)
    assert rig.numbers("epochs") == [2, 2]
    assert rig.numbers("epoch") == [1, 3]
    assert rig.numbers("late_rows") == [2, 1]
    assert rig.numbers("rejected_rows") == [1, 5]
    assert rig.numbers("malformed_rows") == [4, 6]
    assert rig.numbers("rows_added") == [2, 0]
    assert rig.numbers("rows_read") == [13 + 14, 11 + 21]
    assert rig.numbers("watermark_lag_seconds") == [60.0, 60.0]
    assert rig.numbers("state_rows") == [7, 7]
    assert [item.metadata["dagster/row_count"].value for item in rig.observations()] == [2, 2]
    assert len(rig.observations(LATE)) == 2


def test_the_changes_of_a_changelog_are_counted_by_operation(rig: Rig) -> None:
    rig.commit(epoch((1, 0, 0, 3), changes={"insert": 4, "update": 0, "delete": 0}))
    rig.tick()
    rig.commit(epoch((1, 0, 0, 3), changes={"insert": 0, "update": 2, "delete": 1}))
    rig.tick(minutes=6)
    # An observation of several epochs has the changes of all.
    rig.commit(epoch(changes={"insert": 1, "update": 1, "delete": 3}), epoch(changes={"insert": 5, "update": 0, "delete": 4}))
    rig.tick(minutes=6)
    assert [rig.numbers(name) for name in ("inserts", "updates", "deletes")] == [[4, 0, 6], [0, 2, 1], [0, 1, 7]]
    assert "6 inserts, 1 updates, 7 deletes" in str(rig.observations()[-1].metadata[SUMMARY_KEY].value)
    assert not {f"tidemark/{name}" for name in ("inserts", "updates", "deletes")} & set(rig.observations(LATE)[0].metadata)


def test_the_keys_are_those_of_materializations_and_the_picture_comes_once_an_hour(rig: Rig) -> None:
    rig.commit(epoch((1, 0, 0, 3)))
    rig.tick()
    (found,) = rig.observations()
    wanted = "rows_added bytes_added epochs lineage watermark state_bytes rows_per_second panes_on_time late_ratio epoch_seconds"
    assert {f"tidemark/{name}" for name in wanted.split()} <= set(found.metadata)
    assert list(found.metadata)[:2] == [CHART_KEY, "tidemark/summary"]
    begun = rig.clock.now_ms() // CHART_MS
    for _ in range(9):
        rig.commit(epoch((1, 1, 0, 3)))
        rig.tick(minutes=10)
    charts = [item.metadata for item in rig.observations() if CHART_KEY in item.metadata]
    assert len(rig.observations()) == 10
    assert len(charts) == 1 + rig.clock.now_ms() // CHART_MS - begun
    assert "epochs 0 to 0" in str(charts[0][CHART_KEY].value)
    assert all("tidemark/summary" in item.metadata for item in rig.observations())


def test_a_tick_that_fails_or_dies_half_way_loses_and_repeats_nothing(rig: Rig) -> None:
    rig.commit(epoch((1, 0, 0, 3)))
    rig.tick()
    counts = [1]
    for round_, dies_after in enumerate((0, 1, 2, 3, 4), start=1):
        rig.commit(epoch((1, round_, 0, 3), accepted=10 + round_))
        rig.tick(minutes=5, dies_after=dies_after)
        # More has come by the next tick, for those outputs that were told as for those that were not.
        rig.commit(epoch(accepted=100 + round_))
        counts += [2]
        rig.tick()
    for key in rig.specs:
        assert sum(map(int, map(str, rig.numbers("epochs", key.key)))) == sum(counts)
        assert sum(map(int, map(str, rig.numbers("rows_read", key.key)))) == 10 + sum(10 + n + 100 + n for n in range(1, 6))
    told = [key for key, _ in rig.partitions()]
    assert len(told) == len(set(told))
    assert told == sorted(str(key) for key in told)


def test_a_lost_cursor_tells_nothing_twice(rig: Rig) -> None:
    rig.commit(*(epoch((1, hour, 0, 3)) for hour in range(4)))
    rig.tick()
    seen, partitions = rig.numbers("epochs"), rig.partitions()
    for lost in (None, "nonsense", '{"format": 7}'):
        rig.cursor = lost
        result = rig.tick(minutes=5)
        assert not result.asset_events
    assert (rig.numbers("epochs"), rig.partitions()) == (seen, partitions)


def test_partitions_are_materialized_when_complete_with_lineage_and_epoch(rig: Rig) -> None:
    for hour in range(3):
        rig.commit(epoch((1, hour, 0, 3)))
        rig.tick(minutes=1)
    # The watermark is a minute short of the end of the hour of the newest event.
    assert rig.partitions() == [("2024-03-04-00:00", "l1:1"), ("2024-03-04-01:00", "l1:2")]
    assert rig.partitions(LATE) == []


def test_a_corrected_partition_is_materialized_again_and_lost_rows_are_not(rig: Rig) -> None:
    rig.commit(*(epoch((1, hour, 0, 3)) for hour in range(5)))
    rig.tick()
    told = rig.partitions()
    rig.commit(epoch(refired=(START + HOUR,), late_windows=(START + 2 * HOUR,)), epoch(refired=(START + HOUR, START + 40 * HOUR)))
    rig.tick(minutes=5)
    assert rig.partitions()[len(told) :] == [("2024-03-04-01:00", "l1:6"), ("2024-03-04-04:00", "l1:6"), ("2024-03-04-05:00", "l1:6")]


def test_corrections_that_were_part_of_the_first_report_are_not_told_again(rig: Rig) -> None:
    rig.commit(epoch((1, 0, 0, 3)))
    rig.tick()
    rig.commit(epoch((1, 1, 0, 3)), epoch((1, 2, 0, 3), refired=(START,)))
    # Complete by the head, whose correction the table has by then; the history is read later.
    rig.tick(minutes=1)
    assert rig.partitions() == [("2024-03-04-00:00", "l1:2"), ("2024-03-04-01:00", "l1:2")]
    rig.tick(minutes=5)
    assert len(rig.partitions()) == 2


def test_a_rewind_reports_what_is_complete_again(rig: Rig) -> None:
    rig.commit(*(epoch((1, hour, 0, 3)) for hour in range(6)))
    rig.tick()
    assert [key for key, _ in rig.partitions()] == [f"2024-03-04-{hour:02}:00" for hour in range(5)]
    # Another lineage goes on after epoch 2, whose watermark had passed the first two hours.
    known = commit_status(rig.job, rig.folder / "store", [epoch((1, 3, 0, 3))], lineage="l2")
    assert known.last is not None
    rewound = [replace(epoch((1, hour, 0, 3)).progress(hour, "l2"), job="cabs") for hour in (3, 4)]
    path = rig.folder / "store" / "cabs" / history_path(0)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    root = JobStore.open(str(rig.folder / "store"))
    for progress in rewound:
        HistoryWriter(root, "cabs").append(progress)
    write_status(root, replace(known, last=rewound[-1]))
    rig.tick()
    assert rig.partitions()[5:] == [("2024-03-04-02:00", "l2:4"), ("2024-03-04-03:00", "l2:4")]
    assert rig.numbers("epochs") == [6, 2]


def test_a_backlog_is_reported_in_turns(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_report, "PARTITIONS_AT_ONCE", 3)
    monkeypatch.setattr(progress_report, "EPOCHS_AT_ONCE", 4)
    rig.commit(epoch())
    rig.tick()
    rig.commit(*(epoch((1, hour, 0, 3)) for hour in range(9)))
    told = []
    for _ in range(5):
        rig.tick(minutes=5)
        told.append((len(rig.observations()), len(rig.partitions())))
    assert told == [(2, 3), (3, 6), (4, 9), (4, 9), (4, 9)]
    assert rig.numbers("epochs") == [1, 4, 4, 1]


def test_jobs_that_were_not_reached_come_first_the_next_time(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(ManualClock):
        def monotonic(self) -> float:
            self.advance(1000)
            return super().monotonic()

    # Each look at the clock takes a second: one at the beginning, one before the first job, one before each.
    monkeypatch.setattr(progress_module, "TICK_SECONDS", 3.5)
    jobs = [make_job(tmp_path / name, name, store=str(tmp_path / "store")) for name in ("a", "b", "c", "d", "e")]
    for job in jobs:
        commit_status(job, tmp_path / "store", [epoch()])
    sensor = build_progress_sensor([spec for job in jobs for spec in build_output_asset_specs(job)], clock=Busy(START))
    cursor, seen = None, []
    for _ in range(3):
        result = sensor(dg.build_sensor_context(instance=instance, cursor=cursor))
        assert isinstance(result, dg.SensorResult)
        cursor = result.cursor
        seen.append(sorted({event.asset_key.path[0] for event in result.asset_events or ()}))
    assert seen == [["a", "b"], ["c", "d"], ["e"]]


def test_a_store_that_cannot_be_opened_does_not_keep_other_jobs_from_being_reported(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    rig = Rig(tmp_path, instance)
    rig.commit(epoch())
    (tmp_path / "file").write_text("no folder")
    other = make_job(tmp_path / "other", "rides", store=str(tmp_path / "file" / "store"))
    rig.sensor = build_progress_sensor([*build_output_asset_specs(other), *rig.specs], clock=rig.clock)
    said = rig.tick().skip_reason
    assert said is not None
    assert "1 of 2 jobs observed" in str(said.skip_message)
    assert "1 jobs cannot be read (0 of them damaged): rides" in str(said.skip_message)
    assert len(rig.observations()) == 1
    rig.sensor = build_progress_sensor(build_output_asset_specs(other), clock=rig.clock)
    with pytest.raises(StoreError, match="file/store"):
        rig.tick()


def test_a_store_that_cannot_be_opened_is_tried_once_in_a_tick(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try may take as long as a connection that nothing answers."""
    rig = Rig(tmp_path, instance)
    rig.commit(epoch())
    (tmp_path / "file").write_text("no folder")
    away, tried, opens = str(tmp_path / "file" / "store"), list[str](), JobStore.open

    def counted(uri: str) -> JobStore:
        tried.append(uri)
        return opens(uri)

    monkeypatch.setattr(JobStore, "open", counted)
    others = [make_job(tmp_path / name, name, store=away) for name in ("rides", "bikes", "buses")]
    rig.sensor = build_progress_sensor([*(spec for job in others for spec in build_output_asset_specs(job)), *rig.specs], clock=rig.clock)
    for ticks in (1, 2):
        assert "3 jobs cannot be read (0 of them damaged): bikes, buses, rides" in str(rig.tick().skip_reason)
        assert tried.count(away) == ticks


def test_one_damaged_job_does_not_keep_the_others_from_being_reported(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    jobs = [make_job(tmp_path / name, name, store=str(tmp_path / "store")) for name in ("good", "bad", "worse")]
    for job in jobs:
        commit_status(job, tmp_path / "store", [epoch()])
    (tmp_path / "store" / "bad" / "status.json").write_text("{")
    (tmp_path / "store" / "worse" / history_path(0)).write_text("{")
    sensor = build_progress_sensor([spec for job in jobs for spec in build_output_asset_specs(job)])
    result = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SensorResult)
    assert {event.asset_key.path[0] for event in result.asset_events or ()} == {"good"}
    assert "2 jobs cannot be read (2 of them damaged): bad, worse" in str(result.skip_reason)
    assert set(decode_marks(result.cursor)) == {"good"}


def test_a_store_that_cannot_be_reached_fails_the_tick(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise StoreError("no route", fix="wait")

    monkeypatch.setattr(progress_module, "read_status", unreachable)
    with pytest.raises(StoreError, match="no route"):
        rig.tick()


def test_marks_come_back_as_they_were() -> None:
    marks = {"cabs": JobMark("l1", 7, 1_000, {"hourly": START}, ("l1", 9)), "fares": JobMark("x", 0, 0)}
    assert decode_marks(encode_marks(marks)) == marks
    assert decode_marks('{"format":1,"jobs":{"cabs":3}}') == {}


def test_what_the_sensor_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no job store"):
        build_progress_sensor(build_output_asset_specs(make_job(tmp_path)))
    with pytest.raises(DefinitionError, match="have no streaming job"):
        build_progress_sensor([dg.AssetSpec("other")])
    sensor = build_progress_sensor(
        build_output_asset_specs(make_job(tmp_path)), options=SensorOptions(store=str(tmp_path), every="10 seconds")
    )
    assert sensor.minimum_interval_seconds == 10
