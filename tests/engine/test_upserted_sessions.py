"""Upserted tables of sessions: whatever merges, every element that was not late is in exactly one row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, Schema

import tidemark as tm
from tests.engine.lab import NOW, elements
from tests.milliseconds import ms
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.windows.assigners import DynamicSession
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from tidemark.semantics.process.window_function_calls import WindowContext

SCHEMA = "k STRING, t BIGINT, g BIGINT"
LATENESS = 30
KEYS = ("a", "b", "c", None)
Rows = list[tuple[str | None, int, int]]
Table = dict[tuple[str | None, int, int], int]

SAME_START: list[Rows] = [[("a", 5, 1), ("b", 100, 1)], [("a", 5, 400)]]
"""The session [5, 6) is over and its result out when another one begins at 5: it is [5, 405)."""


def drawn(seed: int, *, epochs: int = 10) -> list[Rows]:
    """Return elements with gaps of their own, some of them late, that make sessions begin, grow both ways and merge."""
    dice = Random(seed)
    rows = [[(key, 20 * number + dice.randrange(-60, 40), dice.choice([1, 3, 8, 20])) for key in KEYS * 4] for number in range(epochs)]
    return [[*SAME_START[number], *epoch] if number < len(SAME_START) else epoch for number, epoch in enumerate(rows)]


def results_of(epochs: Sequence[Rows], lateness: int) -> Sequence[EpochResult]:
    """Return what the reference says of each epoch."""
    counted: Fold[int] = Fold(create=int, add=lambda n, *_: n + 1, result=int)
    strategy = {"e": tm.bounded_out_of_orderness("0 ms", timestamp="t")}
    given = [
        Epoch(
            tuple(Element((key,), t, None, "e", "", (number, place), gap_ms=gap) for place, (key, t, gap) in enumerate(rows)),
            processing_time=NOW,
            behind=frozenset(["e"] if number + 1 < len(epochs) else []),
        )
        for number, rows in enumerate(epochs)
    ]
    job = ReferenceJob(strategy, DynamicSession("g"), counted, lateness)
    return list(run_reference(job, [*given, Epoch(processing_time=NOW, end_of_input=True)]))


def upserted(results: Iterable[EpochResult]) -> Table:
    """Return the table that all panes make: by key, start and end how many elements."""
    table: Table = {}
    for pane in (pane for result in results for pane in result.panes):
        (key,) = pane.key
        assert key is None or isinstance(key, str)
        for start, end in pane.replaces:
            assert end is not None
            del table[key, start, end]
        table[key, pane.window.start, pane.window.end] = int(str(pane.result))
    return table


def test_the_reference_loses_no_element() -> None:
    starts_shared, replaced = 0, 0
    for seed in range(20):
        for lateness in (0, LATENESS):
            results = results_of(drawn(seed), lateness)
            table = upserted(results)
            assert sum(table.values()) == sum(result.counts.accepted for result in results)
            starts_shared += len(table) - len({(key, start) for key, start, _ in table})
            replaced += sum(len(pane.replaces) for result in results for pane in result.panes)
    assert starts_shared >= 10
    assert replaced >= 100


def count_all(rows: Iterable[Mapping[str, Any]], context: WindowContext) -> list[dict[str, int]]:  # noqa: ARG001
    return [{"n": len(list(rows))}]


def millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def table_at(path: Path) -> Table:
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    found = {(row["k"], millis(row["window_start"]), millis(row["window_end"])): row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def replaced_at(path: Path) -> dict[tuple[str | None, int, int], set[int]]:
    """Return the starts of what rows replace."""
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return {
        (row["k"], millis(row["window_start"]), millis(row["window_end"])): {
            millis(each["window_start"] if isinstance(each, dict) else each) for each in row["replaces"]
        }
        for row in rows
    }


OLDER_TABLE = (
    ("k", "string"),
    ("window_start", "timestamp"),
    ("window_end", "timestamp"),
    ("n", "long"),
    ("pane_timing", "string"),
    ("pane_index", "integer"),
    ("replaces", {"type": "array", "elementType": "timestamp", "containsNull": True}),
)
"""Columns of a table that an earlier release made."""


EPOCHS = drawn(217, epochs=4)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that one job upserts."""
    folder = tmp_path_factory.mktemp("sessions")
    gaps = elements(*EPOCHS, schema=SCHEMA).key_by("k").window(tm.session(gap_by="g"))
    late = gaps.allowed_lateness(ms(LATENESS)).aggregate(n=tm.count()).uid("late")
    same = elements(*SAME_START, schema=SCHEMA, name="same").key_by("k").window(tm.session(gap_by="g"))
    streams = {
        "plain": gaps.aggregate(n=tm.count()).uid("plain"),
        "late": late,
        "older": late,
        "called": gaps.allowed_lateness(ms(LATENESS)).process(count_all, returns="n BIGINT").uid("called"),
        "same": same.aggregate(n=tm.count()).uid("same"),
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in OLDER_TABLE]
    DeltaTable.create(str(folder / "older"), Schema.from_json(json.dumps({"type": "struct", "fields": fields})))
    outputs = {name: tm.delta(stream, str(folder / name), mode="upsert") for name, stream in streams.items()}
    job = tm.Job("sessions", outputs=outputs, store=str(folder / "store"), parallelism=2)
    tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True, handle_signals=False)
    return folder


@pytest.mark.spark
def test_upserted_sessions_are_those_of_the_reference(tables: Path) -> None:
    for name in ("plain", "late", "older", "called"):
        results = results_of(EPOCHS, 0 if name == "plain" else LATENESS)
        assert table_at(tables / name) == upserted(results), name
        assert sum(len(pane.replaces) for result in results for pane in result.panes) >= (0 if name == "plain" else 5), name
    assert replaced_at(tables / "older") == replaced_at(tables / "late")
    assert any(replaced_at(tables / "older").values())


@pytest.mark.spark
def test_two_sessions_that_begin_at_the_same_time_are_both_there(tables: Path) -> None:
    assert table_at(tables / "same") == {("a", 5, 6): 1, ("a", 5, 405): 1, ("b", 100, 101): 1}
