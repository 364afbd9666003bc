"""Which partitions are complete through the watermark, and which are touched again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import HOUR, START, FakeEpoch, make_job, window_rows
from tidemark.assets import build_output_asset_specs
from tidemark.assets.report.complete_partitions import (
    PartitionChange,
    PartitionMark,
    complete_partitions,
    partition_at,
    settled_before,
    touched_partitions,
)
from tidemark.assets.streams.job_streams import StreamData, output_streams
from tidemark.errors import DefinitionError
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.state.log.progress import EpochProgress

pytestmark = pytest.mark.dagster

MINUTE = 60_000
HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
DAYS = dg.DailyPartitionsDefinition("2024-03-04")


def stream(tmp_path: Path, windows: WindowAssigner | None = None, output: str = "hourly") -> StreamData:
    return next(found for found in output_streams(make_job(tmp_path, windows=windows)) if found.name == output)


def at(
    watermark: int,
    number: int = 0,
    *,
    lineage: str = "l1",
    late: tuple[int, ...] = (),
    refired: tuple[int, ...] = (),
    oldest: int | None = None,
) -> EpochProgress:
    """Return an epoch after which the watermark is there, in hours after the start unless it is one of the ends of time."""
    progress = FakeEpoch(window_rows(), late_windows=late, refired=refired).progress(number, lineage)
    source = replace(progress.sources["trips"], watermark=watermark)
    operator = replace(progress.operators["hourly"], watermark=watermark, oldest_open_window=oldest)
    return replace(progress, sources={"trips": source}, operators={"hourly": operator})


def keys(changes: tuple[PartitionChange, ...]) -> list[str]:
    return [change.partition for change in changes]


def none_found(_epoch: EpochProgress, _number: int) -> None:
    return None


@pytest.mark.parametrize(
    ("windows", "watermark", "settled"),
    [
        (None, START - 1, START),
        (None, START, START),
        (None, START + HOUR - 2, START),
        (None, START + HOUR - 1, START + HOUR),
        (tm.tumbling("1 day"), START + 5 * HOUR, START),
        (tm.tumbling("1 day"), START + 24 * HOUR - 1, START + 24 * HOUR),
        # The windows that begin at 22:15, 22:30 and 22:45 have not ended at 23:00.
        (tm.sliding("1 hour", "15 minutes"), START + 23 * HOUR - 1, START + 22 * HOUR + 15 * MINUTE),
        (tm.sliding("1 hour", "1 hour"), START + 23 * HOUR - 1, START + 23 * HOUR),
        (tm.cumulative("1 day", "1 hour"), START + 23 * HOUR - 1, START),
    ],
)
def test_what_is_settled_depends_on_the_windows_that_have_not_ended(
    tmp_path: Path, windows: WindowAssigner | None, watermark: int, settled: int
) -> None:
    assert settled_before(stream(tmp_path, windows), at(watermark)) == settled


def test_the_oldest_open_session_holds_partitions_back(tmp_path: Path) -> None:
    sessions = stream(tmp_path, tm.session("30 minutes"))
    assert settled_before(sessions, at(START + 3 * HOUR - 1, oldest=START + HOUR + 1)) == START + HOUR + 1
    assert settled_before(sessions, at(START + 3 * HOUR - 1)) == START + 3 * HOUR
    assert settled_before(sessions, at(START + 3 * HOUR - 1, oldest=START + 5 * HOUR)) == START + 3 * HOUR


def test_rows_without_windows_are_settled_by_their_sources(tmp_path: Path) -> None:
    assert settled_before(stream(tmp_path, output="rejected"), at(START + 7)) == START + 8


def test_partitions_are_complete_once_and_in_order(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0)
    told = []
    for watermark in (START - HOUR, START + HOUR - 2, START + HOUR - 1, START + HOUR, START + 4 * HOUR + 5, START + 4 * HOUR + 6):
        changes, mark = complete_partitions(hourly, HOURS, mark, at(watermark), limit=10)
        told.append(keys(changes))
    assert told == [[], [], ["2024-03-04-00:00"], [], ["2024-03-04-01:00", "2024-03-04-02:00", "2024-03-04-03:00"], []]
    assert mark.through == START + 4 * HOUR


def test_a_backlog_goes_on_behind_what_was_told(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0)
    told = []
    for _ in range(4):
        changes, mark = complete_partitions(hourly, HOURS, mark, at(START + 5 * HOUR - 1), limit=2)
        told.append(keys(changes))
    assert [len(found) for found in told] == [2, 2, 1, 0]
    assert [key for found in told for key in found] == [f"2024-03-04-{hour:02}:00" for hour in range(5)]


def test_a_day_is_complete_when_its_last_hour_is(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0)
    assert complete_partitions(hourly, DAYS, mark, at(START + 24 * HOUR - 2), limit=9)[0] == ()
    changes, _ = complete_partitions(hourly, DAYS, mark, at(START + 24 * HOUR - 1), limit=9)
    assert keys(changes) == ["2024-03-04"]


def test_days_of_other_zones_have_23_or_25_hours(tmp_path: Path) -> None:
    berlin = dg.DailyPartitionsDefinition("2024-03-30", timezone="Europe/Berlin")
    midnight = START + 26 * 24 * HOUR - HOUR  # 30 March, 00:00 in Berlin
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0)
    before, mark = complete_partitions(hourly, berlin, mark, at(midnight + 24 * HOUR - 1), limit=9)
    short, mark = complete_partitions(hourly, berlin, mark, at(midnight + 47 * HOUR - 1), limit=9)
    assert (keys(before), keys(short)) == (["2024-03-30"], ["2024-03-31"])


def test_nothing_is_complete_before_the_first_watermark_and_all_there_was_at_the_end_of_input(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0)
    assert complete_partitions(hourly, HOURS, mark, at(MIN_WATERMARK), limit=9) == ((), mark)
    # The newest event of the third epoch is at 03:00.
    changes, after = complete_partitions(hourly, HOURS, mark, at(MAX_WATERMARK, 2), limit=9)
    assert keys(changes) == [f"2024-03-04-{hour:02}:00" for hour in range(4)]
    assert complete_partitions(hourly, HOURS, after, at(MAX_WATERMARK, 2), limit=9) == ((), after)


def test_partitions_before_the_start_and_after_the_end_are_none(tmp_path: Path) -> None:
    few = dg.HourlyPartitionsDefinition("2024-03-04-02:00", end_date="2024-03-04-04:00")
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0)
    changes, mark = complete_partitions(hourly, few, mark, at(START + 9 * HOUR), limit=9)
    assert keys(changes) == ["2024-03-04-02:00", "2024-03-04-03:00"]
    epoch = at(START + 9 * HOUR, 1, refired=(START, START + 3 * HOUR, START + 5 * HOUR))
    touched, _ = touched_partitions(hourly, few, mark, [epoch], find=none_found, limit=9)
    assert keys(touched) == ["2024-03-04-03:00"]
    assert partition_at(few, START) is None


@pytest.mark.parametrize(
    "partitions",
    [HOURS, dg.WeeklyPartitionsDefinition("2024-03-03"), dg.DailyPartitionsDefinition("2024-03-04", timezone="America/New_York")],
)
@pytest.mark.parametrize("start", [-62_135_596_800_000, -62_135_596_800_000 - 8 * HOUR])
def test_windows_of_the_first_year_are_in_no_partition(tmp_path: Path, partitions: dg.TimeWindowPartitionsDefinition, start: int) -> None:
    """A row that has no date often has that of the first day of the year 1."""
    mark = PartitionMark("l1", 0, through=START)
    epochs = [at(START, 1, late=(start,))]
    touched, after = touched_partitions(stream(tmp_path), partitions, mark, epochs, find=none_found, limit=9)
    assert (touched, after.epoch) == ((), 1)


def test_a_time_that_is_excluded_is_in_no_partition() -> None:
    weekdays = dg.TimeWindowPartitionsDefinition(
        start="2024-03-01", fmt="%Y-%m-%d", cron_schedule="0 0 * * *", exclusions=["0 0 * * 6", "0 0 * * 0"]
    )
    friday, saturday = partition_at(weekdays, START - 3 * 24 * HOUR), partition_at(weekdays, START - 47 * HOUR)
    assert (friday, saturday, partition_at(weekdays, START)) == ("2024-03-01", None, "2024-03-04")


def test_only_what_was_told_can_be_touched_and_the_last_cause_counts(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0, through=START + 2 * HOUR)
    epochs = [
        at(START + 2 * HOUR, 1, late=(START,), refired=(START + HOUR, START + 2 * HOUR)),
        at(START + 2 * HOUR, 2, late=(START, START + HOUR), refired=(START,)),
    ]
    touched, after = touched_partitions(hourly, HOURS, mark, epochs, find=none_found, limit=9)
    assert sorted(touched, key=lambda change: change.partition) == [
        PartitionChange("2024-03-04-00:00", "corrected", "l1", 2),
        PartitionChange("2024-03-04-01:00", "late rows", "l1", 2),
    ]
    assert after == PartitionMark("l1", 2, START + 2 * HOUR)


def test_many_touched_partitions_are_told_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 0, through=START + 50 * HOUR)
    epochs = [at(START, number, refired=tuple(START + (3 * number + n) * HOUR for n in range(3))) for number in range(1, 6)]
    told, rest = [], list(epochs)
    while rest:
        touched, mark = touched_partitions(hourly, HOURS, mark, rest, find=none_found, limit=4)
        told.append(len(touched))
        rest = [epoch for epoch in rest if epoch.epoch > mark.epoch]
    assert told == [6, 6, 3]


def test_a_rewind_takes_back_what_was_complete_since(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 40, through=START + 9 * HOUR)
    asked = []

    def find(epoch: EpochProgress, number: int) -> EpochProgress:
        asked.append((epoch.lineage, number))
        return at(START + 3 * HOUR + 30 * MINUTE, number)

    # The corrections are of what was before the fork, and of what will be complete again.
    epochs = [at(START + 4 * HOUR, 31, lineage="l2", refired=(START + 2 * HOUR, START + 5 * HOUR))]
    touched, mark = touched_partitions(hourly, HOURS, mark, epochs, find=find, limit=9)
    assert asked == [("l2", 30)]
    assert [(change.partition, change.lineage) for change in touched] == [("2024-03-04-02:00", "l2")]
    assert mark == PartitionMark("l2", 31, START + 3 * HOUR)
    again, mark = complete_partitions(hourly, HOURS, mark, epochs[-1], limit=9)
    assert [(change.partition, change.lineage) for change in again] == [("2024-03-04-03:00", "l2")]


def test_the_last_cause_is_that_of_the_lineage_that_goes_on(tmp_path: Path) -> None:
    """A job that was put back counts its epochs from there again."""
    mark = PartitionMark("l1", 49, through=START + 24 * HOUR)
    epochs = [
        at(START + 30 * HOUR, 50, late=(START,)),
        at(START + 30 * HOUR, 12, lineage="l2", refired=(START + HOUR,)),
        at(START + 30 * HOUR, 13, lineage="l2", late=(START + 2 * HOUR,), refired=(START + 3 * HOUR,)),
    ]
    for told, expected in ((epochs, ("corrected", "l2", 13)), (epochs[:2], ("corrected", "l2", 12)), (epochs[:1], ("late rows", "l1", 50))):
        touched, _ = touched_partitions(stream(tmp_path), DAYS, mark, told, find=lambda *_: epochs[0], limit=9)
        assert [(change.cause, change.lineage, change.epoch) for change in touched] == [expected]


def test_a_lineage_takes_back_what_its_own_beginning_does_not_have(tmp_path: Path) -> None:
    """After two rewinds the epoch before a lineage's first one, by number, may be one of the branch that was given up."""
    mark, begun = PartitionMark("l2", 9, START + 9 * HOUR), at(START + 3 * HOUR, 7, lineage="l3")
    given_up = at(START + 8 * HOUR, 6, lineage="l2")
    _, mark = touched_partitions(stream(tmp_path), HOURS, mark, [begun], find=lambda *_: given_up, limit=9)
    assert mark == PartitionMark("l3", 7, START + 3 * HOUR)


