"""Where rows come from and go to: every kind of source and sink, one run after the other, and two drivers of one job."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.engine.lab import NOW, Lab, elements, require_conservation
from tidemark.errors import FencedError, JobRunningError, SinkError, SourceError, UserCodeError
from tidemark.graph.api.sources import FileFormat
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000
SCHEMA = "k STRING, t BIGINT, v INT"
BY_T = tm.bounded_out_of_orderness("0 ms", timestamp="t")
BAD = tm.OutputTag("bad")


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def arriving(landing: Path, format: str, **settings: object) -> tm.Stream:
    settings.setdefault("schema", SCHEMA)
    spec = tm.files(str(landing), format=format, **settings)  # type: ignore[arg-type]
    return tm.source("landing", spec, watermarks=BY_T, malformed_to=BAD)


def land(landing: Path, name: str, *records: str | dict[str, object]) -> None:
    """Write a file of records, a second younger than the one before: an epoch takes the oldest first."""
    file = landing / name
    age = len(list(landing.iterdir()))
    file.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
    os.utime(file, (1_600_000_000 + age,) * 2)


def hourly(stream: tm.Stream, uid: str = "hours") -> tm.Stream:
    return stream.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count(), total=tm.sum("v")).uid(uid)


def counts(epochs: tuple[EpochProgress, ...]) -> list[tuple[int, int]]:
    """Return the rows read and malformed of each epoch."""
    return [(epoch.rows_in, epoch.rows_malformed) for epoch in epochs]


def test_json_files_over_several_runs(lab: Lab, landing: Path) -> None:
    source = arriving(landing, "json")
    streams = {"rows": source, "bad": source.side_output(BAD), "hours": hourly(source)}
    land(landing, "1.json", {"k": "a", "t": 1, "v": 5}, "no json at all", {"k": "b", "v": 6})
    land(landing, "2.json", {"k": "a", "t": "soon", "v": 7}, {"k": "a", "t": HOUR + 1, "v": 8, "more": [1]})
    first = lab.run(streams, end_of_input=False)
    assert first.of("rows", "k", "t", "v") == [("a", 1, 5), ("a", HOUR + 1, 8)]
    assert first.of("bad", "raw", "reason") == [
        ("no json at all", "record cannot be parsed"),
        ('{"k": "a", "t": "soon", "v": 7}', "column 't' cannot be read as BIGINT: 'soon'"),
        ('{"k": "b", "v": 6}', "event time 't' is null"),
    ]
    assert {row["source"] for row in first.rows["bad"]} == {"landing"}
    assert {row["read_at"] for row in first.rows["bad"]} == {datetime.fromtimestamp(NOW / 1000, UTC)}
    assert first.of("hours", "k", "n", "total") == [("a", 1, 5)]
    assert sum(epoch.rows_in for epoch in first.epochs) == 5

    nothing = lab.run(streams, end_of_input=False)
    assert nothing.epochs == ()
    assert nothing.result.head is not None
    assert nothing.result.head.epoch == first.epochs[-1].epoch
    assert nothing.result.lineage == first.result.lineage

    land(landing, "3.json", {"k": "a", "t": HOUR + 2, "v": 1}, {"k": "c", "t": 2, "v": 1})
    third = lab.run(streams)
    assert third.of("rows", "t") == [2, HOUR + 2]
    assert third.of("hours", "k", "n", "total") == [("a", 2, 9)]
    assert [epoch.epoch for epoch in third.epochs] == [len(first.epochs), len(first.epochs) + 1]
    assert third.result.lineage == first.result.lineage
    assert third.epochs[0].operators["hours"].rows_late == 1
    assert third.epochs[-1].end_of_input


def test_another_schema_of_the_files_holds_from_the_next_epoch(lab: Lab, landing: Path) -> None:
    land(landing, "1.json", {"k": "a", "t": 1, "v": 5, "note": "x"})
    before = lab.run({"rows": arriving(landing, "json")}, end_of_input=False)
    assert before.rows["rows"] == [{"k": "a", "t": 1, "v": 5}]
    land(landing, "2.json", {"k": "b", "t": 2, "v": 6, "note": "y"}, {"k": "c", "t": 3, "v": "many"})
    changed = arriving(landing, "json", schema="k STRING, t BIGINT, v STRING, note STRING")
    after = lab.run({"rows": changed, "bad": changed.side_output(BAD)}, end_of_input=False)
    # The first file is not read again.
    assert after.of("rows", "k", "v", "note") == [("b", "6", "y"), ("c", "many", None)]
    assert after.rows["bad"] == []


def test_csv_files(lab: Lab, landing: Path) -> None:
    source = arriving(landing, "csv", options={"header": "true"}, max_files_per_epoch=1)
    land(landing, "1.csv", "k,t,v", "a,1,5", "b,now,6", "c,3")
    land(landing, "2.csv", "k,t,v", "d,,7", "e,5,8")
    # Few columns are used, and still the same records are malformed.
    ran = lab.run({"keys": source.select("k"), "bad": source.side_output(BAD)})
    assert ran.of("keys", "k") == ["a", "e"]
    assert ran.of("bad", "raw", "reason") == [
        ("b,now,6", "column 't' cannot be read as BIGINT: 'now'"),
        ("c,3", "record cannot be parsed: it does not have 3 fields"),
        ("d,,7", "event time 't' is null"),
    ]
    assert counts(ran.epochs) == [(3, 2), (2, 1), (0, 0)]


AHEAD = NOW + 2 * 24 * HOUR

JSON_RECORDS = (
    f'  {{"v": 1.50, "k": "x y", "t":{AHEAD}, "more": null}} ',
    '{"v":6,   "k": null, "t": null}',
    # Two that read alike, and differ as texts.
    '{"k": "a", "v": 7}',
    '{"v": 7.0, "k": "a", "t": null}',
    '{"k": "a", "t": 4, "v": "much", "at": {"lat": 1.5}}',
    '{"k": "a", "t": 4, "v": 8, "at": "no struct"}',
    '{"k": "a", "t": 5, "v": 1',
)
CSV_RECORDS = (f' x ,{AHEAD},"1,50",', "k,t,v,at", '"a ""b""",,7.0,"{}"', "a,,7.00,", "a,4,much,", "a,4")


