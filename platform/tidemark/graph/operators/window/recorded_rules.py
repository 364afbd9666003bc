"""Descriptions of windows, triggers and evictors of a stored definition, in the words of ``explain``."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.durations import format_duration
from tidemark.graph.operators.window.definition_decoder import assigner_of_definition, is_known_trigger, trigger_of_definition
from tidemark.graph.operators.window.descriptions import describe_assigner, describe_evictor, describe_trigger
from tidemark.semantics.process.evictors import CountEvictor, TimeEvictor


def describe_recorded_windows(stored: object) -> str:
    """Return windows in words.

    >>> describe_recorded_windows({"kind": "Tumbling", "size_ms": 3_600_000, "offset_ms": 0})
    'tumbling 1h'
    """
    assigner = assigner_of_definition(stored)
    return _settings(stored) if assigner is None else describe_assigner(assigner)


def describe_recorded_trigger(stored: object) -> str:
    """Return a trigger in words; None in a definition is the default.

    >>> describe_recorded_trigger({"kind": "EventTimeTrigger", "early": {"kind": "CountTrigger", "count": 100}})
    'event time (early: count 100)'
    """
    if stored is None:
        return "the windows' own"
    trigger = trigger_of_definition(stored)
    return describe_trigger(trigger) if trigger is not None and is_known_trigger(trigger) else _settings(stored)


def describe_recorded_evictor(stored: object) -> str:
    """Return an evictor in words.

    >>> describe_recorded_evictor({"kind": "TimeEvictor", "size_ms": 60_000, "after": False})
    'time 1m'
    """
    if stored is None:
        return "none"
    match stored:
        case {"kind": "CountEvictor", "count": int(count), "after": bool(after)}:
            return describe_evictor(CountEvictor(count, after))
        case {"kind": "TimeEvictor", "size_ms": int(size), "after": bool(after)}:
            return describe_evictor(TimeEvictor(size, after))
    return _settings(stored)


def _settings(stored: object) -> str:
    """Return the name and settings of a user's class, or of another release's; hashes of code are left out."""
    if not isinstance(stored, Mapping):
        return "none"
    settings = [_setting(str(name), value) for name, value in stored.items() if name not in {"kind", "text", "description"}]
    named = str(stored.get("kind")) + (f" ({', '.join(settings)})" if settings else "")
    return str(stored.get("description") or named)


def _setting(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return f"{name} {_settings(value)}"
    if name.endswith("_ms") and isinstance(value, int):
        return f"{name.removesuffix('_ms')} {format_duration(value)}"
    return f"{name} {value}"
