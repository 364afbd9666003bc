"""How fast staged rows are published to a table of Postgres, beside a plain COPY of the same rows.

    BENCH_DSN=postgresql://... python -m benchmarks.operation.postgres_sink --rows 1000000

Rows are about 100 bytes of text; staging, which Spark does, is not part of the figures. A plain COPY reads CSV that is ready in memory. The
tables are made in the schema ``public``, and dropped at the end.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from psycopg import sql

from tidemark.clock import SYSTEM_CLOCK
from tidemark.graph.connectors.database.node import TableMode
from tidemark.graph.connectors.postgres.node import PostgresTable
from tidemark.spark.sinks.database.publication import options_of
from tidemark.spark.sinks.delta.delta_changes import DELETED
from tidemark.spark.sinks.postgres.postgres_sink import PostgresSink
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store.store import JobStore

VARIABLE = "BENCH_DSN"
FILE_ROWS = 250_000
COLUMNS = "id bigint, zone integer, amount double precision, at timestamp with time zone, note text"
TYPES = {"id": "long", "zone": "integer", "amount": "double", "at": "timestamp", "note": "string"}
START = 1_700_000_000_000_000


def rows_of(first: int, count: int) -> pa.Table:
    """Return rows with consecutive ids."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "zone": pa.array([n % 263 for n in numbers], pa.int32()),
            "amount": pa.array([n % 10_000 / 100 for n in numbers], pa.float64()),
            "at": pa.array([START + 1_000 * n for n in numbers], pa.timestamp("us", "UTC")),
            "note": pa.array([f"{n:012d}{'x' * 28}" for n in numbers], pa.string()),
        }
    )


def parts(rows: int) -> Iterator[pa.Table]:
    """Yield rows as they lie in files."""
    for first in range(0, rows, FILE_ROWS):
        yield rows_of(first, min(FILE_ROWS, rows - first))


class Bench:
    """A folder for staged files, and the tables of a run."""

    def __init__(self, folder: str) -> None:
        self.store = JobStore.open(folder).at("bench")
        self.run = uuid.uuid4().hex[:8]
        self.tables: list[str] = []

    def table(self, name: str) -> str:
        """Return the name of a table of this run."""
        self.tables.append(f"bench_{name}_{self.run}")
        return self.tables[-1]

    def sink(self, name: str, mode: TableMode) -> PostgresSink:
        """Return a sink, whose table is made by its first epoch."""
        table = PostgresTable(VARIABLE, "public", self.table(name))
        return PostgresSink(name, table, SinkOwner(self.store, 1), mode=mode, keys=("id",) if mode == "upsert" else ())

    def stage(self, sink: PostgresSink, epoch: int, tables: Sequence[pa.Table]) -> OutputRecord:
        """Write rows as the engine stages them."""
        folder = sink.staging_folder(new_staging(self.run, epoch))
        folder = f"{folder}/{DELETED}=false" if sink.upserts else folder
        files = []
        for number, table in enumerate(tables):
            buffer = io.BytesIO()
            pq.write_table(table, buffer, compression="snappy")
            path = f"{folder}/part-{number:05d}.parquet"
            self.store.put(path, buffer.getvalue())
            files.append(StagedFile(path, table.num_rows, len(buffer.getvalue())))
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
        schema = json.dumps({"type": "struct", "fields": fields})
        options = options_of("upsert" if sink.upserts else "append", ("id",) if sink.upserts else ())
        return OutputRecord("postgres", sink.location, schema, tuple(files), sum(file.rows for file in files), options)

    def publish(self, sink: PostgresSink, epoch: int, tables: Sequence[pa.Table]) -> float:
        """Stage an epoch, and return how long its publication takes, seconds."""
        record = self.stage(sink, epoch, tables)
        return seconds(lambda: sink.publish(record, self.run, epoch))

    def drop(self) -> None:
        """Drop the tables."""
        with psycopg.connect(os.environ[VARIABLE]) as connection:
            for table in self.tables:
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier("public", table)))
            connection.execute("DELETE FROM public.tidemark_epochs WHERE job = 'bench'")


def seconds(run: Callable[[], object]) -> float:
    """Return how long something takes."""
    begun = SYSTEM_CLOCK.monotonic()
    run()
    return SYSTEM_CLOCK.monotonic() - begun


def copy(table: str, texts: Sequence[bytes]) -> None:
    """Copy CSV into an existing table, in one transaction."""
    with psycopg.connect(os.environ[VARIABLE]) as connection:
        statement = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(sql.Identifier("public", table))
        with connection.cursor().copy(statement) as copied:
            for text in texts:
                copied.write(text)


def csv_of(table: pa.Table) -> bytes:
    """Return rows as CSV."""
    written = pa.BufferOutputStream()
    pa_csv.write_csv(table, written, pa_csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return bytes(written.getvalue().to_pybytes())


def measure(bench: Bench, rows: int) -> dict[str, float]:
    """Return seconds by what was done."""
    tables = list(parts(rows))
    texts = [csv_of(batch) for table in tables for batch in (table.slice(first, 16_384) for first in range(0, table.num_rows, 16_384))]
    plain, keyed = bench.table("plain"), bench.table("keyed")
    with psycopg.connect(os.environ[VARIABLE]) as connection:
        connection.execute(f"CREATE TABLE public.{plain} ({COLUMNS})".encode())
        connection.execute(f"CREATE TABLE public.{keyed} ({COLUMNS}, UNIQUE NULLS NOT DISTINCT (id))".encode())
    append, upsert = bench.sink("append", "append"), bench.sink("upsert", "upsert")
    return {
        "COPY": seconds(lambda: copy(plain, texts)),
        "append": bench.publish(append, 0, tables),
        "COPY into a table with a key": seconds(lambda: copy(keyed, texts)),
        "upsert of new keys": bench.publish(upsert, 0, tables),
        "upsert of the same keys": bench.publish(upsert, 1, tables),
        "append of 10 rows": statistics.median(bench.publish(append, epoch, [rows_of(0, 10)]) for epoch in range(1, 51)),
    }


def main() -> None:
    """Print the medians of several rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: list[dict[str, float]] = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(folder)
            try:
                found.append(measure(bench, given.rows))
            finally:
                bench.drop()
    took = {name: statistics.median(each[name] for each in found) for name in found[0]}
    for name, beside in (
        ("COPY", "COPY"),
        ("append", "COPY"),
        ("COPY into a table with a key", "COPY"),
        ("upsert of new keys", "COPY into a table with a key"),
        ("upsert of the same keys", "COPY into a table with a key"),
    ):
        ratio = "" if name == beside else f", {took[name] / took[beside]:.2f} times as long as {beside}"
        print(f"{name}: {given.rows / took[name]:,.0f} rows/s ({took[name]:.2f} s{ratio})")
    print(f"an epoch of 10 rows: {took['append of 10 rows'] * 1000:.1f} ms")


if __name__ == "__main__":
    main()