def test_malformed_records_are_as_they_came(lab: Lab, tmp_path: Path) -> None:
    """Byte for byte, whatever is wrong with them; folders give columns, too."""
    reasons: dict[str, dict[str, str]] = {}
    cases: dict[FileFormat, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "json": (('{"k": "a", "t": 1, "v": 2}', "", '{"k": "b", "t": 2}'), JSON_RECORDS),
        "csv": (("k,t,v,at", "a,1,2,", "", "b,2,,"), CSV_RECORDS),
    }
    streams: dict[str, tm.Stream] = {}
    for kind, (good, records) in cases.items():
        folder = tmp_path / kind
        for day, part in (("day=7", records[::2]), ("day=8", records[1::2])):
            (folder / day).mkdir(parents=True)
            lines = "\n".join([*good, *part, ""])
            (folder / day / f"1.{kind}").write_text(lines if kind == "csv" else lines.rstrip("\n"), encoding="utf-8")
        at = "at STRUCT<lat: DOUBLE>" if kind == "json" else "at STRING"
        spec = tm.files(f"{folder}", format=kind, schema=f"k STRING, t BIGINT, v DECIMAL(5, 2), {at}, day INT", options={"header": "true"})
        bad = tm.OutputTag(f"bad-{kind}")
        source = tm.source(kind, spec, watermarks=BY_T, malformed_to=bad)
        streams |= {f"rows-{kind}": source, bad.name: source.side_output(bad)}
    ran = lab.run(streams, end_of_input=False)
    for kind, (_, records) in cases.items():
        assert ran.of(f"rows-{kind}", "k", "day") == [("a", 7), ("a", 8), ("b", 7), ("b", 8)]
        assert sorted(row["raw"] for row in ran.rows[f"bad-{kind}"]) == sorted(records)
        reasons[kind] = {row["raw"]: row["reason"] for row in ran.rows[f"bad-{kind}"]}
    ahead = "event time 't' is more than max_future_skew ahead of processing time"
    null = "event time 't' is null"
    number = "column 'v' cannot be read as DECIMAL(5,2): 'much'"
    struct = "column 'at' cannot be read as STRUCT<lat: DOUBLE>: 'no struct'"
    assert [reasons["json"][raw] for raw in JSON_RECORDS] == [ahead, null, null, null, number, struct, "record cannot be parsed"]
    heading = "column 't' cannot be read as BIGINT: 't'"
    fields = "record cannot be parsed: it does not have 4 fields"
    assert [reasons["csv"][raw] for raw in CSV_RECORDS] == [ahead, heading, null, null, number, fields]


