"""The records of three months, as New York's taxis sent them, through the example job: every output as plain pandas has it.

They arrive when the trip ends, six days per epoch, in three waves of thirty days that are drained one after the other; the job's
clock goes with them. An epoch ends some minutes past seven in the evening, when trips of the hour that it closes are on the road.

Compared are all panes with their numbers, timing and index, the rows set aside as late, rejected and malformed, the watermark after
each epoch, and the counts of every epoch and of the whole.

All but one of the records are well formed, so here some lines break off, and some get the year 2088, as larger samples have it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from deltalake import DeltaTable

import tidemark as tm
from examples.taxi.job import FILES_PER_EPOCH, build_job
from tests.engine.lab import require_conservation
from tests.examples.plain_trips import HOUR, Account, account_of, lines_of
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.state.log.progress import EpochProgress

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "taxi"
FILES_PER_WAVE = 10
FILE_DAYS = 3
WAVES = 3
BEGIN = pd.Timestamp("2019-01-01 19:13")
TRIP_COLUMNS = (
    "vendor_id", "pickup_datetime", "dropoff_datetime", "passenger_count", "trip_distance", "rate_code_id", "store_and_fwd_flag",
    "pickup_location_id", "dropoff_location_id", "payment_type", "fare_amount", "extra", "mta_tax", "tip_amount", "tolls_amount",
    "improvement_surcharge", "total_amount", "congestion_surcharge",
)  # fmt: skip

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the months of taxi records are not at {DATA}"),
]


@dataclass(frozen=True)
class Months:
    """What the job left, and what plain pandas says that it has to be."""

    records: int
    epochs: tuple[EpochProgress, ...]
    tables: dict[str, pd.DataFrame]
    expected: Account


@pytest.fixture(scope="module")
def months(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Months:
    folder = tmp_path_factory.mktemp("months")
    files = arriving()
    (folder / "landing").mkdir()
    job = build_job(folder / "landing", folder / "warehouse", store=folder / "store")
    stretches = [files[begin : begin + FILES_PER_EPOCH] for begin in range(0, len(files), FILES_PER_EPOCH)]
    length = pd.Timedelta(days=FILES_PER_EPOCH * FILE_DAYS)
    ends = [int((BEGIN + (number + 1) * length).timestamp() * 1000) for number in range(len(stretches))]
    clock = ManualClock(ends[0])
    epochs: list[EpochProgress] = []

    def after(progress: EpochProgress) -> None:
        epochs.append(progress)
        clock.set(ends[min(len(epochs), len(ends) - 1)])

    for wave in range(WAVES):
        for number in range(wave * FILES_PER_WAVE, (wave + 1) * FILES_PER_WAVE):
            path = folder / "landing" / f"{number:02d}.json"
            path.write_text("".join(f"{line}\n" for line in files[number]), encoding="utf-8")
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        tm.run(job, spark=spark, clock=clock, on_epoch=after, end_of_input=wave == WAVES - 1, handle_signals=False)
    tables = {name: DeltaTable(str(folder / "warehouse" / name)).to_pandas() for name in job.outputs}
    expected = account_of([([line for file in stretch for line in file], end) for stretch, end in zip(stretches, ends, strict=True)])
    return Months(sum(map(len, files)), tuple(epochs), tables, expected)


def arriving() -> list[list[str]]:
    """Return the lines of each file, in the order in which the trips ended; the last one has the stragglers too."""
    trips = pd.concat([pd.read_csv(path) for path in sorted(DATA.glob("yellow_tripdata_sample_2019-*.csv"))], ignore_index=True)
    assert tuple(trips.columns) == TRIP_COLUMNS
    trips = trips.sort_values("dropoff_datetime", kind="stable").astype(dict.fromkeys(trips.select_dtypes("int"), object))
    wrong = [number % 1_501 == 700 for number in range(len(trips))]
    trips.loc[wrong, "pickup_datetime"] = "2088" + trips.loc[wrong, "pickup_datetime"].str[4:]
    lines = [line[: len(line) // 2] if number % 997 == 500 else line for number, line in enumerate(lines_of(trips))]
    stretch = (pd.to_datetime(trips["dropoff_datetime"]) - BEGIN) // pd.Timedelta(days=FILE_DAYS)
    files: list[list[str]] = [[] for _ in range(WAVES * FILES_PER_WAVE)]
    for number, line in zip(stretch.clip(lower=0, upper=len(files) - 1), lines, strict=True):
        files[number].append(line)
    return files


def rows_of(table: pd.DataFrame, *columns: str) -> Counter[tuple[object, ...]]:
    """Return the rows of a table as often as they occur; nulls are None, times the texts of the records."""
    plain = {}
    for name in columns:
        values = table[name]
        if pd.api.types.is_datetime64_any_dtype(values):
            values = values.dt.strftime("%Y-%m-%d %H:%M:%S")
        plain[name] = values.astype(object).where(values.notna(), None)
    return Counter(zip(*plain.values(), strict=True))


def panes_of(months: Months) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    """Yield each pane as it was found, and as it has to be."""
    identity = ("pickup_zone", "window_start", "pane_index")
    found = months.tables["hourly_tips"]
    for name in ("window_start", "window_end"):
        found = found.assign(**{name: (found[name].dt.tz_localize(None) - pd.Timestamp(0)) // pd.Timedelta(milliseconds=1)})
    panes = [{str(name): value for name, value in pane.items()} for pane in found.to_dict("records")]
    left = {tuple(pane[name] for name in identity): pane for pane in panes}
    right = {tuple(pane[name] for name in identity): pane for pane in months.expected.panes}
    assert len(left) == len(found), "a pane is there twice"
    assert left.keys() == right.keys()
    for place, pane in left.items():
        yield pane, right[place]


def test_every_pane_is_as_a_plain_computation_has_it(months: Months) -> None:
    timings = Counter[object]()
    for found, wanted in panes_of(months):
        exact = ("window_end", "pane_timing", "trips")
        assert {name: found[name] for name in exact} == {name: wanted[name] for name in exact}
        assert found["tips"] == pytest.approx(wanted["tips"], rel=1e-9)
        assert found["fares"] == pytest.approx(wanted["fares"], rel=1e-9)
        medians = wanted["medians"]
        assert isinstance(medians, tuple)
        assert any(found["typical_fare"] == pytest.approx(median, rel=0.01) for median in medians)
        timings[found["pane_timing"]] += 1
    assert timings["ON_TIME"] > 20_000
    assert timings["LATE"] > 5, "a refired window is part of what is shown"


def test_what_was_set_aside_is_there_row_by_row(months: Months) -> None:
    expected = months.expected
    late, rejected = pd.concat(expected.late), pd.concat(expected.rejected)
    assert rows_of(months.tables["late_trips"], *TRIP_COLUMNS, "minutes") == rows_of(late, *TRIP_COLUMNS, "minutes")
    assert rows_of(months.tables["rejected_trips"], *TRIP_COLUMNS) == rows_of(rejected, *TRIP_COLUMNS)
    assert len(late) > 10, "trips whose meter ran for a day are late"
    assert len(rejected) > 30


def test_what_cannot_be_read_or_timed_is_kept_with_its_reason(months: Months) -> None:
    table, expected = months.tables["malformed_trips"], months.expected.malformed
    assert Counter(table["reason"]) == Counter(reason for reason, _ in expected)
    assert Counter(zip(table["reason"], table["raw"], strict=True)) == Counter(expected), "each record is as it came"
    assert set(table["event_time"].dropna().dt.year) == {2019, 2088}, "one record of April came in March as it is"
    assert len(set(table["reason"])) == 2


def test_watermarks_and_counts_of_every_epoch_are_those_of_the_records(months: Months) -> None:
    expected, epochs = months.expected, months.epochs
    assert [epoch.sources["trips"].watermark for epoch in epochs[:-1]] == expected.watermarks
    assert [epoch.operators["hourly-tips"].rows_late for epoch in epochs[:-1]] == list(map(len, expected.late))
    for epoch in epochs:
        require_conservation(epoch)
    operator = [epoch.operators["hourly-tips"] for epoch in epochs]
    assert sum(epoch.rows_in for epoch in epochs) == months.records
    assert sum(epoch.rows_accepted for epoch in operator) == expected.accepted
    aside = sum(len(months.tables[name]) for name in ("late_trips", "rejected_trips", "malformed_trips"))
    assert months.records == 30_000 == expected.accepted + aside


def test_the_last_panes_hold_every_trip_that_was_accepted(months: Months) -> None:
    table = months.tables["hourly_tips"].sort_values("pane_index").drop_duplicates(["pickup_zone", "window_start"], keep="last")
    assert table["trips"].sum() == months.expected.accepted
    assert (table["window_end"] - table["window_start"] == pd.Timedelta(milliseconds=HOUR)).all()
