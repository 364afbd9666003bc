"""Numbers that differ from epoch to epoch, as SQL that leaves the code made for a plan the same."""

from __future__ import annotations

from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import START
from tidemark.spark.operators.base.contract import clamp_watermark


def runtime_literals(*values: int, varying: str = START) -> list[str]:
    """Return one BIGINT expression per number.

    Spark writes a number into the code that it compiles, so that each epoch would be compiled, and warmed up, anew; an array it
    passes in. The index, always the item's number, is written with a BIGINT column so that Spark does not work it out beforehand.

    Args:
        values: numbers, cut to what a watermark can be.
        varying: a BIGINT column of the rows that the expressions are for.
    """
    array = ", ".join(literal(clamp_watermark(value)) for value in values)
    return [f"get(array({array}), CAST(pmod({varying}, 1) AS INT) + {number})" for number in range(len(values))]


def literal(value: int) -> str:
    """Return a BIGINT literal; the least one has no direct form, since the minus sign stands before a number that is too great."""
    return f"{value}L" if value > MIN_WATERMARK else f"({value + 1}L - 1L)"
