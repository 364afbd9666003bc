"""Which joins of an epoch look partners up in hash tables, which are never written to disk."""

from __future__ import annotations

import pytest

from tidemark.semantics.joins.interval import Side
from tidemark.spark.operators.interval_join.joining import HASHED_BYTES, HASHED_ROWS, JoinPart
from tidemark.state.log.records import StateFile


def file(rows: int, size: int = 1_000) -> StateFile:
    """Return a file of so many rows and bytes."""
    return StateFile("elements.parquet", rows, size, min_time=0, max_time=1, epoch=3)


@pytest.mark.parametrize(
    ("one", "other", "hashed"),
    [
        ([file(1_000)], [file(250)], True),
        ([file(1_000)], [file(249)], False),
        ([file(1_000)], [file(HASHED_ROWS)], True),
        ([file(HASHED_ROWS)], [file(HASHED_ROWS), file(1)], False),
        ([file(1_000)], [file(500, HASHED_BYTES), file(500, 0)], True),
        ([file(1_000)], [file(500, HASHED_BYTES), file(500, 1)], False),
    ],
    ids=["a quarter", "less than a quarter", "as many as may be", "too many rows", "as large as may be", "too large"],
)
def test_partners_are_hashed_up_to_a_size(*, one: list[StateFile], other: list[StateFile], hashed: bool) -> None:
    assert JoinPart("whole", "left", one, other, alone=("left",)).hashed is hashed


@pytest.mark.parametrize("alone", [(), ("left", "right")], ids=["inner", "full"])
def test_other_joins_are_left_to_spark(alone: tuple[Side, ...]) -> None:
    assert not JoinPart("whole", "left", [file(1_000)], [file(1_000)], alone=alone).hashed
