"""Settings of assigners, triggers, evictors and watermark generators as plain JSON, for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass

from tidemark.graph.expressions.function_fingerprint import function_text, text_hash


def policy_definition(rule: object) -> dict[str, object]:
    """Return a trigger's or evictor's kind and settings; omits settings that are None.

    Functions are hashed. One of the user's own also has a hash of its class's text.

    >>> from tidemark.semantics.triggers.builtin_triggers import CountTrigger, EventTimeTrigger
    >>> policy_definition(EventTimeTrigger(early=CountTrigger(100)))
    {'kind': 'EventTimeTrigger', 'early': {'kind': 'CountTrigger', 'count': 100}}
    """
    kind = type(rule)
    settings = {name: _setting(value) for name, value in _fields(rule).items() if value is not None}
    return {"kind": kind.__qualname__, **source_hash(kind), **settings}


def settings_of(value: object) -> dict[str, object]:
    """Return the fields of a dataclass by name, none of any other object."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}


def _fields(rule: object) -> Mapping[str, object]:
    if is_dataclass(rule):
        return {field.name: getattr(rule, field.name) for field in fields(rule)}
    return vars(rule) if hasattr(rule, "__dict__") else {}


def _setting(value: object) -> object:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): _setting(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_setting(item) for item in value]
    if callable(value):
        return f"function {text_hash(function_text(value))}"
    return policy_definition(value)


def source_hash(kind: type) -> dict[str, str]:
    """Return a hash of the text of a user's class, nothing for one of Tidemark's."""
    return {} if kind.__module__.split(".")[0] == "tidemark" else {"text": text_hash(function_text(kind))}
