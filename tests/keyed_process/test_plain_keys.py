"""A task that processes all of its keys at once returns what one returns that processes key by key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import tidemark as tm
from tests.keyed_process.worlds import BOUND, SCHEMA, VARIANTS, World
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process import plain_walk
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.arrow_batches import POSITION_PARTS
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.keyed.columns import HASH, HASH_AGAIN, NEW, NOTE, TAG, VERSION, names_of
from tidemark.spark.operators.keyed.key_state import ErrorContext
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer
from tidemark.spark.operators.keyed.packed_input import times_of
from tidemark.spark.operators.keyed.packed_rows import CLOCK, DATA, PackTask, unpacked
from tidemark.spark.operators.keyed.packed_task import PackedKeyTask
from tidemark.spark.operators.keyed.task import KeyTask
from tidemark.spark.operators.keyed_process import plain_keys
from tidemark.spark.operators.keyed_process.columns import side_tags
from tidemark.spark.operators.keyed_process.layout import elements_of, layout_of
from tidemark.spark.operators.keyed_process.task import ProcessKeys

KEYS = 60
LONG = pa.int64()
TYPES: Mapping[str, tuple[pa.DataType, pa.DataType | None]] = {
    "value": (LONG, None),
    "list": (LONG, None),
    "map": (LONG, LONG),
    "most": (LONG, None),
    "sum": (pa.struct([("total", LONG), ("n", LONG)]), None),
}


class KeyByKey(ProcessKeys):
    """Processes one key after the other."""

    walks_plainly = False


def without_failures(world: World) -> World:
    """Return a world whose calls do not fail."""
    on_timers = {key: [[op for op in ops if op[0] != "fail"] for ops in each] for key, each in world.on_timers.items()}
    epochs = [
        dataclasses.replace(
            epoch,
            elements={
                key: [(time, [op for op in ops if op[0] != "fail"]) for time, ops in elements] for key, elements in epoch.elements.items()
            },
        )
        for epoch in world.epochs
    ]
    return World(epochs, on_timers)


def with_clock(batches: Iterator[pa.RecordBatch], clock: OperatorClock) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column(CLOCK, pa.array([times_of(clock)] * batch.num_rows, pa.list_(pa.int64())))


class Tasks:
    """The tasks of an operator, one in each epoch, with the state that the ones before returned.

    Args:
        make: makes the function of a task.
        node: the operator.
        types: of its states.
    """

    def __init__(self, make: Any, node: KeyedProcessNode, types: Any = TYPES) -> None:
        self.make, self.node, self.types = make, node, types
        key = T.StructType([T.StructField("key_k", T.StringType())])
        (names,) = self.elements = elements_of(node, [("k", "t", "ops")])
        kinds = {"k": T.StringType(), "t": T.LongType(), "ops": T.StringType()}
        staged = T.StructType([*(T.StructField(stored, kinds[name]) for name, stored in names.items()), T.StructField(TIME, T.LongType())])
        self.layout = layout_of(node, key, self.elements, staged)
        self.versions: dict[str, dict[str, Any]] = {}
        self.epoch = 0

    def run(self, rows: list[tuple[str, int, str]], times: EpochTimes) -> list[str]:
        """Return the rows of an epoch, as texts, in order; state is kept."""
        self.epoch += 1
        layout = self.layout
        clock = OperatorClock("event", self.epoch, times.before, times.watermark, processing_time=times.processing_time)
        function = self.make(
            job="job",
            uid="uid",
            name="Programs",
            function=self.node.function,
            fields=False,
            states=dict(self.node.states),
            types=self.types,
            stored=names_of(layout.version_fields),
            elements=self.elements,
            methods=("process",),
            by_batch=False,
            tags={tag.name: side_tags(self.node)[counter] for counter, tag in self.node.emitted_tags.items()},
            bound=times.bound,
            forgives=False,
            broadcast={},
        )
        errors = ErrorContext("uid", "Programs", "correct the function", "Programs")
        task = partial(KeyTask, function, keys=layout.keys, schema=layout.arrow(layout.output), shapes=layout.shapes, errors=errors)
        packed = PackedKeyTask(task, layout.arrow(key_types(layout)), layout.arrow(layout.packed_output))
        found = [row for batch in packed(with_clock(self.input(rows), clock)) for row in self.rows_of(batch)]
        return [json.dumps(row, default=str) for row in found]

    def input(self, rows: list[tuple[str, int, str]]) -> Iterator[pa.RecordBatch]:
        names = self.elements[0]
        columns = {
            "key_k": [key for key, _, _ in rows],
            names["k"]: [key for key, _, _ in rows],
            names["t"]: [time for _, time, _ in rows],
            names["ops"]: [ops for _, _, ops in rows],
            TIME: [time for _, time, _ in rows],
            **dict(zip(POSITION_PARTS, ([""] * len(rows), [0] * len(rows), list(range(len(rows)))), strict=True)),
            # Of keys that have one hash the second tells them apart.
            HASH: [int(key[1:]) // 2 for key, _, _ in rows],
            HASH_AGAIN: [int(key[1:]) % 2 for key, _, _ in rows],
        }
        if rows:
            yield from PackTask(NEW, 1)([pa.RecordBatch.from_pydict(columns)])
        if self.versions:
            schema = self.layout.arrow(self.layout.versions)
            versions = pa.RecordBatch.from_pylist(list(self.versions.values()), schema)
            for name, values in (
                (HASH, [int(key[1:]) // 2 for key in self.versions]),
                (HASH_AGAIN, [int(key[1:]) % 2 for key in self.versions]),
            ):
                versions = versions.append_column(name, pa.array(values, pa.int64()))
            yield from PackTask(VERSION, 1)([versions])

    def rows_of(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        for row in batch.to_pylist():
            if row[TAG] == VERSION:
                self.versions[row["key_k"]] = {name: row[name] for name in self.layout.versions.names}
                yield row
            elif row[TAG] >= NOTE:
                yield row
            else:
                yield from ({TAG: row[TAG], **each} for each in unpacked(pa.scalar(row[DATA])).to_pylist())


def key_types(layout: Layout) -> T.StructType:
    return T.StructType([layout.fields[column] for column in layout.keys.values()])


def by_tag(rows: list[str]) -> dict[int, list[str]]:
    """Return rows by their tags: batches of different tags come in any order."""
    found: dict[int, list[str]] = {}
    for row in rows:
        found.setdefault(json.loads(row)[TAG], []).append(row)
    return found


def node_of(world: World) -> KeyedProcessNode:
    given = tm.from_elements(epochs=[epoch.rows for epoch in world.epochs], schema=SCHEMA)
    source = tm.source("programs", given, watermarks=tm.bounded_out_of_orderness(f"{BOUND} ms", timestamp="t"))
    node = world.stream(VARIANTS[0], "p", source).node
    assert isinstance(node, KeyedProcessNode)
    return dataclasses.replace(node, on_error=None)


@pytest.mark.parametrize("held", [1, 7, 5_000])
@pytest.mark.parametrize("at_once", [3, 10_000])
@pytest.mark.usefixtures("spark")
def test_all_keys_at_once_come_to_what_one_by_one_does(held: int, at_once: int) -> None:
    for seed in range(4):
        world = without_failures(World.draw(100 * held + seed, keys=KEYS, epochs=5))
        node = node_of(world)
        plain, general = Tasks(ProcessKeys, node), Tasks(KeyByKey, node)
        for number, epoch in enumerate(world.epochs):
            times = EpochTimes(epoch.before, epoch.watermark, BOUND, epoch.processing_time)
            # A key without elements may be due.
            rows = epoch.rows if number != 3 else []
            with (
                mock.patch.object(plain_walk, "ROWS_HELD", held),
                mock.patch.object(plain_keys, "ROWS_HELD", held),
                mock.patch("tidemark.spark.operators.keyed.packed_task.ROWS_AT_ONCE", at_once),
            ):
                found = by_tag(plain.run(rows, times))
            expected = by_tag(general.run(rows, times))
            assert set(expected) >= {VERSION, 4, NOTE, NOTE + 1}
            assert found == expected
            assert plain.versions == general.versions


SIDE = tm.OutputTag("side")


def seven(element: dict[str, Any], ctx: tm.ProcessContext) -> None:
    for number in range(7):
        ctx.output(SIDE, {"n": element["t"] * 100 + number})


@pytest.mark.usefixtures("spark")
def test_side_outputs_of_one_call_come_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_keys, "ROWS_HELD", 3)
    monkeypatch.setattr(plain_walk, "ROWS_HELD", 3)
    sizes: list[int] = []
    batch_of = OutputBuffer.batch_of

    def noted(buffer: OutputBuffer, tag: int, *rest: Any) -> pa.RecordBatch:
        made = batch_of(buffer, tag, *rest)
        sizes.append(made.num_rows)
        return made

    monkeypatch.setattr(OutputBuffer, "batch_of", noted)
    given = tm.from_elements([{"k": "k1", "t": 5, "ops": ""}], schema=SCHEMA)
    source = tm.source("rows", given, watermarks=tm.ascending(timestamp="t"))
    node = source.key_by("k").process(seven, returns="n BIGINT", side_outputs={SIDE: "n BIGINT"}).uid("p").node
    assert isinstance(node, KeyedProcessNode)
    found = by_tag(Tasks(ProcessKeys, node, {}).run([("k1", 5, "")], EpochTimes(0, 10, 0, 0)))
    assert sizes[:3] == [3, 3, 1], "rows of the side output, before the counts"
    numbers = [number for rows in found.values() for row in rows for number in json.loads(row).values()]
    assert [number for number in numbers if number in range(500, 507)] == [*range(500, 507)]
