"""Delta tables without Spark: epochs staged with pyarrow, rewritten with pyarrow, and a plain dictionary of what must be there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.spark.sinks.delta.delta_rewrite import Change
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.staging.staging import new_staging
from tidemark.state.log.parquet_files import describe_parquet
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store.store import JobStore

LINEAGE = "0123456789abcdef"
INSTANT = pa.timestamp("us", "UTC")
MILLIS = pa.timestamp("ms", "UTC")
COLUMNS = pa.schema(
    [
        ("k", pa.string()),
        ("window_start", INSTANT),
        ("window_end", INSTANT),
        ("n", pa.int64()),
        ("pane_index", pa.int32()),
        ("replaces", pa.list_(INSTANT)),
    ]
)
TIMES = {"type": "array", "elementType": "timestamp", "containsNull": True}
TYPES = {"k": "string", "window_start": "timestamp", "window_end": "timestamp", "n": "long", "pane_index": "integer", "replaces": TIMES}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
SCHEMA = json.dumps({"type": "struct", "fields": FIELDS})
SESSIONS = Upsert(("k", "window_start"))
WINDOWS = Upsert(("k", "window_start", "window_end"))

Key = tuple[Any, ...]
Row = dict[str, Any]


def row(key: str | None, start: int | None, n: int = 0, *, end: int | None = None, pane: int = 0, replaces: Sequence[int] = ()) -> Row:
    """Return a result row; times are milliseconds, and a window is 10 of them unless it has an end."""
    until = end if end is not None or start is None else start + 10
    return {"k": key, "window_start": start, "window_end": until, "n": n, "pane_index": pane, "replaces": list(replaces)}


def in_numbers(table: pa.Table) -> list[Row]:
    """Return rows as ``row`` makes them."""
    numbers = {INSTANT: (MILLIS, pa.int64()), pa.list_(INSTANT): (pa.list_(MILLIS), pa.list_(pa.int64()))}
    found = {}
    for name in COLUMNS.names:
        column = table[name].cast(COLUMNS.field(name).type)
        for kind in numbers.get(column.type, ()):
            column = column.cast(kind)
        found[name] = column
    rows: list[Row] = pa.table(found).to_pylist()
    return rows


def as_table(rows: Iterable[Row]) -> pa.Table:
    kinds = {INSTANT: MILLIS, pa.list_(INSTANT): pa.list_(MILLIS)}
    millis = pa.schema([(field.name, kinds.get(field.type, field.type)) for field in COLUMNS])
    return pa.Table.from_pylist(list(rows), schema=millis).cast(COLUMNS)


class ArrowRewriter:
    """Does what Spark does, for a few rows, and counts which files it read."""

    file_bytes = 64 * 1024 * 1024

    def __init__(self, store: JobStore) -> None:
        self.store = store
        self.keys_read: list[str] = []
        self.rewritten: list[str] = []

    def starts(self, change: Change, limit: int) -> list[int | None] | None:
        found = {key[change.upsert.keys.index("window_start")] for key in self._gone(change)}
        return None if len(found) > limit else [None if start is None else start * 1000 for start in found]

    def touched(self, change: Change, files: Sequence[LiveFile]) -> dict[str, int]:
        self.keys_read += [file.path for file in files]
        gone = self._gone(change)
        counts = {file.path: sum(_key(found, change.upsert) in gone for found in self._rows(file.path)) for file in files}
        return {path: count for path, count in counts.items() if count}

    def survivors(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:  # noqa: ARG002
        self.rewritten += [file.path for file in files]
        gone = self._gone(change)
        return self._write([found for file in files for found in self._rows(file.path) if _key(found, change.upsert) not in gone], folder)

    def versions(self, schema: str, change: Change, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:
        raise NotImplementedError

    def merged(self, schema: str, files: Sequence[LiveFile], folder: str) -> list[StagedFile]:  # noqa: ARG002
        return self._write([found for file in files for found in self._rows(file.path)], folder)

    def _gone(self, change: Change) -> set[Key]:
        rows = [found for file in change.files for found in self._rows(file.path)]
        own = {_key(found, change.upsert) for found in rows}
        if change.upsert.replaced_by(change.type) is None:
            return own
        return own | {_key({**found, "window_start": start}, change.upsert) for found in rows for start in found["replaces"] or ()}

    def _rows(self, path: str) -> list[Row]:
        return in_numbers(pq.read_table(io.BytesIO(self.store.get(path))))

    def _write(self, rows: list[Row], folder: str) -> list[StagedFile]:
        return write(self.store, rows, f"{folder}/part-00000.parquet")


def _key(found: Row, upsert: Upsert) -> Key:
    return tuple(found[name] for name in upsert.keys)


def write(store: JobStore, rows: Iterable[Row], path: str) -> list[StagedFile]:
    """Write rows into a file, unless there are none."""
    table = as_table(rows)
    if not table.num_rows:
        return []
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    store.put(path, buffer.getvalue().to_pybytes())
    return [file.as_staged_file() for file in describe_parquet(store, [path])]


@dataclass
class Rig:
    """A table with one output, and what it must hold."""

    folder: Path
    upsert: Upsert | None = WINDOWS
    epoch: int = -1
    model: dict[Key, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget all that a process knows of the table."""
        self.sink = DeltaSink("rows", str(self.folder), self.upsert)
        self.store = self.sink.staging
        self.rewriter = ArrowRewriter(self.store)
        self.sink = DeltaSink("rows", str(self.folder), self.upsert, self.rewriter)
        # No savepoint needs any version.
        self.sink.protect_versions(frozenset())

    def stage(self, *rows: Row, files: int = 1) -> OutputRecord:
        """Stage the rows of the next epoch; the model has them, too."""
        self.epoch += 1
        folder = self.sink.staging_folder(new_staging(LINEAGE, self.epoch))
        parts = [rows[number::files] for number in range(files)]
        staged = [file for number, part in enumerate(parts) for file in write(self.store, part, f"{folder}/part-{number:05d}.parquet")]
        for found in rows:
            if self.upsert is None:
                self.model[len(self.model),] = found
                continue
            if "window_end" not in self.upsert.keys:
                for start in found["replaces"]:
                    self.model.pop(_key({**found, "window_start": start}, self.upsert), None)
            self.model[_key(found, self.upsert)] = found
        options: dict[str, str] = dict(self.upsert.options) if self.upsert else {}
        if options and (starts := [start * 1000 for found in rows for start in found["replaces"]]):
            options["replaces"] = json.dumps([min(starts), max(starts)])
        return OutputRecord("delta", self.sink.location, SCHEMA, tuple(staged), len(rows), options)

    def publish(self, record: OutputRecord) -> None:
        self.sink.publish(record, LINEAGE, self.epoch)

    def run(self, *rows: Row, files: int = 1) -> None:
        """Stage and publish an epoch."""
        self.publish(self.stage(*rows, files=files))

    @property
    def table(self) -> DeltaTable:
        """The table as a reader opens it."""
        return DeltaTable(str(self.folder))

    @property
    def rows(self) -> list[Row]:
        """What a reader finds, in the order of the text."""
        return sorted(in_numbers(self.table.to_pyarrow_table()), key=str)

    @property
    def expected(self) -> list[Row]:
        return sorted(self.model.values(), key=str)

    @property
    def live(self) -> list[str]:
        """The files that a reader is shown."""
        return [str(path) for path in self.table.get_add_actions()["path"].to_pylist()]

    def files_there(self) -> set[str]:
        """The Parquet files that lie in the table's folder, shown or not."""
        return {file.path for file in self.store.list() if file.path.endswith(".parquet") and not file.path.startswith("_delta_log")}