def test_columnar_files_an_epoch_each(lab: Lab, tmp_path: Path) -> None:
    schema = pa.schema({"k": pa.string(), "t": pa.int64(), "v": pa.int32()})
    batches: list[list[tuple[str, int | None, int]]] = [[("a", 1, 5), ("b", None, 6)], [("a", HOUR, 7)], [("b", 2 * HOUR, 8), ("a", 2, 9)]]
    formats: tuple[FileFormat, ...] = ("parquet", "orc")
    streams: dict[str, tm.Stream] = {}
    for kind in formats:
        (tmp_path / kind).mkdir()
        for number, rows in enumerate(batches):
            table = pa.Table.from_pylist([dict(zip("ktv", row, strict=True)) for row in rows], schema=schema)
            (pq if kind == "parquet" else po).write_table(table, str(tmp_path / kind / f"{number}.{kind}"))
            os.utime(tmp_path / kind / f"{number}.{kind}", (1_600_000_000 + number,) * 2)
        spec, bad = tm.files(str(tmp_path / kind), format=kind, schema=SCHEMA, max_files_per_epoch=1), tm.OutputTag(f"bad-{kind}")
        source = tm.source(kind, spec, watermarks=BY_T, malformed_to=bad)
        streams |= {f"rows-{kind}": source, bad.name: source.side_output(bad), f"hours-{kind}": hourly(source, f"hours-{kind}")}
    ran = lab.run(streams)
    for kind in formats:
        sources = [epoch.sources[kind] for epoch in ran.epochs]
        assert [(source.rows_read, source.rows_malformed) for source in sources] == [(2, 1), (1, 0), (2, 0), (0, 0)]
        assert ran.of(f"rows-{kind}", "t") == [1, 2, HOUR, 2 * HOUR]
        assert ran.of(f"bad-{kind}", "raw", "reason") == [('{"k":"b","t":null,"v":6}', "event time 't' is null")]
        assert ran.of(f"hours-{kind}", "k", "n", "total") == [("a", 1, 5), ("a", 1, 7), ("b", 1, 8)]
        assert [epoch.operators[f"hours-{kind}"].rows_late for epoch in ran.epochs] == [0, 0, 1, 0]


def test_text_files(lab: Lab, landing: Path) -> None:
    land(landing, "log.txt", "1970-01-01T00:00:01.0009Z start", "???", "1970-01-01T00:00:02Z stop")
    spec = tm.files(str(landing), format="text")
    stamped = tm.bounded_out_of_orderness("0 ms", timestamp="split(value, ' ')[0]")
    source = tm.source("log", spec, watermarks=stamped, malformed_to=BAD)
    ran = lab.run({"words": source.select(word="split(value, ' ')[1]"), "bad": source.side_output(BAD)}, end_of_input=False)
    assert ran.of("words", "word") == ["start", "stop"]
    assert ran.of("bad", "raw", "reason") == [("???", "event time 'split(value, ' ')[0]' cannot be read as TIMESTAMP: '???'")]
    assert ran.epochs[0].sources["log"].watermark == 1999


def test_missing_folder_and_unknown_format(lab: Lab) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        lab.run({"rows": arriving(lab.folder / "nowhere", "json")})
    strange = tm.source("s", tm.streaming_format("carrier-pigeon"), watermarks=tm.ingestion_time())
    with pytest.raises(SourceError, match="carrier-pigeon"):
        lab.run({"rows": strange}, job="other")


def memory_values(table: str, column: str) -> list[object]:
    """Take a column's values out of a memory sink."""
    found = tm.memory_table(table)
    tm.clear_memory(table)
    return [] if found is None else found.column(column).to_pylist()


class Stop(threading.Event):
    """Stops a run after so many epochs that read something."""

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.seen: list[EpochProgress] = []
        self._wanted = epochs

    def after(self, epoch: EpochProgress) -> None:
        self.seen.append(epoch)
        if sum(seen.rows_in > 0 for seen in self.seen) >= self._wanted:
            self.set()


