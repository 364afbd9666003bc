"""What a run of the killed job left, in a form in which two runs can be compared; and what must hold at any moment."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.crash.fares import DELTA_OUTPUTS, PARQUET_OUTPUTS
from tidemark.savepoints.delta.result_tables import COLUMNS_FILE
from tidemark.semantics.watermarks.watermarks import SourceState
from tidemark.state.gc.sweep import referenced_files
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.log.totals import Totals
from tidemark.state.status.history import read_history
from tidemark.state.store.store import JobStore

JOB = "fares"
CHANGES = {"dice", "read_at"}
"""Columns that a repeated epoch may fill otherwise: by chance, and by the clock."""

Rows = Counter[tuple[object, ...]]


@dataclass(frozen=True)
class Outcome:
    """Tables as multisets of rows, counts, watermarks, and the rows of the state."""

    epoch: int
    tables: dict[str, Rows]
    totals: Totals
    sources: dict[str, SourceState]
    watermarks: dict[str, int]
    state: dict[str, Rows]


def outcome_of(folder: Path) -> Outcome:
    """Return what the job has left below a folder."""
    head = head_of(folder)
    assert head is not None
    return Outcome(
        epoch=head.epoch,
        tables={name: rows_of(table_of(folder, name)) for name in (*DELTA_OUTPUTS, *PARQUET_OUTPUTS)},
        totals=head.totals,
        sources={name: _settled(state) for name, state in head.sources.items()},
        watermarks={uid: state.watermark for uid, state in head.operators.items()},
        state={uid: rows_of(_read(store_of(folder), [file.path for file in state.files])) for uid, state in head.operators.items()},
    )


def _settled(state: SourceState) -> SourceState:
    """Return a source's state without the processing time at which a split was last active."""
    return replace(state, splits={name: replace(split, last_active=0) for name, split in state.splits.items()})


def store_of(folder: Path) -> JobStore:
    """Return the job's own folder in its store."""
    return JobStore.open(str(folder / "store")).at(JOB)


def log_of(folder: Path) -> JobLog:
    """Return the job's log."""
    return JobLog(store_of(folder), JOB)


def head_of(folder: Path) -> EpochRecord | None:
    """Return the newest committed epoch."""
    return log_of(folder).load().epoch


def table_of(folder: Path, name: str) -> pa.Table | None:
    """Return an output as its readers see it, None where there is none yet."""
    place = folder / name
    if name in DELTA_OUTPUTS:
        return DeltaTable(str(place)).to_pyarrow_table() if DeltaTable.is_deltatable(str(place)) else None
    return _read(JobStore.open(str(place)), [path.name for path in place.glob("*.parquet")])


def rows_of(table: pa.Table | None) -> Rows:
    """Return the rows of a table, as often as they occur, without the columns that may differ."""
    if table is None:
        return Counter()
    kept = [name for name in table.column_names if name not in CHANGES]
    return Counter(tuple(row[name] for name in kept) for row in table.select(kept).to_pylist())


def check_visible(folder: Path) -> None:
    """Hold a reader's view, at whatever moment, against the log: all of the older epochs is there, once, and nothing foreign.

    Of the newest epoch a Delta table shows all or nothing, and a Parquet folder the first so many of its files.
    """
    head = head_of(folder)
    past = read_history(JobStore.open(str(folder / "store")), JOB)
    for name in (*DELTA_OUTPUTS, *PARQUET_OUTPUTS):
        shown = files_shown(folder, name)
        assert head is not None or not shown, f"{name} shows rows before any epoch is committed"
        if head is None:
            continue
        rows: Counter[int] = Counter()
        for file, count in shown.items():
            _, lineage, epoch, *_ = file.split("-")
            assert lineage == head.lineage, f"{name} shows a file of another lineage: {file}"
            rows[int(epoch)] += count
        rows.pop(head.epoch, None)
        assert dict(rows) == {
            epoch.epoch: epoch.outputs[name].rows for epoch in past if epoch.epoch < head.epoch and epoch.outputs[name].rows
        }
        newest = {file: count for file, count in shown.items() if int(file.split("-")[2]) == head.epoch}
        wanted = head.outputs[name].files
        if name in DELTA_OUTPUTS:
            assert list(newest) in ([], sorted(file.path for file in wanted)), f"{name} shows another staging of epoch {head.epoch}"
            version = DeltaTable(str(folder / name)).transaction_version(f"{head.lineage}/{name}") if newest else None
            assert version == (head.epoch if newest else None)
        else:
            final = {f"part-{head.lineage}-{head.epoch:012d}-{number:05d}.parquet": file.rows for number, file in enumerate(wanted)}
            assert list(newest.items()) == list(final.items())[: len(newest)], f"{name} shows other files than those of epoch {head.epoch}"


