"""Passes over few rows whose plan is kept between epochs: the same rows, counts and files as DataFrames made in each epoch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import functions as F

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tests.engine.prepared_runs import NEVER, Passes, counted
from tests.seeds import PROFILE, only_long
from tidemark.spark.columns import few_rows
from tidemark.spark.prepared import prepared_plan
from tidemark.spark.prepared.prepared_pass import PreparedPass
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
Streams = Mapping[str, tm.Stream]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Passes:
    return Passes(monkeypatch)


class Bench:
    """A folder of Parquet files, one per epoch, and jobs over them."""

    def __init__(self, spark: SparkSession, folder: Path, files: Sequence[pa.Table], schema: str) -> None:
        self.spark, self.folder, self.schema = spark, folder, schema
        self.landing = folder / "land ing é"
        self.landing.mkdir()
        for number, rows in enumerate(files):
            self.land(f"a file {number}.parquet", rows, number)

    def land(self, name: str, rows: pa.Table, number: int) -> None:
        pq.write_table(rows, self.landing / name)
        os.utime(self.landing / name, (1_600_000_000 + number,) * 2)

    def stream(self, name: str, *, files: int = 1, **watermarks: Any) -> tm.Stream:
        """Return a source of the files, so many in an epoch."""
        spec = tm.files(str(self.landing), format="parquet", schema=self.schema, max_files_per_epoch=files)
        return tm.source(name, spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t", **watermarks))

    def run(self, name: str, declare: Callable[[tm.Stream], Streams], **settings: Any) -> tuple[list[EpochProgress], dict[str, list[Any]]]:
        """Run a job, to the end of input by default; returns its epochs, and the rows of each output, sorted."""
        streams = declare(self.stream("landing", files=settings.pop("files", 1), **settings.pop("watermarks", {})))
        places = {output: self.folder / name / output for output in streams}
        outputs = {output: tm.parquet(stream, str(places[output])) for output, stream in streams.items()}
        job = tm.Job(name, outputs=outputs, store=str(self.folder / "store"))
        done = tm.run(job, spark=self.spark, clock=ManualClock(NOW), **{"end_of_input": True, **settings})
        for epoch in done.epochs:
            require_conservation(epoch)
        rows = {output: pq.read_table(place).to_pylist() for output, place in places.items()}
        return list(done.epochs), {output: sorted(map(repr, found)) for output, found in rows.items()}


def rides(epochs: int) -> list[pa.Table]:
    """Return rows by epoch: on time, late within and beyond the allowed lateness, with nulls, and without a time."""
    tables = []
    for epoch in range(epochs):
        base = epoch * MINUTE
        times = [base + 1_000, base + 30_000, base - 90_000, base - 4 * MINUTE, None, base + 59_999, base + 2]
        keys = ["a", None, "b", "a", "c", f"k{epoch}", "a"]
        fares = [1.5, None, float(epoch), 4.0, 3.0, float("nan"), -2.0]
        tables.append(pa.table({"k": keys, "t": pa.array(times, pa.int64()), "fare": fares}))
    return tables


def windows_of_rides(rows: tm.Stream) -> Streams:
    late, small = tm.OutputTag("late"), tm.OutputTag("small")
    known = rows.filter("fare > -1 OR fare IS NULL", rejects_to=small).with_columns(twice="fare * 2")
    panes = (
        known.key_by("k")
        .window(tm.tumbling("1 minute"))
        .allowed_lateness("1 minute")
        .late_to(late)
        .aggregate(n=tm.count(), total=tm.sum("twice"), most=tm.max("fare"))
        .uid("per-minute")
    )
    shown = panes.filter("n > 0").select("k", "n", "total", "most", "window_start", "pane_timing", "pane_index")
    return {"panes": shown, "late": panes.side_output(late), "small": known.side_output(small)}


def windows_of_other_kinds(bench: Bench) -> Streams:
    """Return windows that are read in other ways, each of a source of its own; a column of one is made by a function."""
    noted = bench.stream("noted").with_columns(noted=lambda: F.col("fare") * 2).key_by("k").window(tm.tumbling("1 minute"))
    return {
        "noted": noted.aggregate(n=tm.max("noted")).uid("noted"),
        "sliding": sliding(bench.stream("sliding")).uid("sliding"),
        "early": early(bench.stream("early")).uid("early"),
    }


def test_rows_and_counts_are_those_of_data_frames(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    bench = Bench(spark, tmp_path, rides(3), "k STRING, t BIGINT, fare DOUBLE")

    def declare(rows: tm.Stream) -> Streams:
        return {**windows_of_rides(rows), **windows_of_other_kinds(bench)}

    passes.compare_once()
    passes.after(NEVER)
    made_epochs, made_rows = bench.run("made", declare)
    assert passes.ran == []
    passes.after(0)
    epochs, rows = bench.run("prepared", declare)
    assert passes.refused == {}
    # After the first, each epoch begins strictly, since the one before had malformed rows.
    assert passes.ran.count("process per-minute") == 1
    assert passes.ran.count("process per-minute strict") == 2
    assert "output panes merged" in passes.ran or "output panes alone" in passes.ran
    for uid in ("noted", "sliding", "early"):
        assert any(name.startswith(f"process {uid} strict") for name in passes.ran), uid
    assert rows == made_rows
    assert counted(epochs) ^ counted(made_epochs) == set()
    assert len(rows["panes"]) > 8
    assert len(rows["late"]) > 0


def test_plans_made_after_two_epochs_go_on_from_their_state(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    bench = Bench(spark, tmp_path, rides(6), "k STRING, t BIGINT, fare DOUBLE")
    passes.compare_once()
    passes.after(NEVER)
    _, made = bench.run("made", windows_of_rides, files=2)
    passes.after(1)
    _, rows = bench.run("prepared", windows_of_rides, files=2)
    assert rows == made
    assert "process per-minute strict" in passes.ran


def test_columns_of_many_types(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    schema = (
        "t BIGINT, b BOOLEAN, i INT, s SMALLINT, y TINYINT, f FLOAT, d DECIMAL(20, 3), x BINARY, da DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, "
        "w STRING"
    )
    tables, files = [], 5 if PROFILE == "long" else 3
    for epoch in range(files):
        at = datetime(1969, 12, 31, 23, 59, epoch, 123_456, UTC)
        tables.append(
            pa.table(
                {
                    "t": pa.array([epoch * MINUTE, epoch * MINUTE + 1]),
                    "b": [True, None],
                    "i": pa.array([epoch, None], pa.int32()),
                    "s": pa.array([epoch, None], pa.int16()),
                    "y": pa.array([-epoch, None], pa.int8()),
                    "f": pa.array([epoch / 3, None], pa.float32()),
                    "d": pa.array([Decimal("12345678901234567.125"), None], pa.decimal128(20, 3)),
                    "x": pa.array([b"\x00\xff", None]),
                    "da": pa.array([date(1582, 10, 15), None]),
                    "ts": pa.array([at, None], pa.timestamp("us", "UTC")),
                    "tn": pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
                    "w": ["é\n", None],
                }
            )
        )

    def declare(rows: tm.Stream) -> Streams:
        keyed = rows.key_by("b", "i", "s", "y", "f", "d", "x", "da", "ts", "tn", "w")
        return {"panes": keyed.window(tm.tumbling("1 minute")).aggregate(n=tm.count(), least=tm.min("d"), whole=tm.sum("d")).uid("w")}

    bench = Bench(spark, tmp_path, tables, schema)
    passes.compare_once()
    passes.after(NEVER)
    _, made = bench.run("made", declare)
    passes.after(0)
    _, rows = bench.run("prepared", declare)
    assert rows == made
    assert len(rows["panes"]) == 2 * files
    assert passes.refused == {}
    assert {"process w", "output panes alone"} <= set(passes.ran)


def test_plans_whose_rows_differ_each_time_are_not_kept(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    reasons = {
        "fare + rand()": "each run has other values of rand",
        "if(current_date() > DATE'2000-01-01', fare, 0)": "the plan asks for the time",
        "if(current_timestamp() > TIMESTAMP'2000-01-01', fare, 0)": "the plan asks for the time",
    }

    bench = Bench(spark, tmp_path, rides(2), "k STRING, t BIGINT, fare DOUBLE")

    def declare(_: tm.Stream) -> Streams:
        noted = {uid: bench.stream(uid).with_columns(noted=expression) for uid, expression in zip("abc", reasons, strict=True)}
        windows = {uid: stream.key_by("k").window(tm.tumbling("1 minute")) for uid, stream in noted.items()}
        return {uid: window.aggregate(n=tm.sum("noted")).uid(uid) for uid, window in windows.items()}

    passes.after(0)
    bench.run("job", declare, end_of_input=False)
    for uid, reason in zip("abc", reasons.values(), strict=True):
        assert f"process {uid}" not in passes.ran
        assert reason in passes.refused[f"process {uid}"]


def test_no_plan_is_kept_where_the_parser_of_sql_may_read_a_day(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    bench = Bench(spark, tmp_path, rides(2), "k STRING, t BIGINT, fare DOUBLE")

    def declare(rows: tm.Stream) -> Streams:
        past = rows.filter("date '2000-01-01' < DATE 'Yesterday'").key_by("k").window(tm.tumbling("1 minute"))
        return {"panes": past.aggregate(n=tm.count()).uid("w")}

    passes.after(0)
    _, found = bench.run("job", declare)
    assert found["panes"]
    assert passes.ran == []
    assert passes.refused
    assert set(passes.refused.values()) == {"'Yesterday' may be another day in each epoch"}


def test_a_pass_has_the_settings_of_its_session_in_its_task(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    """How dates are parsed is asked for where they are."""
    lenient = spark.newSession()
    lenient.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    days = [pa.table({"k": [f"2024-1-{epoch}"], "t": [epoch * MINUTE], "fare": [1.0]}) for epoch in range(1, 4)]

    def declare(rows: tm.Stream) -> Streams:
        dated = rows.with_columns(day="to_date(k, 'yyyy-MM-dd')").key_by("day").window(tm.tumbling("1 minute"))
        return {"panes": dated.aggregate(n=tm.count()).uid("w")}

    passes.after(0)
    _, rows = Bench(lenient, tmp_path, days, "k STRING, t BIGINT, fare DOUBLE").run("job", declare)
    assert len(rows["panes"]) == 3
    assert passes.refused == {}
    assert passes.ran.count("process w") == 3


def test_many_rows_in_few_bytes_are_read_by_spark(
    spark: SparkSession, tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_rows, "FEW_ROWS", 5)  # a file has seven
    passes.after(0)
    bench = Bench(spark, tmp_path, rides(3), "k STRING, t BIGINT, fare DOUBLE")
    bench.run("job", windows_of_rides, end_of_input=False)
    assert "process per-minute" not in passes.ran


def test_rows_ahead_of_processing_time_are_found(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    tables = [pa.table({"k": ["a", "b"], "t": [NOW - 10 * MINUTE + epoch, NOW - 9 * MINUTE], "fare": [1.0, 2.0]}) for epoch in range(3)]
    tables[1] = pa.table({"k": ["a", "z"], "t": [NOW - 8 * MINUTE, NOW + 100 * MINUTE], "fare": [1.0, 2.0]})
    bench = Bench(spark, tmp_path, tables, "k STRING, t BIGINT, fare DOUBLE")

    def declare(rows: tm.Stream) -> Streams:
        return {"panes": rows.key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("w")}

    settings = {"max_future_skew": "5 minutes"}
    passes.compare_once()
    passes.after(NEVER)
    made_epochs, made = bench.run("made", declare, watermarks=settings)
    passes.after(0)
    epochs, rows = bench.run("prepared", declare, watermarks=settings)
    assert rows == made
    assert [epoch.sources["landing"].rows_malformed for epoch in epochs] == [
        epoch.sources["landing"].rows_malformed for epoch in made_epochs
    ]
    assert sum(epoch.sources["landing"].rows_malformed for epoch in epochs) == 1


def test_a_damaged_file_is_named_as_ever(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    bench = Bench(spark, tmp_path, rides(2), "k STRING, t BIGINT, fare DOUBLE")
    torn = bench.landing / "a file 1.parquet"
    content = torn.read_bytes()
    torn.write_bytes(content[:4] + b"\xff" * (len(content) // 3) + content[4 + len(content) // 3 :])
    os.utime(torn, (1_600_000_001,) * 2)
    passes.after(0)
    with pytest.raises(tm.TidemarkError, match=r"a%20file%201\.parquet"):
        bench.run("job", windows_of_rides)
    assert passes.ran.count("process per-minute") <= 1


def test_state_that_is_gone_is_missed(spark: SparkSession, tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(spark, tmp_path, rides(5), "k STRING, t BIGINT, fare DOUBLE")
    passes.after(0)
    # A DataFrame to compare with would not be made without the file.
    monkeypatch.setattr(PreparedPass, "COMPARED_ALWAYS", False)

    def lose(epoch: EpochProgress) -> None:
        if epoch.epoch == 3:
            for file in (tmp_path / "store").rglob("*.parquet"):
                file.unlink()

    with pytest.raises(tm.TidemarkError, match=r"part-.*\.parquet"):
        bench.run("job", windows_of_rides, on_epoch=lose)
    assert "output panes merged" in passes.ran


def test_a_failing_expression_is_named_as_ever(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    def declare(rows: tm.Stream) -> Streams:
        odd = rows.with_columns(odd="1 / (fare - 2.0)")
        return {"panes": odd.key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.max("odd")).uid("w")}

    passes.after(0)
    bench = Bench(spark, tmp_path, rides(4), "k STRING, t BIGINT, fare DOUBLE")
    with pytest.raises(tm.TidemarkError, match=r"(?i)divi(de|sion).by.zero"):
        bench.run("job", declare)
    assert "process w" in passes.ran


def test_a_pass_that_fails_by_itself_is_given_up(
    spark: SparkSession, tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def fail(*_args: Any) -> PassRows:
        calls.append(1)
        raise Py4JError("no such method")

    monkeypatch.setattr(prepared_plan.PreparedPlan, "run", fail)
    passes.after(0)
    bench = Bench(spark, tmp_path, rides(5), "k STRING, t BIGINT, fare DOUBLE")
    epochs, rows = bench.run("job", lambda stream: {"panes": in_order(stream)})
    assert sum(epoch.rows_in for epoch in epochs) == 5 * 7
    assert len(rows["panes"]) > 6
    assert "no such method" in passes.refused["process w strict"]
    assert len(calls) <= 2 + 3 + 3  # the input of the first epoch, that of later ones, and the results


def test_values_in_the_names_of_folders_have_the_declared_types(spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    """Not those that they look like: numbers."""
    bench = Bench(spark, tmp_path, [], "k STRING, t BIGINT, fare DOUBLE, zone STRING, year DATE, hour BIGINT")
    for number, rows in enumerate(rides(3)):
        folder = f"zone=0{number}/year=202{number}/hour={number}"
        (bench.landing / folder).mkdir(parents=True)
        bench.land(f"{folder}/a.parquet", rows, number)

    def declare(rows: tm.Stream) -> Streams:
        panes = rows.key_by("zone", "year", "hour").window(tm.tumbling("1 minute")).aggregate(n=tm.count())
        return {"panes": panes.uid("per-minute")}

    passes.compare_once()
    passes.after(NEVER)
    made_epochs, made_rows = bench.run("made", declare)
    passes.after(0)
    epochs, rows = bench.run("prepared", declare)
    assert (counted(epochs), rows) == (counted(made_epochs), made_rows)
    assert "'zone': '02', 'year': datetime.date(2022, 1, 1), 'hour': 2" in rows["panes"][-1]
    assert sum(name.startswith("process per-minute") for name in passes.ran) == 3


def sliding(rows: tm.Stream) -> tm.Stream:
    late = tm.OutputTag("late-of-sliding")
    windowed = rows.key_by("k").window(tm.sliding("5 minutes", "1 minute")).allowed_lateness("1 minute").late_to(late)
    return windowed.aggregate(n=tm.count(), first=tm.first("fare"), last=tm.last("fare"))


def in_order(rows: tm.Stream) -> tm.Stream:
    windowed = rows.key_by("k").window(tm.tumbling("1 minute"))
    return windowed.aggregate(n=tm.count(), first=tm.first("fare"), all=tm.collect_list("k")).uid("w")


def early(rows: tm.Stream) -> tm.Stream:
    windowed = rows.key_by("k").window(tm.tumbling("5 minutes")).trigger(tm.count_trigger(2))
    return windowed.aggregate(n=tm.count(), most=tm.max("fare"))


@pytest.mark.parametrize("splits", [pytest.param(None, marks=only_long), "k"])
def test_windows_whose_elements_are_in_order(splits: str | None, spark: SparkSession, tmp_path: Path, passes: Passes) -> None:
    bench = Bench(spark, tmp_path, rides(3), "k STRING, t BIGINT, fare DOUBLE")
    passes.compare_once()
    passes.after(NEVER)
    made_epochs, made = bench.run("made", lambda rows: {"panes": in_order(rows)}, watermarks={"split_by": splits})
    passes.after(0)
    epochs, rows = bench.run("prepared", lambda rows: {"panes": in_order(rows)}, watermarks={"split_by": splits})
    assert passes.refused == {}
    assert any(name.startswith("process w strict") for name in passes.ran)
    assert rows == made
    assert counted(epochs) ^ counted(made_epochs) == set()
