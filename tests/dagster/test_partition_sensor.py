"""What is downstream runs once for each partition that is complete, and again for each cause that touched it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import HOUR, START, FakeEpoch, commit_status, make_job, status_after, window_rows
from tidemark.errors import DefinitionError
from tidemark.sensors import SensorOptions, build_partition_sensor
from tidemark.sensors.partitions import partition_runs
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import write_status
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster

MINUTE = 60_000
HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-03-04")
TARGET = SensorOptions(target=dg.AssetSelection.assets("downstream"))


class Rig:
    """A job that commits epochs, and a sensor that ticks."""

    def __init__(self, folder: Path, partitions_def: dg.TimeWindowPartitionsDefinition = HOURS, *, repair: bool = True) -> None:
        self.folder = folder
        self.job = make_job(folder, store=str(folder / "store"))
        self.sensor = build_partition_sensor(self.job, output="hourly", partitions_def=partitions_def, options=TARGET, repair=repair)
        self.cursor: str | None = None

    def commit(self, *epochs: FakeEpoch, lineage: str = "l1") -> None:
        commit_status(self.job, self.folder / "store", epochs, lineage=lineage)

    def tick(self) -> list[dg.RunRequest]:
        result = self.sensor(dg.build_sensor_context(cursor=self.cursor))
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        return list(result.run_requests or ())

    def keys(self) -> list[str | None]:
        return [request.partition_key for request in self.tick()]


def epoch(**given: object) -> FakeEpoch:
    return FakeEpoch(window_rows((1, 0, 0, 3)), **{"behind_ms": MINUTE, **given})  # type: ignore[arg-type]


def test_each_partition_runs_once_when_it_is_complete(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    told = []
    for _ in range(4):
        rig.commit(epoch())
        told.append(rig.keys())
        assert rig.keys() == []
    assert told == [[], ["2024-03-04-00:00"], ["2024-03-04-01:00"], ["2024-03-04-02:00"]]


def test_a_run_says_why(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(epoch(), epoch())
    (request,) = rig.tick()
    assert request.run_key == "cabs:hourly:2024-03-04-00:00:complete:l1"
    assert request.tags["tidemark/reason"] == "complete through the watermark"
    assert request.tags["tidemark/repair"] == "false"
    rig.commit(epoch(refired=(START,)))
    complete, repair = rig.tick()
    assert complete.partition_key == "2024-03-04-01:00"
    assert repair.run_key == "cabs:hourly:2024-03-04-00:00:corrected:l1:2"
    assert (repair.tags["tidemark/reason"], repair.tags["tidemark/repair"]) == ("corrected by late rows", "true")
    assert (repair.tags["tidemark/lineage"], repair.tags["tidemark/epoch"]) == ("l1", "2")
    rig.commit(epoch(late=1, late_windows=(START + HOUR,)))
    assert [request.tags["tidemark/reason"] for request in rig.tick()] == ["complete through the watermark", "rows came too late"]


def test_what_touched_a_partition_before_its_run_was_requested_asks_for_no_repair(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(epoch())
    rig.tick()
    rig.commit(epoch(), epoch(refired=(START, START + HOUR)), epoch(late_windows=(START + 30 * HOUR,)))
    assert rig.keys() == ["2024-03-04-00:00", "2024-03-04-01:00", "2024-03-04-02:00"]
    assert rig.keys() == []


def test_a_tick_that_is_lost_asks_for_the_same_runs_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(epoch(), epoch(), epoch())
    rig.tick()
    rig.commit(epoch(refired=(START,)), epoch(refired=(START, START + HOUR)))
    before = rig.cursor
    first = [request.run_key for request in rig.tick()]
    rig.cursor = before
    assert [request.run_key for request in rig.tick()] == first
    rig.cursor = None
    again = {request.run_key for request in rig.tick()}
    assert {key for key in first if key is not None and ":complete:" in key} <= again, "Dagster knows these keys, and starts nothing"


def test_repairs_can_be_left_out(tmp_path: Path) -> None:
    rig = Rig(tmp_path, repair=False)
    rig.commit(epoch(), epoch())
    rig.tick()
    rig.commit(epoch(refired=(START,), late_windows=(START,)))
    assert rig.keys() == ["2024-03-04-01:00"]


def test_a_day_downstream_of_hours(tmp_path: Path) -> None:
    rig = Rig(tmp_path, DAYS)
    rig.commit(*(epoch() for _ in range(24)))
    assert rig.keys() == []
    rig.commit(epoch())
    assert rig.keys() == ["2024-03-04"]
    rig.commit(epoch(refired=(START + 3 * HOUR, START + 5 * HOUR)), epoch(late_windows=(START + 7 * HOUR,)))
    assert [request.run_key for request in rig.tick()] == ["cabs:hourly:2024-03-04:late rows:l1:26"]


def test_a_backlog_is_requested_in_turns_and_none_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_runs, "MAX_RUNS", 3)
    monkeypatch.setattr(partition_runs, "EPOCHS_AT_ONCE", 5)
    rig = Rig(tmp_path)
    rig.commit(*(epoch() for _ in range(8)))
    told = [rig.keys() for _ in range(4)]
    assert [len(found) for found in told] == [3, 3, 1, 0]
    rig.commit(*(epoch(refired=(START + hour * HOUR,)) for hour in range(7)))
    repaired: list[str | None] = []
    for _ in range(8):
        repaired += [request.partition_key for request in rig.tick() if request.tags["tidemark/repair"] == "true"]
    assert repaired == [f"2024-03-04-{hour:02}:00" for hour in range(7)]


def test_a_rewind_asks_again_for_what_it_takes_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(*(epoch() for _ in range(6)))
    assert len(rig.tick()) == 5
    # The other lineage goes on after epoch 2.
    root = JobStore.open(str(tmp_path / "store"))
    for number in (3, 4):
        progress = replace(epoch().progress(number, "l2"), job="cabs")
        HistoryWriter(root, "cabs").append(progress)
        write_status(root, status_after(rig.job, progress, None))
    assert [request.run_key for request in rig.tick()] == [
        "cabs:hourly:2024-03-04-02:00:complete:l2",
        "cabs:hourly:2024-03-04-03:00:complete:l2",
    ]


def test_what_the_sensor_cannot_be_is_refused(tmp_path: Path) -> None:
    job = make_job(tmp_path, store=str(tmp_path))
    with pytest.raises(DefinitionError, match=r"no output 'fares'.*hourly, late"):
        build_partition_sensor(job, output="fares", partitions_def=HOURS, options=TARGET)
    with pytest.raises(DefinitionError, match="no target"):
        build_partition_sensor(job, output="hourly", partitions_def=HOURS, options=SensorOptions())
    with pytest.raises(DefinitionError, match="no job store"):
        build_partition_sensor(make_job(tmp_path), output="hourly", partitions_def=HOURS, options=TARGET)


def test_an_output_may_have_any_name(tmp_path: Path) -> None:
    job = tm.Job("cabs", outputs={"hourly-v1.1": make_job(tmp_path).outputs["hourly"]}, store=str(tmp_path))
    sensor = build_partition_sensor(job, output="hourly-v1.1", partitions_def=HOURS, options=TARGET)
    assert sensor.name == "cabs_hourly_v1_1_partitions"
