"""Counts since a lineage began: each epoch's record carries the sum of all before it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.state.log.progress import EpochProgress


class _LaterTotals(TypedDict, total=False):
    transforms: dict[str, dict[str, int]]
    late: dict[str, int]
    shortfalls: dict[str, dict[str, Shortfalls]]


class Totals(_LaterTotals):
    """Cumulative rows.

    ``sources``: by name, ``{read, passed, malformed}``; ``filters``: by name, ``{in, passed, rejected}``; ``operators``: by uid,
    ``{in, accepted, late}`` and further counters of its kind; ``outputs``: by name, rows; ``transforms``, if there are any: by name,
    ``{in, out}``; ``late``, if there are any: by uid, the late rows of operators that count them by input, and have no ``late`` counter;
    ``shortfalls``, if there are any: by uid and counter, of the late rows since the operator's allowed lateness was changed last, or
    since the first epoch of a release that counts them.
    """

    sources: dict[str, dict[str, int]]
    filters: dict[str, dict[str, int]]
    operators: dict[str, dict[str, int]]
    outputs: dict[str, int]


def empty_totals() -> Totals:
    """Return the totals before the first epoch."""
    return Totals(sources={}, filters={}, operators={}, outputs={})


def add_epoch(totals: Totals, progress: EpochProgress) -> Totals:
    """Return the totals after one more epoch; sources, operators and outputs that the job no longer has keep their last count."""
    sources = {
        name: {"read": item.rows_read, "passed": item.rows_passed, "malformed": item.rows_malformed}
        for name, item in progress.sources.items()
    }
    filters = {
        name: {"in": item.rows_in, "passed": item.rows_passed, "rejected": item.rows_rejected} for name, item in progress.filters.items()
    }
    operators = {
        uid: {"in": item.rows_in, "accepted": item.rows_accepted, "late": item.rows_late, **item.counters}
        for uid, item in progress.operators.items()
    }
    outputs = {name: item.rows for name, item in progress.outputs.items()}
    transforms = {name: {"in": item.rows_in, "out": item.rows_out} for name, item in progress.transforms.items()}
    found = Totals(
        sources=_add_nested(totals["sources"], sources),
        filters=_add_nested(totals["filters"], filters),
        operators=_add_nested(totals["operators"], operators),
        outputs=_add(totals["outputs"], outputs),
    )
    if transforms := _add_nested(totals.get("transforms", {}), transforms):
        found["transforms"] = transforms
    by_input = {uid: item.late for uid, item in progress.operators.items() if item.late_counters}
    if late := _add(totals.get("late", {}), by_input):
        found["late"] = late
    if shortfalls := _add_shortfalls(totals.get("shortfalls", {}), progress):
        found["shortfalls"] = shortfalls
    return found


def late_and_judged(totals: Totals, judges: Collection[str]) -> tuple[int, int]:
    """Return the numbers of late rows and of all rows that operators read to which rows may be late.

    Args:
        totals: the counts.
        judges: the uids of these operators.
    """
    late = late_by_operator(totals)
    return sum(late.get(uid, 0) for uid in judges), sum(totals["operators"].get(uid, {}).get("in", 0) for uid in judges)


def late_by_operator(totals: Totals) -> dict[str, int]:
    """Return the late rows of each operator, by uid."""
    by_input = totals.get("late", {})
    return {uid: counts.get("late", 0) + by_input.get(uid, 0) for uid, counts in totals["operators"].items()}


def _add_shortfalls(old: dict[str, dict[str, Shortfalls]], progress: EpochProgress) -> dict[str, dict[str, Shortfalls]]:
    found = {uid: dict(by_counter) for uid, by_counter in old.items()}
    for uid, item in progress.operators.items():
        for counter, more in item.shortfalls.items():
            before = found.setdefault(uid, {}).get(counter)
            found[uid][counter] = more if before is None else before + more
    return found


def _add_nested(old: dict[str, dict[str, int]], new: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {name: _add(old.get(name, {}), new.get(name, {})) for name in old | new}


def _add(old: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    return {name: old.get(name, 0) + new.get(name, 0) for name in old | new}
