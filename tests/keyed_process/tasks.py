"""The tasks of a process function without Spark's jobs, epoch after epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.spark.columns.arrow_batches import POSITION_PARTS
from tidemark.spark.columns.expressions import TIME
from tidemark.spark.operators.keyed.columns import HASH, HASH_AGAIN, NEW, NOTE, TAG, VERSION, names_of
from tidemark.spark.operators.keyed.key_state import ErrorContext
from tidemark.spark.operators.keyed.layout import Layout
from tidemark.spark.operators.keyed.packed_input import times_of
from tidemark.spark.operators.keyed.packed_rows import CLOCK, DATA, PackTask, unpacked
from tidemark.spark.operators.keyed.packed_task import PackedKeyTask
from tidemark.spark.operators.keyed.task import KeyTask
from tidemark.spark.operators.keyed_process.columns import side_tags
from tidemark.spark.operators.keyed_process.layout import elements_of, layout_of


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

    def __init__(self, make: Any, node: KeyedProcessNode, types: Any = None) -> None:
        self.make, self.node, self.types = make, node, types or {}
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
            methods=self.node.methods,
            by_batch=self.node.by_batch,
            tags={tag.name: side_tags(self.node)[counter] for counter, tag in self.node.emitted_tags.items()},
            bound=times.bound,
            forgives=self.node.on_error is not None,
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