@pytest.mark.parametrize("by_name", [False, True])
def test_rate_source_runs_until_it_is_stopped(spark: SparkSession, tmp_path: Path, *, by_name: bool) -> None:
    spec = tm.streaming_format("rate", options={"rowsPerSecond": "50"}) if by_name else tm.rate(rows_per_second=50, partitions=2)
    source = tm.source("ticks", spec, watermarks=tm.bounded_out_of_orderness("1 second", timestamp="timestamp"))
    parity = source.key_by(odd="value % 2 = 1").window(tm.tumbling("1 day")).aggregate(n=tm.count(), last=tm.max("value")).uid("parity")
    outputs = {"ticks": tm.memory(source, str(tmp_path)), "parity": tm.memory(parity, f"{tmp_path}/parity")}
    job = tm.Job("rate", outputs=outputs, store=str(tmp_path / "store"))
    stop = Stop(epochs=2)
    result = tm.run(job, spark=spark, trigger="100 milliseconds", stop=stop, on_epoch=stop.after, handle_signals=False)
    assert [*result.epochs] == stop.seen
    # Nothing is missing and nothing is there twice.
    assert sorted(memory_values(str(tmp_path), "value"), key=str) == sorted(range(result.rows_in), key=str)

    again = Stop(epochs=1)
    further = tm.run(job, spark=spark, trigger="100 milliseconds", stop=again, on_epoch=again.after, handle_signals=False)
    assert further.epochs[0].epoch == result.epochs[-1].epoch + 1
    further_values = [int(str(value)) for value in memory_values(str(tmp_path), "value")]
    assert sorted(further_values) == [*range(result.rows_in, result.rows_in + further.rows_in)]


def test_delta_and_parquet_grow_run_by_run(spark: SparkSession, tmp_path: Path, landing: Path) -> None:
    source = arriving(landing, "json", max_files_per_epoch=1)
    outputs = {
        "rows": tm.delta(source.select("k", "v"), str(tmp_path / "delta")),
        "hours": tm.delta(hourly(source), str(tmp_path / "hours")),
        "copy": tm.parquet(source, str(tmp_path / "parquet")),
        "bad": tm.parquet(source.side_output(BAD), str(tmp_path / "bad")),
    }
    job = tm.Job("files", outputs=outputs, store=str(tmp_path / "store"))
    expected: list[tuple[str, int, int]] = []
    lineages = set()
    for run in range(3):
        for number in range(2):
            row = (f"k{number}", run * HOUR, 10 * run + number)
            expected.append(row)
            land(landing, f"{run}-{number}.json", dict(zip("ktv", row, strict=True)))
        result = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=run == 2, handle_signals=False)
        lineages.add(result.lineage)
        assert [epoch.epoch for epoch in result.epochs] == [2 * run, 2 * run + 1, 2 * run + 2][: 3 if run == 2 else 2]
        copied = pq.read_table(tmp_path / "parquet").to_pylist()
        assert sorted((row["k"], row["t"], row["v"]) for row in copied) == sorted(expected)
        for epoch in result.epochs:
            require_conservation(epoch)
    assert len(lineages) == 1
    table = DeltaTable(tmp_path / "delta")
    assert sorted(table.to_pyarrow_table().column("v").to_pylist()) == sorted(row[2] for row in expected)
    # One version to create the table, then one for each epoch that brought rows.
    assert table.version() == 6
    hours = DeltaTable(tmp_path / "hours").to_pyarrow_table().to_pylist()
    assert sorted((row["window_start"].hour, row["k"], row["n"], row["total"]) for row in hours) == [
        (run, f"k{number}", 1, 10 * run + number) for run in range(3) for number in range(2)
    ]
    assert {row["window_start"].tzinfo for row in hours} != {None}
    assert pq.read_table(tmp_path / "bad").num_rows == 0


