"""A row is what it was when it was emitted, also if the function goes on with the same dict, or with a list or dict in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tidemark as tm
from tests.keyed_process.tasks import Tasks, by_tag
from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.user_rows import own_row
from tidemark.spark.operators.keyed.columns import OUTPUT
from tidemark.spark.operators.keyed_process.task import ProcessKeys
from tidemark.testing import OperatorHarness

SIDE, FAILED = tm.OutputTag("side"), tm.OutputTag("failed")
COLUMNS = "path ARRAY<BIGINT>, names MAP<STRING, BIGINT>, at STRUCT<x: ARRAY<BIGINT>>"
GIVEN = tm.from_elements([{"k": "k1", "t": 5, "ops": ""}], schema="k STRING, t BIGINT, ops STRING")
READ = tm.source("rows", GIVEN, watermarks=tm.ascending(timestamp="t"))
EXPECTED = [{"path": [*range(n + 1)], "names": {"n": n}, "at": {"x": [*range(n + 1)]}} for n in range(3)]


def grows(element: Any, ctx: tm.ProcessContext) -> Iterator[dict[str, Any]]:
    del element
    row: dict[str, Any] = {"path": [], "names": {}, "at": {"x": []}}
    for number in range(3):
        row["path"].append(number)
        row["at"]["x"].append(number)
        row["names"]["n"] = number
        ctx.output(SIDE, row)
        yield row


class GrowsInBatches:
    """The same of many elements at once."""

    def process_batch(self, elements: Any, ctx: tm.ProcessContext) -> Iterator[dict[str, Any]]:
        return grows(elements, ctx)


KEYED = READ.key_by("k")
STREAMS = {
    "keyed": KEYED.process(grows, returns=COLUMNS, side_outputs={SIDE: COLUMNS}).uid("p"),
    "with on_error": KEYED.process(grows, returns=COLUMNS, side_outputs={SIDE: COLUMNS}, on_error=FAILED).uid("p"),
    "in batches": KEYED.process(GrowsInBatches, returns=COLUMNS, side_outputs={SIDE: COLUMNS}).uid("p"),
    "without keys": READ.process(grows, returns=COLUMNS, side_outputs={SIDE: COLUMNS}),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_row_stays_as_it_was_emitted(kind: str) -> None:
    harness: Any = OperatorHarness(STREAMS[kind])
    harness.process({"k": "a", "t": 5, "ops": ""}, at=5)
    rows = [*harness.advance_watermark(10), *harness.side_output(SIDE)]
    assert [{name: dict(value) if name == "names" else value for name, value in row.items()} for row in rows] == 2 * EXPECTED


@pytest.mark.usefixtures("spark")
def test_a_row_stays_as_it_was_emitted_where_all_keys_are_processed_at_once() -> None:
    node = STREAMS["keyed"].node
    assert isinstance(node, KeyedProcessNode)
    found = by_tag(Tasks(ProcessKeys, node).run([("k1", 5, "")], EpochTimes(0, 10, 0, 0)))
    rows = [{name: json.loads(row)[f"result_{name}"] for name in ("path", "names", "at")} for row in found[OUTPUT]]
    assert [{**row, "names": dict(row["names"])} for row in rows] == EXPECTED


def test_all_that_can_be_changed_is_copied() -> None:
    numbers, bits, row = np.arange(3), bytearray(b"ab"), {"a": [{"b": (1, [2])}]}
    row |= {"numbers": numbers, "bits": bits, "text": "a", "nothing": None}  # type: ignore[dict-item]
    found: dict[str, Any] = own_row(row)
    numbers[0], bits[0] = 7, 0
    row["a"][0]["b"][1].append(3)
    assert (found["a"], found["numbers"].tolist(), found["bits"]) == ([{"b": (1, [2])}], [0, 1, 2], b"ab")
    assert (found["text"], found["nothing"]) == ("a", None)


def misfit(element: Any, ctx: tm.ProcessContext) -> Iterator[dict[str, Any]]:
    del ctx
    yield {"n": "text" if element["t"] == 7 else 1}


@pytest.mark.usefixtures("spark")
def test_a_row_that_does_not_fit_is_not_blamed_on_a_key_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    # With so many rows the output is full only after the bad one.
    monkeypatch.setattr("tidemark.spark.operators.keyed.output_buffer.MAX_ROWS", 3)
    node = KEYED.process(misfit, returns="n BIGINT", on_error=FAILED).uid("p").node
    assert isinstance(node, KeyedProcessNode)
    with pytest.raises(UserCodeError) as failed:
        Tasks(ProcessKeys, node).run([("k1", 7, ""), ("k3", 5, ""), ("k5", 5, "")], EpochTimes(0, 10, 0, 0))
    assert "'k1'" in failed.value.what
    assert "k5" not in failed.value.what
    assert "element" not in failed.value.what
