"""Sums of decimals with 37 or 38 digits after the point as earlier releases kept them: one number, without its last digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.errors import StateMismatchError
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.graph.operators.group_aggregate.ways import SUMS
from tidemark.graph.operators.state_names import partial_column

_BEFORE: Final = ["n", "sum", "mean"]
_NOW: Final = ["n", "high", "low", "sum", "mean"]


def is_older_sum(stored: object, wanted: object) -> bool:
    """Return whether a column of state has the older form, and the job would keep the present one; types as Spark's JSON has them."""
    return _fields(stored) == _BEFORE and _fields(wanted) == _NOW


def older_sum(aggregate: str) -> tuple[str, str]:
    """Return what to say of an aggregate whose state has the older form, and the fix."""
    what = (
        f"the state of the aggregate {aggregate!r}, over decimals with 37 or 38 digits after the point, was stored by an earlier release "
        "of Tidemark, in a form that had lost the last digits of its sums; this release cannot continue it, though the job is the same"
    )
    fix = (
        "read the input again from its beginning: give the job another name, and its outputs other tables; or make the operator's state "
        "from the content of its input (tm.new_savepoint, 'Write a savepoint' in docs/how-to/state.md). "
        "Savepoints of before have the old form, too, so a rewind does not help"
    )
    return what, fix


def require_present_sums(node: GroupAggregateNode, stored: Mapping[str, object], made: Mapping[str, object], *, job: str) -> None:
    """Check, in an epoch, that no stored sums have the older form: of a job that did not change, the start does not compare types.

    Args:
        node: the operator.
        stored: the types of its columns of state.
        made: those that the epoch makes.
        job: its name.

    Raises:
        StateMismatchError: an aggregate's sums have it.
    """
    for name, _ in node.aggregates:
        column = partial_column(name, SUMS)
        if is_older_sum(stored.get(column), made.get(column)):
            what, fix = older_sum(name)
            raise StateMismatchError(what, fix=fix, job=job, uid=node.uid, place=node.place)


def _fields(kind: object) -> list[str]:
    fields = kind.get("fields") if isinstance(kind, Mapping) else None
    return [str(field["name"]) for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []
