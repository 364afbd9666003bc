"""Decodes a window operator from its stored definition: enough to read its state, without the job's code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, cast

from tidemark.errors import StateMismatchError
from tidemark.graph.model.aggregates import Aggregate, Partial
from tidemark.graph.operators.changes import entries
from tidemark.graph.operators.keys import decode_keys
from tidemark.graph.operators.window.node import WindowFunction, WindowNode
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.triggers import QuietTrigger, Trigger
from tidemark.semantics.windows.assigners import CountWindows, Cumulative, DynamicSession, GlobalWindows, Session, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.windows import WindowAssigner

_ASSIGNERS: Final[Mapping[str, Callable[..., WindowAssigner]]] = {
    kind.__name__: kind for kind in (CountWindows, Cumulative, DynamicSession, GlobalWindows, LocalWindows, Session, Sliding, Tumbling)
}
_TRIGGERS: Final[Mapping[str, Callable[..., Trigger]]] = {
    kind.__name__: kind
    for kind in (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        EachEpochTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
    )
}


def node_of_definition(definition: Mapping[str, object], uid: str) -> WindowNode:
    """Return an operator with the state that the definition describes; it lacks parts needed only to run, such as functions.

    Args:
        definition: as ``operator_definition`` made it, through JSON.
        uid: the operator's.

    Raises:
        StateMismatchError: its windows are of a kind that this release does not know, or a user's class.
    """
    function = definition.get("function")
    return WindowNode(
        uid=uid,
        keys=decode_keys(definition),
        assigner=known_assigner(definition.get("assigner"), uid),
        aggregates=tuple((name, aggregate_of_definition(entry)) for name, entry in entries(definition, "aggregates").items()),
        allowed_lateness_ms=int(cast("int", definition.get("allowed_lateness_ms", 0))),
        trigger=trigger_of_definition(definition.get("trigger")),
        function=WindowFunction(_missing_function, str(function.get("returns"))) if isinstance(function, Mapping) else None,
    )


def functions_of(definition: Mapping[str, object]) -> list[str]:
    """Return the names of the aggregates whose state only the job's own Python functions can merge."""
    return [name for name, entry in entries(definition, "aggregates").items() if entry.get("functions")]


def aggregate_of_definition(entry: Mapping[str, object]) -> Aggregate:
    """Return an aggregate that reads the state that a definition was recorded with."""
    parts = cast("list[Mapping[str, str]]", entry.get("partials", []))
    return Aggregate(
        str(entry["kind"]),
        tuple(cast("list[str]", entry.get("arguments", []))),
        tuple(Partial(part["name"], part["create"], part["merge"]) for part in parts),
        str(entry["result"]),
    )


def assigner_of_definition(stored: object) -> WindowAssigner | None:
    """Return the windows that a definition names, None if they are not among those that come with this release."""
    kind = _ASSIGNERS.get(str(stored.get("kind"))) if isinstance(stored, Mapping) else None
    if kind is None or not isinstance(stored, Mapping):
        return None
    # Those without settings are recorded with their description.
    settings = {str(name): value for name, value in stored.items() if name not in {"kind", "description"}}
    if kind is LocalWindows:
        settings["windows"] = assigner_of_definition(settings.get("windows"))
    with contextlib.suppress(TypeError, AttributeError):
        return kind(**settings)
    return None


def known_assigner(stored: object, uid: str) -> WindowAssigner:
    """Return the windows that the definition of an operator names.

    Raises:
        StateMismatchError: they are not among those that come with this release.
    """
    assigner = assigner_of_definition(stored)
    if assigner is not None:
        return assigner
    raise StateMismatchError(
        f"the state of {uid!r} is of windows {stored!r}, which are not among those that come with this release",
        fix="pass the job that owns the state: savepoint(job, ...)",
        uid=uid,
    )


def trigger_of_definition(stored: object) -> Trigger | None:
    """Return the trigger; one that reads elements keeps them, and then it does not matter here which one it was."""
    if not isinstance(stored, Mapping):
        return None
    kind = _TRIGGERS.get(str(stored.get("kind")))
    if kind is None or "text" in stored:
        return _Unknown()
    settings = {
        str(name): trigger_of_definition(value) if isinstance(value, Mapping) else value for name, value in stored.items() if name != "kind"
    }
    if any(isinstance(value, _Unknown) for value in settings.values()):
        return _Unknown()
    return kind(**settings)


def is_known_trigger(trigger: Trigger) -> bool:
    """Return whether a trigger, and its inner ones, could be made from its settings."""
    return not isinstance(trigger, _Unknown)


class _Unknown(QuietTrigger):
    """Stands for a trigger that cannot be made from its settings; there is no rule for it, so that elements are kept."""

    def describe(self) -> str:
        """Return what it stands for."""
        return "a trigger of the job's own"


def _missing_function(*_: object) -> object:
    raise StateMismatchError("the window function is not stored", fix="run the job that has it")
