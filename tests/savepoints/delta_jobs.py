"""Stored jobs that write to Delta tables as the sinks do: staged, committed with their epoch, published after it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.savepoints.stored_jobs import StoredJob
from tidemark.errors import TidemarkError
from tidemark.savepoints.rewind.rewinding import rewind
from tidemark.spark.sinks.delta.delta_commits import add_actions, new_attempt, remove_actions, rewrite
from tidemark.spark.sinks.delta.delta_files import live_files
from tidemark.state.delta.delta_hooks import KEEP_LOG
from tidemark.state.delta.delta_tags import EPOCH, JOB, LINEAGE, MAINTENANCE, REWRITE_FOLDER
from tidemark.state.log.records import EpochRecord, OutputRecord, StagedFile
from tidemark.state.store.store import JobStore

TABLES = ("hourly", "late")


def job_with_tables(folder: Path) -> StoredJob:
    """Return a job with two tables and a Parquet output; call it again for the same job after a crash."""
    staged = (StagedFile("a.parquet", 1, 1),)
    outputs = {name: OutputRecord("delta", str(folder / name), "{}", staged, 1) for name in TABLES}
    outputs["raw"] = OutputRecord("parquet", str(folder / "raw"))
    return StoredJob(JobStore.open(str(folder / "store")), outputs=outputs)


def run_epoch(job: StoredJob) -> EpochRecord:
    """Commit an epoch and publish it: each table gets one row, the epoch's number with its lineage."""
    record = job.commit()
    publish(record)
    return record


def publish(record: EpochRecord) -> None:
    for name, output in record.outputs.items():
        if output.sink == "delta" and output.files:
            properties = CommitProperties(
                custom_metadata={JOB: record.job, LINEAGE: record.lineage, EPOCH: str(record.epoch)},
                app_transactions=[Transaction(f"{record.lineage}/{name}", record.epoch)],
            )
            write(output.location or "", record.epoch, properties)


def write(location: str, value: int, properties: CommitProperties | None = None) -> None:
    """Add a row; without properties, as somebody else would."""
    hooks = KEEP_LOG if properties is not None else None
    write_deltalake(location, pa.table({"epoch": [value]}), mode="append", commit_properties=properties, post_commithook_properties=hooks)


def maintain(location: str) -> None:
    """Put a table's files into one, as Tidemark's maintenance: no row changes."""
    table = DeltaTable(location)
    attempt = new_attempt("tidemark-x", "compacted", table.version())
    merged, path = table.to_pyarrow_table(), f"{attempt}/part-0.parquet"
    (Path(location) / attempt).mkdir(parents=True)
    pq.write_table(merged, Path(location) / path)
    made = StagedFile(path, merged.num_rows, (Path(location) / path).stat().st_size)
    actions = [*add_actions([made], data_change=False), *remove_actions(live_files(table), data_change=False)]
    assert rewrite(table, actions, table.schema(), metadata={MAINTENANCE: "compact", REWRITE_FOLDER: attempt})


def rows(location: str | Path) -> list[int]:
    """Return the epochs that a table shows, sorted."""
    return sorted(DeltaTable(str(location)).to_pyarrow_table()["epoch"].to_pylist())


def rewind_in_process(folder: str, name: str) -> None:
    """Rewind the job in a folder; called in a process of its own, which is killed on the way."""
    from tidemark.testing.manual_clock import ManualClock

    try:
        rewind(JobStore.open(f"{folder}/store"), "taxi", name, clock=ManualClock(5_000_000_000_000))
    except TidemarkError as error:
        raise SystemExit(str(error)) from error
