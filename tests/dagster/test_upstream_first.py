"""What is downstream of an output is run after Dagster knows of what it reads, whichever sensor ticks first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.fake_engine import HOUR, START, FakeEpoch, commit_status, make_job, window_rows
from tests.dagster.instances import instance_in_memory
from tidemark.assets import build_output_asset_specs
from tidemark.sensors import SensorOptions, build_partition_sensor, build_progress_sensor
from tidemark.sensors.partitions import upstream_report
from tidemark.testing.manual_clock import ManualClock

pytestmark = pytest.mark.dagster

MINUTE = 60_000
HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-03-04")
HOURLY = dg.AssetKey(["cabs", "hourly"])


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with instance_in_memory() as found:
        yield found


class Rig:
    """A job, the sensor that reports it, one that runs what is downstream, and an instance to which both tick as Dagster's daemon does.

    ``log`` has, in the order in which the daemon writes them, materializations of the output and requests of runs.
    """

    def __init__(self, folder: Path, instance: dg.DagsterInstance, target: dg.TimeWindowPartitionsDefinition) -> None:
        instance.event_log_storage.wipe()
        self.folder, self.instance, self.target, self.clock = folder, instance, target, ManualClock(START)
        self.job = make_job(folder, store=str(folder / "store"))
        self.specs = build_output_asset_specs(self.job, partitions=HOURS)
        self.log: list[tuple[str, str | None]] = []
        self.cursors: dict[str, str | None] = {}
        self.deploy()

    def deploy(self) -> None:
        """Start the code location again: all that sensors keep in memory is lost."""
        downstream = dg.AssetSpec("downstream", deps=[HOURLY], partitions_def=self.target)
        options = SensorOptions(target=dg.AssetSelection.assets("downstream"))
        self.sensors = {
            "progress": build_progress_sensor(self.specs, clock=self.clock),
            "partitions": build_partition_sensor(self.job, output="hourly", partitions_def=self.target, options=options),
        }
        self.repository = dg.Definitions(assets=[*self.specs, downstream]).get_repository_def()

    def commit(self, *epochs: FakeEpoch, lineage: str = "l1") -> None:
        commit_status(self.job, self.folder / "store", epochs, lineage=lineage)

    def tick(self, *names: str) -> list[tuple[str, str | None]]:
        """Let sensors tick one after the other; returns what is new in the log."""
        before = len(self.log)
        for name in names:
            context = dg.build_sensor_context(instance=self.instance, cursor=self.cursors.get(name), repository_def=self.repository)
            result = self.sensors[name](context)
            assert isinstance(result, dg.SensorResult)
            for event in result.asset_events or ():
                self.instance.report_runless_asset_event(event)
                if isinstance(event, dg.AssetMaterialization):
                    self.log.append(("made", event.partition))
            self.log += [("run", request.partition_key) for request in result.run_requests or ()]
            self.cursors[name] = result.cursor
        return self.log[before:]

    def versions(self) -> list[str]:
        """Return partition and data version of each materialization in the instance, oldest first."""
        records = self.instance.fetch_materializations(HOURLY, limit=1000, ascending=True).records
        found = [record.asset_materialization for record in records]
        return [f"{item.partition} {(item.tags or {})['dagster/data_version']}" for item in found if item is not None]

    def observations(self) -> int:
        return len(self.instance.fetch_observations(HOURLY, limit=1000).records)


def epoch(**given: object) -> FakeEpoch:
    return FakeEpoch(window_rows((1, 0, 0, 3)), **{"behind_ms": MINUTE, **given})  # type: ignore[arg-type]


def hour(number: int) -> str:
    return f"2024-03-04-{number:02}:00"


ORDERS = list(itertools.permutations(("progress", "partitions")))


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_correction_is_reported_before_what_is_downstream_runs_again(
    tmp_path: Path, instance: dg.DagsterInstance, order: tuple[str, str]
) -> None:
    rig = Rig(tmp_path, instance, HOURS)
    rig.commit(epoch(), epoch(), epoch())
    rig.tick(*order)
    # Each before it is run; a run and what is made after it may be in either order.
    assert sorted(rig.log) == sorted([("made", hour(0)), ("run", hour(0)), ("made", hour(1)), ("run", hour(1))])
    seen = rig.observations()
    for number in (0, 1, 0):
        rig.commit(epoch(refired=(START + number * HOUR,)))
        rig.clock.advance(20_000)
        new = rig.tick(*order)
        assert new.index(("made", hour(number))) < new.index(("run", hour(number))), new
        assert new.count(("made", hour(number))) == 1, "once, whichever sensor reported it"
        rig.deploy()
        assert rig.tick(*order) == [], "after a restart both go on from their cursors"
    assert rig.observations() == seen, "observations stay as seldom as they were"
    made = rig.versions()
    assert len(made) == len(set(made))
    assert {f"{hour(0)} l1:3", f"{hour(1)} l1:4", f"{hour(0)} l1:5"} <= set(made)


def test_a_correction_is_reported_within_a_tick_where_nothing_is_downstream(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    rig = Rig(tmp_path, instance, HOURS)
    rig.commit(epoch(), epoch())
    rig.tick("progress")
    rig.commit(epoch(refired=(START,)))
    assert rig.tick("progress") == [("made", hour(0)), ("made", hour(1))]
    assert rig.versions() == [f"{hour(0)} l1:1", f"{hour(0)} l1:2", f"{hour(1)} l1:2"]
    seen = rig.observations()
    rig.clock.advance(5 * MINUTE)
    assert rig.tick("progress") == []
    assert rig.observations() == seen + 1, "the observation follows when it is due"


@pytest.mark.parametrize("order", [*ORDERS, ("partitions",)], ids="-".join)
def test_the_hours_of_a_day_are_reported_before_the_day_is_run(
    tmp_path: Path, instance: dg.DagsterInstance, order: tuple[str, ...]
) -> None:
    rig = Rig(tmp_path, instance, DAYS)
    rig.commit(*(epoch() for _ in range(24)))
    rig.tick(*order)
    rig.commit(epoch())
    rig.tick(*order)
    run = rig.log.index(("run", "2024-03-04"))
    assert [made for made in rig.log[:run] if made[0] == "made"] == [("made", hour(number)) for number in range(24)]
    rig.commit(epoch(refired=(START + 3 * HOUR, START + 5 * HOUR)))
    new = rig.tick(*order)
    assert {("made", hour(3)), ("made", hour(5))} <= set(new[: new.index(("run", "2024-03-04"))])
    made = rig.versions()
    assert len(made) == len(set(made))


def test_a_backlog_of_days_waits_for_its_hours(tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_report, "PARTITIONS_AT_ONCE", 30)
    rig = Rig(tmp_path, instance, DAYS)
    rig.commit(*(epoch() for _ in range(73)))
    for _ in range(4):
        rig.tick("partitions")
    assert [name for kind, name in rig.log if kind == "run"] == ["2024-03-04", "2024-03-05", "2024-03-06"]
    for day, last in (("2024-03-04", "2024-03-04-23:00"), ("2024-03-05", "2024-03-05-23:00"), ("2024-03-06", "2024-03-06-23:00")):
        assert rig.log.index(("made", last)) < rig.log.index(("run", day))
    assert len(rig.versions()) == 72


def test_a_cursor_of_an_earlier_build_is_read_and_reports_nothing_that_is_known(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    rig = Rig(tmp_path, instance, DAYS)
    rig.commit(*(epoch() for _ in range(26)))
    rig.tick("progress", "partitions")
    rig.cursors["partitions"] = f'{{"counts": {{"through": {START + 24 * HOUR}}}, "epoch": 25, "format": 1, "lineage": "l1", "said": {{}}}}'
    known = rig.cursors["progress"]
    assert known is not None
    rig.cursors["progress"] = known.replace('"followed":{"cabs":["l1",25]},', "")
    assert rig.cursors["progress"] != known
    assert rig.tick("partitions", "progress") == []
    rig.commit(epoch(refired=(START + 2 * HOUR,)))
    new = rig.tick("partitions", "progress")
    assert new.index(("made", hour(2))) < new.index(("run", "2024-03-04"))
    assert new.count(("made", hour(2))) == 1


def test_a_rewind_reports_again_what_is_complete_in_the_new_lineage_before_it_is_run(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    rig = Rig(tmp_path, instance, HOURS)
    rig.commit(*(epoch() for _ in range(4)))
    rig.tick("partitions", "progress")
    rig.commit(epoch(), epoch(), lineage="l2")
    new = rig.tick("partitions", "progress")
    assert ("run", hour(0)) in new
    for kind, name in new:
        assert kind == "made" or new.index(("made", name)) < new.index(("run", name))
    assert rig.tick("progress", "partitions") == []


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_the_runs_that_are_asked_for_see_the_correction_in_dagsters_own_log(
    tmp_path: Path, instance: dg.DagsterInstance, order: tuple[str, str]
) -> None:
    """From a correction to the end of the run that it leads to, each run launched as soon as its sensor has ticked."""
    rig = Rig(tmp_path, instance, HOURS)
    seen: list[tuple[str, str]] = []

    @dg.asset(deps=[HOURLY], partitions_def=HOURS)
    def downstream(context) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - Dagster does not read postponed annotations
        made = context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=HOURLY, asset_partitions=[context.partition_key]), limit=1
        )
        seen.append((context.partition_key, made.records[0].asset_materialization.tags["dagster/data_version"]))

    def tick_and_run() -> None:
        for name in order:
            for kind, partition in rig.tick(name):
                if kind == "run":
                    assert dg.materialize([downstream], instance=instance, partition_key=partition).success

    rig.commit(epoch(), epoch(), epoch())
    tick_and_run()
    rig.commit(epoch(refired=(START,)))
    tick_and_run()
    # The first two hours were complete at epoch 2, the third at epoch 3, by which the first was corrected.
    assert sorted(seen) == [(hour(0), "l1:2"), (hour(0), "l1:3"), (hour(1), "l1:2"), (hour(2), "l1:3")]
    corrected = instance.fetch_materializations(dg.AssetRecordsFilter(asset_key=HOURLY, asset_partitions=[hour(0)]), limit=1).records[0]
    rerun = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dg.AssetKey("downstream"), asset_partitions=[hour(0)]), limit=1
    ).records[0]
    assert corrected.storage_id < rerun.storage_id
