"""The asset of late rows says what would have kept them, and links the windows and partitions that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import HOUR, START, make_job
from tidemark.assets.report.late_rows import late_row_metadata
from tidemark.assets.report.run_report import RunReport
from tidemark.assets.streams.job_streams import output_streams
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.state.log.progress import EpochProgress, LateWindow, OperatorProgress

pytestmark = pytest.mark.dagster

HOURS = dg.HourlyPartitionsDefinition("2024-03-04-00:00")
KEYS = {"hourly": dg.AssetKey(["our cabs", "hourly"]), "late": dg.AssetKey(["our cabs", "late"])}
TEN_MINUTES = 600_000


def epoch(number: int, found: Shortfalls | None, *windows: tuple[int, int]) -> EpochProgress:
    """Return an epoch with late rows of windows, each given by its hour after the start and its late rows."""
    operator = OperatorProgress(
        20, 20 - (found.rows if found else 0), found.rows if found else 0, START, 0, 0, 7, 900, 1,
        late_windows=tuple(START + hour * HOUR for hour, _ in windows),
        shortfalls={} if found is None else {"late": found},
        most_late=tuple(LateWindow(START + hour * HOUR, START + (hour + 1) * HOUR, rows) for hour, rows in windows),
    )  # fmt: skip
    return EpochProgress("cabs", "l1", number, START, 20, rows_in=20, rows_out=1, operators={"hourly": operator})


def metadata(
    job: tm.Job, output: str, *epochs: EpochProgress, partitions: Mapping[str, dg.TimeWindowPartitionsDefinition] | None = None
) -> dict[str, object]:
    stream = next(each for each in output_streams(job) if each.name == output)
    found = late_row_metadata(stream, RunReport(job, "l1", epochs, epochs[-1]), KEYS, partitions or {})
    return {key.removeprefix("tidemark/"): getattr(value, "value", value) for key, value in found.items()}


def test_it_says_what_would_have_kept_the_rows_of_all_epochs(tmp_path: Path) -> None:
    first = Shortfalls.of([40_000] * 90, TEN_MINUTES)
    second = Shortfalls.of([40_000] * 9 + [2_000_000], TEN_MINUTES)
    found = metadata(make_job(tmp_path), "late", epoch(0, first, (0, 90)), epoch(1, None), epoch(2, second, (0, 4), (3, 6)))
    assert found["late_advice"] == "an allowed lateness of 11m would have kept 99% of 100 late rows, one of 1h 10m all"
    assert (found["advised_more_seconds"], found["advised_setting"]) == (60.0, "an allowed lateness of 11m")
    rows = [record.data for record in found["late_rows_kept"].records]  # type: ignore[attr-defined]
    assert [(row["setting"], row["more_seconds"], row["rows_kept"], row["share"]) for row in rows[-3:]] == [
        ("an allowed lateness of 25m", 900.0, 99, "99%"),
        ("an allowed lateness of 40m", 1800.0, 99, "99%"),
        ("an allowed lateness of 1h 10m", 3600.0, 100, "all"),
    ]
    assert [row["more_seconds"] for row in rows if row["advised"]] == [60.0]
    assert found["results_hourly"] == KEYS["hourly"]


def test_it_links_the_windows_and_the_partitions_of_the_results(tmp_path: Path) -> None:
    found = metadata(
        make_job(tmp_path),
        "late",
        epoch(0, Shortfalls.of([5] * 3), (0, 2), (-1, 1)),
        epoch(1, Shortfalls.of([5] * 6), (0, 1), (5, 5)),
        partitions={"hourly": HOURS},
    )
    page = "/assets/our%20cabs/hourly?view=partitions&partition=2024-03-04-{:02}%3A00"
    one, other = (f"[2024-03-04-{hour:02}:00]({page.format(hour)})" for hour in (5, 0))
    assert str(found["late_windows"]).splitlines() == [
        "| from | length | late rows | partition of hourly |",
        "|---|---|---:|---|",
        f"| 2024-03-04T05:00:00.000Z | 1h | 5 | {one} |",
        f"| 2024-03-04T00:00:00.000Z | 1h | 3 | {other} |",
        # Before the partitions begin.
        "| 2024-03-03T23:00:00.000Z | 1h | 1 |  |",
    ]
    assert found["late_partitions"] == f"- hourly: {one}, {other}"


def test_without_partitions_there_are_windows_and_the_asset_alone(tmp_path: Path) -> None:
    found = metadata(make_job(tmp_path), "late", epoch(0, Shortfalls.of([5]), (0, 1)))
    assert str(found["late_windows"]).splitlines()[0] == "| from | length | late rows |"
    assert "late_partitions" not in found


def test_many_windows_and_partitions_are_counted_but_not_shown(tmp_path: Path) -> None:
    windows = [(hour, hour + 1) for hour in range(30)]
    found = metadata(make_job(tmp_path), "late", epoch(0, Shortfalls.of([5]), *windows), partitions={"hourly": HOURS})
    lines = str(found["late_windows"]).splitlines()
    assert (len(lines), lines[-1]) == (24, "and 10 more")
    assert lines[2].startswith("| 2024-03-05T05:00:00.000Z | 1h | 30 |")
    assert str(found["late_partitions"]).endswith(", and 10 more")
    assert str(found["late_partitions"]).count("](/assets/") == 20


def test_there_is_nothing_to_say_without_late_rows_or_of_other_outputs(tmp_path: Path) -> None:
    job, late = make_job(tmp_path), epoch(0, Shortfalls.of([5]), (0, 1))
    assert metadata(job, "late", epoch(0, None)) == {}
    for output in ("hourly", "rejected", "malformed"):
        assert metadata(job, output, late) == {}


def test_rows_that_no_lateness_keeps_have_no_advised_one(tmp_path: Path) -> None:
    found = metadata(make_job(tmp_path), "late", epoch(0, Shortfalls.of([None, None], TEN_MINUTES)))
    assert found == {"late_advice": "no lateness would have kept any of 2 late rows", "results_hourly": KEYS["hourly"]}


def test_each_side_of_a_join_has_its_own_advice() -> None:
    def read(name: str) -> tm.Stream:
        given = tm.from_elements(epochs=[], schema=f"at TIMESTAMP, k STRING, {name} INT")
        return tm.source(name, given, watermarks=tm.ascending(timestamp="at")).select("k", name)

    left, right = tm.OutputTag("left"), tm.OutputTag("right")
    pairs = read("a").join(read("b"), on="k", within=("0 seconds", "1 hour"), late_left_to=left, late_right_to=right).uid("pairs")
    outputs = {"hourly": pairs, "late": pairs.side_output(left), "others": pairs.side_output(right)}
    job = tm.Job("cabs", outputs={name: tm.memory(stream, name) for name, stream in outputs.items()})
    operator = OperatorProgress(
        20, 17, 0, START, 0, 0, 7, 900, 1, counters={"late_left": 2, "late_right": 1}, late_counters=("late_left", "late_right"),
        shortfalls={"late_left": Shortfalls.of([5_000, 50_000], None), "late_right": Shortfalls.of([100], None)},
    )  # fmt: skip
    progress = EpochProgress("cabs", "l1", 0, START, 20, rows_in=20, rows_out=1, operators={"pairs": operator})
    found = {name: metadata(job, name, progress).get("late_advice") for name in outputs}
    assert found == {
        "hourly": None,
        "late": "a bound of the watermark greater by 5s would have kept 50% of 2 late rows, by 1m all",
        "others": "a bound of the watermark greater by 1s would have kept all of 1 late rows",
    }