def files_shown(folder: Path, name: str) -> dict[str, int]:
    """Return the files that an output's readers see, in order, with how many rows each has."""
    place = folder / name
    if name in DELTA_OUTPUTS:
        if not DeltaTable.is_deltatable(str(place)):
            return {}
        actions = pa.table(DeltaTable(str(place)).get_add_actions())
        found = dict(zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True))
    else:
        # One has no rows: it is there from the start, and tells the columns.
        paths = [path.relative_to(place) for path in place.rglob("*.parquet") if path.name != COLUMNS_FILE]
        hidden = ("_", ".")
        found = {str(path): pq.read_metadata(place / path).num_rows for path in paths if not any(p.startswith(hidden) for p in path.parts)}
    return dict(sorted(found.items()))


def check_complete(folder: Path, lines: int) -> None:
    """Hold the finished tables against each other, the log and the input: every row once, and nothing without its reason."""
    head = head_of(folder)
    assert head is not None
    for name in DELTA_OUTPUTS:
        written = [epoch.epoch for epoch in read_history(JobStore.open(str(folder / "store")), JOB) if epoch.outputs[name].rows]
        table = DeltaTable(str(folder / name))
        assert table.transaction_version(f"{head.lineage}/{name}") == max(written)
        commits = [int(commit["tidemark.epoch"]) for commit in reversed(table.history()) if "tidemark.epoch" in commit]
        assert commits == written, f"{name} was not committed to once for each epoch, in their order"
    tables = {name: table_of(folder, name) for name in (*DELTA_OUTPUTS, *PARQUET_OUTPUTS)}
    panes = Counter((row["zone"], row["window_start"], row["pane_index"]) for row in _rows(tables["hourly"]))
    assert max(panes.values()) == 1, "a pane is there twice"
    ids = [row["id"] for row in _rows(tables["fares"])]
    assert len(set(ids)) == len(ids), "a row is there twice"
    counted = {name: len(_rows(table)) for name, table in tables.items()}
    totals = head.totals
    assert counted == dict(totals["outputs"])
    assert totals["sources"]["fares"] == {
        "read": lines,
        "passed": counted["fares"] + counted["rejected"],
        "malformed": counted["malformed"],
    }
    operator = totals["operators"]["hourly"]
    assert (operator["in"], operator["late"]) == (counted["fares"], counted["late"])
    assert operator["in"] == operator["accepted"] + operator["late"]
    newest: dict[tuple[object, object], tuple[int, int]] = {}
    for row in _rows(tables["hourly"]):
        key = row["zone"], row["window_start"]
        newest[key] = max(newest.get(key, (-1, 0)), (row["pane_index"], row["fares"]))
    assert sum(fares for _, fares in newest.values()) == operator["accepted"], "a window lost or counted twice what it accepted"
    history = [epoch.epoch for epoch in read_history(JobStore.open(str(folder / "store")), JOB)]
    assert history == list(range(head.epoch + 1))


def check_swept(folder: Path) -> None:
    """Look for what nobody refers to any more: state, segments, source logs, stagings, empty folders."""
    store = store_of(folder)
    there = {file.path for part in ("state", "segments", "sources") for file in store.list(part)}
    assert {path for path in there if not path.rpartition("/")[2].startswith(".")} == set(referenced_files(log_of(folder)))
    for name in DELTA_OUTPUTS:
        files = map(str, DeltaTable(str(folder / name)).get_add_actions()["path"].to_pylist())
        stagings = {path.name for path in (folder / name).iterdir() if path.name.startswith("tidemark-")}
        assert stagings == {file.split("/")[0] for file in files}, f"{name} has stagings that it does not show"
    for name in PARQUET_OUTPUTS:
        # The note of what was published is no staging.
        assert [path.suffix for path in (folder / name / "_tidemark").rglob("*")] == [".json"]
    assert [path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())] == []
    assert list(folder.rglob("_temporary")) == []


def _rows(table: pa.Table | None) -> list[dict[str, Any]]:
    return [] if table is None else table.to_pylist()


def _read(store: JobStore, paths: list[str]) -> pa.Table | None:
    tables = [pq.read_table(io.BytesIO(store.get(path))) for path in paths]
    return pa.concat_tables(tables, promote_options="permissive") if tables else None
