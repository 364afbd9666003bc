"""Few lines of text files are read by a plan that is kept between epochs, as DataFrames read them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

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


def lines_of_rides(epochs: int) -> list[bytes]:
    """Return lines of key and time by epoch, whose ends are of each kind; one has no time."""
    ends = (b"\n", b"\r\n", b"\r")
    rows = ((b"a", 1), (b"b", 2), (b"a", 3))
    return [b"".join(b"%s,%d%s" % (key, epoch * MINUTE + at, ends[epoch % 3]) for key, at in rows) for epoch in range(epochs)]


def test_lines_of_text_files_are_read_by_a_kept_plan_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = Passes(monkeypatch)
    landing = tmp_path / "lines"
    landing.mkdir()
    odd = [b"", b"\xef\xbb\xbfcaf\xe9,9\n\n", b"a," + b"x" * 9 + b"\n", b"a,5\n" * (few_rows.FEW_ROWS + 1)]
    for number, text in enumerate([*lines_of_rides(5), *odd]):
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
        return list(done.epochs), sorted(map(repr, spark.read.parquet(str(out)).collect()))

    passes.after(NEVER)
    made = run("made")
    passes.after(0)
    epochs, rows = run("prepared")
    assert passes.refused == {}
    # The file of many lines, and the compressed one, are read by DataFrames.
    assert sum(name.startswith("process per-minute") for name in passes.ran) == 8
    assert (counted(epochs), rows) == (counted(made[0]), made[1])