def test_console_prints_the_first_rows(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = elements([("a", 1, 5), ("b", 2, 6), ("c", 3, 7)], schema=SCHEMA)
    job = tm.Job("shown", outputs={"rows": tm.console(source.select("k"), rows=2)}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, handle_signals=False)
    shown = capsys.readouterr().out
    assert "rows, epoch 0: 3 rows" in shown
    assert "1 more" in shown
    assert "c" not in shown.splitlines()


def test_a_table_of_another_shape_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    def job(name: str, stream: tm.Stream, path: str, kind: str) -> tm.Job:
        output = tm.delta(stream, path) if kind == "delta" else tm.parquet(stream, path)
        return tm.Job(name, outputs={"rows": output}, store=str(tmp_path / "store"))

    source = elements([("a", 1, 5)], schema=SCHEMA)
    for kind in ("delta", "parquet"):
        path = str(tmp_path / kind)
        tm.run(job(f"{kind}-old", source.select("k", "v"), path, kind), spark=spark, handle_signals=False)
        with pytest.raises(SinkError, match="does not fit") as raised:
            tm.run(job(f"{kind}-new", source.select("k", v="CAST(v AS STRING)"), path, kind), spark=spark, handle_signals=False)
        assert "v" in raised.value.what
        assert raised.value.epoch == 0
        there = DeltaTable(path).to_pyarrow_table() if kind == "delta" else pq.read_table(path)
        assert there.to_pylist() == [{"k": "a", "v": 5}]


def test_a_failed_epoch_is_read_again(spark: SparkSession, tmp_path: Path, landing: Path) -> None:
    def job(share: str) -> tm.Job:
        kept = arriving(landing, "json", max_files_per_epoch=1).with_columns(share=share)
        outputs = {
            "rows": tm.delta(kept.select("v", "share"), str(tmp_path / "rows")),
            "hours": tm.delta(hourly(kept), str(tmp_path / "hours")),
        }
        return tm.Job("files", outputs=outputs, store=str(tmp_path / "store"))

    for number, value in enumerate([4, 0, 2]):
        land(landing, f"{number}.json", {"k": "a", "t": number, "v": value})
    with pytest.raises(UserCodeError) as raised:
        tm.run(job("8 DIV v"), spark=spark, handle_signals=False)
    assert raised.value.epoch == 1
    assert DeltaTable(tmp_path / "rows").to_pyarrow_table().column("v").to_pylist() == [4]
    mended = tm.run(job("IF(v = 0, NULL, 8 DIV v)"), spark=spark, handle_signals=False, end_of_input=True)
    assert [epoch.epoch for epoch in mended.epochs] == [1, 2, 3]
    assert sorted(DeltaTable(tmp_path / "rows").to_pyarrow_table().column("v").to_pylist()) == [0, 2, 4]
    assert [row["n"] for row in DeltaTable(tmp_path / "hours").to_pyarrow_table().to_pylist()] == [3]


def test_a_second_run_is_refused_and_a_takeover_fences_the_first(spark: SparkSession, tmp_path: Path) -> None:
    source = elements(*[[(f"k{number}", number, number)] for number in range(4)], schema=SCHEMA)
    job = tm.Job("one", outputs={"rows": tm.delta(source, str(tmp_path / "rows"))}, store=str(tmp_path / "store"))
    refusals: list[JobRunningError] = []
    second: list[tm.RunResult] = []

    def meanwhile(epoch: EpochProgress) -> None:
        """Start the job again while its first run is between two epochs, in another thread as another process would."""

        def start() -> None:
            with pytest.raises(JobRunningError, match="driven by process") as raised:
                tm.run(job, spark=spark, handle_signals=False, run_id="second")
            refusals.append(raised.value)
            second.append(tm.run(job, spark=spark, handle_signals=False, takeover=True, max_epochs=1))

        if epoch.epoch == 1:
            thread = threading.Thread(target=start)
            thread.start()
            thread.join()

    with pytest.raises(FencedError, match="taken over"):
        tm.run(job, spark=spark, handle_signals=False, run_id="first", on_epoch=meanwhile)
    assert len(refusals) == 1
    assert "run first" in refusals[0].what
    assert "takeover=True" in refusals[0].fix
    assert [epoch.epoch for epoch in second[0].epochs] == [2]
    last = tm.run(job, spark=spark, handle_signals=False)
    assert [epoch.epoch for epoch in last.epochs] == [3]
    assert last.lineage == second[0].lineage
    assert sorted(DeltaTable(tmp_path / "rows").to_pyarrow_table().column("v").to_pylist()) == [0, 1, 2, 3]


def test_max_epochs_stops_in_between(lab: Lab) -> None:
    source = elements(*[[("a", number * HOUR, number)] for number in range(5)], schema=SCHEMA)
    table = str(lab.folder / "hours")
    job = tm.Job("job", outputs={"hours": tm.memory(hourly(source), table)}, store=str(lab.folder / "store"))
    first = tm.run(job, spark=lab.spark, clock=lab.clock, max_epochs=2, end_of_input=True, handle_signals=False)
    assert [(epoch.epoch, epoch.end_of_input) for epoch in first.epochs] == [(0, False), (1, False)]
    # Each element closes the hour before its own.
    assert memory_values(table, "total") == [0]
    rest = lab.run_job(job, {"hours": table})
    assert [epoch.epoch for epoch in rest.epochs] == [2, 3, 4, 5]
    assert sorted(rest.of("hours", "total")) == [1, 2, 3, 4]
