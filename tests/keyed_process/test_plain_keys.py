"""A task that processes all of its keys at once returns what one returns that processes key by key."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import tidemark as tm
from tests.keyed_process.tasks import Tasks, by_tag
from tests.keyed_process.worlds import BOUND, SCHEMA, VARIANTS, World
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process import plain_walk
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.spark.operators.keyed.columns import NOTE, VERSION
from tidemark.spark.operators.keyed.output_buffer import OutputBuffer
from tidemark.spark.operators.keyed_process import plain_keys
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


def node_of(world: World) -> KeyedProcessNode:
    given = tm.from_elements(epochs=[epoch.rows for epoch in world.epochs], schema=SCHEMA)
    source = tm.source("programs", given, watermarks=tm.bounded_out_of_orderness(f"{BOUND} ms", timestamp="t"))
    node = world.stream(VARIANTS[0], "p", source).node
    assert isinstance(node, KeyedProcessNode)
    return dataclasses.replace(node, on_error=None)


@pytest.mark.parametrize("held", [1, 7, 5_000])
@pytest.mark.usefixtures("spark")
def test_all_keys_at_once_come_to_what_one_by_one_does(held: int) -> None:
    for seed in range(4):
        world = without_failures(World.draw(100 * held + seed, keys=KEYS, epochs=5))
        node = node_of(world)
        plain, general = {at_once: Tasks(ProcessKeys, node, TYPES) for at_once in (3, 10_000)}, Tasks(KeyByKey, node, TYPES)
        for number, epoch in enumerate(world.epochs):
            times = EpochTimes(epoch.before, epoch.watermark, BOUND, epoch.processing_time)
            # A key without elements may be due.
            rows = epoch.rows if number != 3 else []
            expected = by_tag(general.run(rows, times))
            assert set(expected) >= {VERSION, 4, NOTE, NOTE + 1}
            for at_once, tasks in plain.items():
                with (
                    mock.patch.object(plain_walk, "ROWS_HELD", held),
                    mock.patch.object(plain_keys, "ROWS_HELD", held),
                    mock.patch("tidemark.spark.operators.keyed.packed_task.ROWS_AT_ONCE", at_once),
                ):
                    found = by_tag(tasks.run(rows, times))
                assert found == expected, at_once
                assert tasks.versions == general.versions


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
    found = by_tag(Tasks(ProcessKeys, node).run([("k1", 5, "")], EpochTimes(0, 10, 0, 0)))
    assert sizes[:3] == [3, 3, 1], "rows of the side output, before the counts"
    numbers = [number for rows in found.values() for row in rows for number in json.loads(row).values()]
    assert [number for number in numbers if number in range(500, 507)] == [*range(500, 507)]
