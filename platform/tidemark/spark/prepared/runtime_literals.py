"""Numbers that differ between epochs, as SQL for which Spark generates the same code."""

from __future__ import annotations

from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import START


def runtime_literals(*values: int, varying: str = START) -> list[str]:
    """Return one BIGINT expression per number.

    Spark writes a number into the code that it compiles, so each epoch would be compiled, and warmed up, again; it passes an array as
    an argument. The index, always the item's number, uses a BIGINT column so that Spark does not fold it into a constant.

    Args:
        values: numbers, clamped to the range of watermarks.
        varying: a BIGINT column of the rows that the expressions are used on.
    """
    array = ", ".join(literal(clamp_watermark(value)) for value in values)
    return [f"get(array({array}), CAST(pmod({varying}, 1) AS INT) + {number})" for number in range(len(values))]


def literal(value: int) -> str:
    """Return a BIGINT literal; the least one has no direct form, since it is parsed as minus a number that is too great."""
    return f"{value}L" if value > MIN_WATERMARK else f"({value + 1}L - 1L)"