def test_a_lineage_that_begins_anew_or_nobody_knows_where_tells_all_again(tmp_path: Path) -> None:
    hourly, mark = stream(tmp_path), PartitionMark("l1", 40, through=START + 9 * HOUR)
    touched, mark = touched_partitions(hourly, HOURS, mark, [at(START, 0, lineage="l2", refired=(START,))], find=none_found, limit=9)
    assert (touched, mark) == ((), PartitionMark("l2", 0, None))


def test_a_fork_ahead_of_what_was_told_takes_nothing_back(tmp_path: Path) -> None:
    mark = PartitionMark("l1", 40, through=START + 2 * HOUR)
    _, mark = touched_partitions(
        stream(tmp_path), HOURS, mark, [at(START + 9 * HOUR, 41, lineage="l2")], find=lambda *_: at(START + 8 * HOUR, 40), limit=9
    )
    assert mark.through == START + 2 * HOUR


def test_specs_have_the_keys_of_streaming_assets_and_partitions_where_they_are_wanted(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    specs = build_output_asset_specs(job, partitions=HOURS, group_name="live")
    assert [spec.key.path for spec in specs] == [["cabs", name] for name in job.outputs]
    assert [spec.partitions_def for spec in specs] == [HOURS, None, None, None]
    assert {spec.group_name for spec in specs} == {"live"}
    named = build_output_asset_specs(job, partitions={"late": DAYS})
    assert [spec.partitions_def for spec in named] == [None, DAYS, None, None]
    with pytest.raises(DefinitionError, match=r"'fares', which the job does not have.*hourly, late"):
        build_output_asset_specs(job, partitions={"fares": DAYS})


def test_windows_without_bounds_have_no_partitions(tmp_path: Path) -> None:
    trips = tm.source(
        "trips",
        tm.files(str(tmp_path / "landing"), format="json", schema="zone INT, at TIMESTAMP"),
        watermarks=tm.ascending(timestamp="at"),
    )
    tens = trips.key_by("zone").window(tm.count_window(10)).aggregate(trips=tm.count()).uid("tens")
    job = tm.Job("tens", outputs={"tens": tm.delta(tens, str(tmp_path / "tens"))})
    assert [spec.partitions_def for spec in build_output_asset_specs(job, partitions=HOURS)] == [None]
    with pytest.raises(DefinitionError, match=r"'tens'.*have no time bounds"):
        build_output_asset_specs(job, partitions={"tens": HOURS})
