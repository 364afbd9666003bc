"""What the tasks of all operators over elements have in common: rows of a batch, errors, and the number of elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.graph.expressions.expression_text import shortened
from tidemark.semantics.user_lines import raised_at, source_of
from tidemark.semantics.user_mistakes import fix_of_call
from tidemark.semantics.user_rows import Row
from tidemark.spark.operators.keyed.key_state import one_line
from tidemark.spark.operators.keyed.python_values import not_utf8, python_values
from tidemark.spark.operators.keyed.rows import dicts_of

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_SHOWN = 300


def rows_of_batch(batch: pa.RecordBatch, columns: Mapping[str, str], *, uid: str) -> list[dict[str, object]]:
    """Return the rows of a batch as dicts; ``columns`` are names in the batch by names in the dicts.

    Raises:
        UserCodeError: a row has a text that Python cannot read; the error names the operator.
    """
    try:
        return dicts_of({name: python_values(batch.column(stored)) for name, stored in columns.items()}, batch.num_rows)
    except UnicodeDecodeError as error:
        raise not_utf8(error, uid=uid) from None


class Origin:
    """The element of a row, as errors show it."""

    __slots__ = ("_row",)

    def __init__(self, row: Row) -> None:
        self._row = row

    def __str__(self) -> str:
        return f"element {shortened(repr(dict(self._row)), _MAX_SHOWN)}"


def failed_call(name: str, error: BaseException, row: Row, *, uid: str, more: str = "") -> UserCodeError:
    """Return the error of a call for an element, with the line of the user's code; ``more`` follows what was raised."""
    place = raised_at(error)
    line = source_of(place)
    shown = f"{more}{f' in `{line}`' if line else ''}, {Origin(row)}"
    if isinstance(error, TidemarkError):
        return UserCodeError(f"{name}: {one_line(error.what)}{shown}", fix=error.fix, uid=uid, place=place)
    fix = fix_of_call(error, line, row)
    return UserCodeError(f"{name} raised {type(error).__name__}: {one_line(str(error))}{shown}", fix=fix, uid=uid, place=place)


@contextmanager
def named(method: str, function: str, uid: str) -> Iterator[None]:
    """Have errors of ``open`` and ``close`` name the function and the operator."""
    try:
        yield
    except TidemarkError as error:
        if error.uid is not None:
            raise
        raise UserCodeError(error.what, fix=error.fix, uid=uid, place=error.place) from error
    except Exception as error:
        what = f"{method} of {function} failed: {type(error).__name__}: {one_line(str(error))}"
        raise UserCodeError(what, fix="correct the function", uid=uid, place=raised_at(error)) from error
