"""Differences between two definitions of a window operator, and their effect on its stored state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from string import Formatter
from typing import Final, cast

from tidemark.durations import format_duration
from tidemark.graph.operators.changes import (
    SAME,
    Definition,
    DefinitionChange,
    Effect,
    Kept,
    Names,
    entries,
    key_changes,
    part_changes,
    same_expression,
)
from tidemark.graph.operators.window.recorded_rules import describe_recorded_evictor, describe_recorded_trigger, describe_recorded_windows

_SQL: Final = ("gap_by", "zone_by")
"""The settings of windows that are SQL over the elements."""


def window_changes(
    old: Definition, new: Definition, names: Names = SAME, *, kept: tuple[Kept, Kept] | None = None
) -> tuple[DefinitionChange, ...]:
    """Return all differences between two definitions of windows, as ``operator_definition`` makes them.

    The allowed lateness, the order of keys and aggregates, and how a result is computed from the state (also by a function) may change
    freely; so may a trigger's settings and an evictor's, but not a trigger's kind, since each kind keeps other state of a window.

    Args:
        old: as stored.
        new: as declared by the job.
        names: renamed keys, aggregates and columns.
        kept: what either keeps of a window, if that is known better than by the definitions.

    >>> old = {"kind": "window", "keys": [{"name": "zone", "expression": "zone"}], "assigner": {"kind": "Tumbling"}, "aggregates": []}
    >>> [change.what for change in window_changes(old, {**old, "keys": []})]
    ["the key 'zone' was removed"]
    """
    before, after = kept or (_kept(old), _kept(new))
    changes = [*key_changes(old, new, names), *_firing_changes(old, new, names)]
    if before != after:
        shown = {"partials": "aggregates", "elements": "all elements of a window"}
        what = f"it kept {shown[before]} and is now to keep {shown[after]}, which the stored windows do not have"
        if _kept(old) == _kept(new) and all(change.effect != "other" for change in changes):
            held = {"partials": "partial results", "elements": "elements"}
            what = f"the stored windows hold {held[before]}, as those of an earlier build did; now they are to hold {held[after]}"
        return (*changes, DefinitionChange("kept", "other", what))
    if after == "partials":
        changes += aggregate_changes(entries(old, "aggregates"), entries(new, "aggregates"), names)
    return (*changes, *_function_changes(old, new))


def _kept(definition: Mapping[str, object]) -> Kept:
    return "partials" if definition.get("aggregates") or "function" not in definition else "elements"


def _firing_changes(old: Mapping[str, object], new: Mapping[str, object], names: Names) -> Iterator[DefinitionChange]:
    if not _same_assigner(old.get("assigner"), new.get("assigner"), names):
        was, now = (describe_recorded_windows(each.get("assigner")) for each in (old, new))
        what = f"the windows were {was} and are now {now}{' by other code' if was == now else ''}"
        yield DefinitionChange("windows", "other", what)
    before, after = old.get("allowed_lateness_ms"), new.get("allowed_lateness_ms")
    if before != after:
        yield DefinitionChange("lateness", "none", f"the allowed lateness was {_duration(before)} and is now {_duration(after)}")
    before, after = old.get("trigger"), new.get("trigger")
    if before != after:
        effect: Effect = "none" if _kinds(before) == _kinds(after) else "other"
        yield DefinitionChange(
            "trigger", effect, f"the trigger was {describe_recorded_trigger(before)} and is now {describe_recorded_trigger(after)}"
        )
    before, after = old.get("evictor"), new.get("evictor")
    if before != after:
        what = f"the evictor was {describe_recorded_evictor(before)} and is now {describe_recorded_evictor(after)}"
        yield DefinitionChange("evictor", "none", what)


def _same_assigner(old: object, new: object, names: Names) -> bool:
    if old == new or not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return old == new
    # An earlier build did not record the text of a user's assigner.
    left = {*_SQL} if "text" in old else {*_SQL, "text"}
    others = [{key: value for key, value in each.items() if key not in left} for each in (old, new)]
    texts = [(old.get(name), new.get(name)) for name in _SQL]
    return others[0] == others[1] and all(pair == (None, None) or same_expression(str(pair[0]), str(pair[1]), names) for pair in texts)


def _kinds(rule: object) -> object:
    """Return the kinds of a trigger and of those in it, without their settings."""
    if not isinstance(rule, Mapping):
        return None
    inner = {name: _kinds(value) for name, value in rule.items() if isinstance(value, Mapping) and "kind" in value}
    return {"kind": rule.get("kind"), **inner}


def _duration(milliseconds: object) -> str:
    return format_duration(milliseconds) if isinstance(milliseconds, int) and milliseconds else "none"


def aggregate_changes(
    old: Mapping[str, Mapping[str, object]], new: Mapping[str, Mapping[str, object]], names: Names, stored: str = "windows"
) -> list[DefinitionChange]:
    """Return the differences between the aggregates of two definitions; ``stored`` is what has their state, in words."""
    added = f", and the stored {stored} have no state of it"
    return list(part_changes("aggregate", old, new, names, partial(_one_aggregate, names=names), added=added))


def _one_aggregate(
    name: str, before: Mapping[str, object], now: str, after: Mapping[str, object], *, names: Names
) -> Iterator[DefinitionChange]:
    old_arguments, new_arguments = (cast("list[str]", each.get("arguments", [])) for each in (before, after))
    same = len(old_arguments) == len(new_arguments) and all(
        same_expression(was, is_now, names) for was, is_now in zip(old_arguments, new_arguments, strict=True)
    )
    if before.get("kind") != after.get("kind") or not same:
        yield DefinitionChange("aggregate", "other", f"the aggregate {now!r} was {_call(before)} and is now {_call(after)}", now, name)
    elif not _same_state(before, after, names):
        yield DefinitionChange(
            "aggregate", "other", f"the state of aggregate {now!r}, {_call(after)}, is computed differently than before", now
        )
    elif now != name:
        yield DefinitionChange("aggregate", "renamed", f"the aggregate {name!r} is now called {now!r}", now, name)


def _same_state(before: Mapping[str, object], after: Mapping[str, object], names: Names) -> bool:
    """Return whether two aggregates make and merge their partials in the same way; the result expression does not matter."""
    old, new = (cast("list[Mapping[str, str]]", each.get("partials", [])) for each in (before, after))
    if [part["name"] for part in old] != [part["name"] for part in new] or _functions_of(before, old) != _functions_of(after, new):
        return False
    return all(
        _same_template(was["create"], is_now["create"], names) and _same_template(was["merge"], is_now["merge"], SAME)
        for was, is_now in zip(old, new, strict=True)
    )


def _functions_of(aggregate: Mapping[str, object], partials: Sequence[Mapping[str, str]]) -> list[tuple[str, object]]:
    """Return the Python functions that partials are made or merged by, with the names that these call them by."""
    functions = cast("list[object]", aggregate.get("functions", []))
    templates = " ".join(template for part in partials for template in (part["create"], part["merge"]))
    named = [(f"function_{number}", function) for number, function in enumerate(functions, start=1)]
    return [(name, function) for name, function in named if re.search(rf"\b{name}\b", templates)]


def _same_template(old: str, new: str, names: Names) -> bool:
    """Return whether two templates of SQL say the same, as ``same_expression`` does; placeholders stand for themselves."""
    return old == new or same_expression(_filled(old), _filled(new), names)


def _filled(template: str) -> str:
    return template.format_map({name: f"`{{{name}}}`" for _, name, _, _ in Formatter().parse(template) if name})


def _function_changes(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[DefinitionChange]:
    before, after = old.get("function"), new.get("function")
    if before != after:
        changed = "was replaced, and gets the state of the old one" if before and after else "is new" if after else "was removed"
        yield DefinitionChange("function", "none", f"the window function {changed}")


def _call(aggregate: Mapping[str, object]) -> str:
    arguments = cast("list[str]", aggregate.get("arguments", []))
    return f"{aggregate.get('kind')}({', '.join(arguments)})"
