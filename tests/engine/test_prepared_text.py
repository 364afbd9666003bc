"""Few lines of text, CSV and JSON files are read by a plan that is kept between epochs, as DataFrames read them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tests.engine.prepared_runs import NEVER, Passes, counted
from tidemark.spark.columns import few_rows
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MINUTE = 60_000
RIDES = 3
"""Epochs of rides."""


def lines_of_rides(epochs: int) -> list[bytes]:
    """Return lines of key and time by epoch, whose ends are of each kind; one has no time."""
    ends = (b"\n", b"\r\n", b"\r")
    rows = ((b"a", 1), (b"b", 2), (b"a", 3))
    return [b"".join(b"%s,%d%s" % (key, epoch * MINUTE + at, ends[epoch % 3]) for key, at in rows) for epoch in range(epochs)]


def records_of_rides(kind: str, epoch: int) -> list[str]:
    """Return rides of an epoch as records: two that can be read, one of which the unused column is no number, and one that is torn."""
    at = epoch * MINUTE
    if kind == "csv":
        return [f"a,{at + 1},1.5", f"b,{at + 2},", f"a,{at + 3},much", f"b,{at + 4}"]
    rows = [{"k": "a", "t": at + 1, "fare": 1.5}, {"k": "b", "t": at + 2}]
    # Two in one line, as an array.
    return [json.dumps(rows), json.dumps({"k": "a", "t": at + 3, "fare": "much"}), '{"k": "b", "t"']


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_records_are_read_by_a_kept_plan_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    passes = Passes(monkeypatch)
    landing = tmp_path / "rides"
    landing.mkdir()
    for epoch in range(RIDES):
        file = landing / f"{epoch}.{kind}"
        file.write_text("\n".join(records_of_rides(kind, epoch)) + "\n")
        os.utime(file, (1_600_000_000 + epoch,) * 2)

    def run(name: str) -> tuple[list[EpochProgress], list[dict[str, Any]], list[dict[str, Any]]]:
        files = tm.files(
            str(landing), format="csv" if kind == "csv" else "json", schema="k STRING, t BIGINT, fare DOUBLE", max_files_per_epoch=1
        )
        bad = tm.OutputTag("bad")
        rides = tm.source("rides", files, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"), malformed_to=bad)
        counts = rides.key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("per-minute")
        panes, malformed = tmp_path / name / "panes", tmp_path / name / "malformed"
        outputs = {"panes": tm.parquet(counts, str(panes)), "malformed": tm.parquet(rides.side_output(bad), str(malformed))}
        job = tm.Job(name, outputs=outputs, store=str(tmp_path / "store"))
        done = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True)
        for epoch in done.epochs:
            require_conservation(epoch)
        shown = [sorted(pq.read_table(path).to_pylist(), key=str) for path in (panes, malformed)]
        return list(done.epochs), shown[0], shown[1]

    passes.compare_once()
    passes.after(NEVER)
    made, *rows = run("made")
    passes.after(0)
    epochs, panes, malformed = run("prepared")
    assert passes.refused == {}
    assert sum(name.startswith("process per-minute") for name in passes.ran) == RIDES
    assert (counted(epochs), [panes, malformed]) == (counted(made), rows)
    # Also a value that the job does not use makes a record malformed.
    assert [row["n"] for row in panes] == [1] * 2 * RIDES
    assert sum("much" in row["raw"] for row in malformed) == RIDES == len(malformed) / 2


def test_lines_of_text_files_are_read_by_a_kept_plan_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    landing = tmp_path / "lines"
    landing.mkdir()
    odd = [b"", b"\xef\xbb\xbfcaf\xe9,9\n\n", b"a," + b"x" * 9 + b"\n", b"a,5\n" * (few_rows.FEW_ROWS + 1)]
    for number, text in enumerate([*lines_of_rides(RIDES), *odd]):
        (landing / f"{number}.txt").write_bytes(text)
        os.utime(landing / f"{number}.txt", (1_600_000_000 + number,) * 2)
    (landing / "9.txt.gz").write_bytes(gzip.compress(b"a,7\n"))
    os.utime(landing / "9.txt.gz", (1_600_000_009,) * 2)

    def run(name: str) -> tuple[list[EpochProgress], list[str]]:
        strategy = tm.bounded_out_of_orderness("1 minute", timestamp="try_cast(get(split(value, ','), 1) AS BIGINT)")
        lines = tm.source("lines", tm.files(str(landing), format="text", max_files_per_epoch=1), watermarks=strategy)
        keyed = lines.with_columns(k="split(value, ',')[0]").key_by("k").window(tm.tumbling("1 minute"))
        panes = keyed.aggregate(n=tm.count(), longest=tm.max("length(value)")).uid("per-minute")
        out = tmp_path / name
        job = tm.Job(name, outputs={"panes": tm.parquet(panes, str(out))}, store=str(tmp_path / "store"))
        done = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True)
        for epoch in done.epochs:
            require_conservation(epoch)
        return list(done.epochs), sorted(map(repr, pq.read_table(out).to_pylist()))

    passes.compare_once()
    passes.after(NEVER)
    made = run("made")
    passes.after(0)
    epochs, rows = run("prepared")
    assert passes.refused == {}
    # The file of many lines, and the compressed one, are read by DataFrames.
    assert sum(name.startswith("process per-minute") for name in passes.ran) == RIDES + 3
    assert (counted(epochs), rows) == (counted(made[0]), made[1])
