"""The first start of an output into a place that has rows of others: it goes on, and is said once; no Spark runs here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import tidemark as tm
from tests.engine.lab import elements
from tidemark.spark.loop.empty_tables import make_tables
from tidemark.spark.sinks.sinks import bind_sinks
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OutputRecord
from tidemark.state.log.totals import empty_totals
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)
"""What is there has its columns, so the job's code is not asked for any."""


def test_rows_of_others_are_said_at_the_first_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = pa.table({"k": ["theirs"], "t": [1]})
    for name in ("append", "upsert"):
        write_deltalake(str(tmp_path / name), rows)
    (tmp_path / "files").mkdir()
    pq.write_table(rows, tmp_path / "files" / "part-0.parquet")
    stream = elements([("a", 1)], schema="k STRING, t BIGINT").select("k", "t")
    outputs = {
        "append": tm.delta(stream, str(tmp_path / "append")),
        "upsert": tm.delta(stream, str(tmp_path / "upsert"), mode="upsert", keys=["k"]),
        "files": tm.parquet(stream, str(tmp_path / "files")),
    }
    job = tm.Job("taking", outputs=outputs)
    store = JobStore.open(str(tmp_path / "store")).at("taking")
    sinks = bind_sinks(job.outputs, SinkOwner(store))
    make_tables(NO_SPARK, job, store.at("elements"), sinks, head=None, version="1")
    said = [message for message in caplog.messages if "there are rows already" in message]
    assert [text.partition("; its own ")[2] for text in said] == [
        "are added",
        "replace those with the same keys, or are added",
        "are added",
    ]
    assert f"output 'append': there are rows already in the table {tmp_path}/append, which by its log this job did not write" in said[0]
    assert "in the folder" in said[2]

    # Once an epoch names the places it is not said again, also where it had no rows for them.
    caplog.clear()
    progress = EpochProgress("taking", "a1", 0, 1, 0, 0, 0)
    known = {name: OutputRecord(sinks[name].sink.kind, sinks[name].sink.location) for name in outputs}
    totals = empty_totals()
    totals["outputs"] = dict.fromkeys(outputs, 0)
    head = EpochRecord("taking", "a1", None, 1, 0, 1, "", progress, outputs=known, totals=totals, code_version="1")
    make_tables(NO_SPARK, job, store.at("elements"), sinks, head=head, version="1")
    assert not caplog.messages
