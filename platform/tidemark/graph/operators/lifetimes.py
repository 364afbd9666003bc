"""Lifetimes of state: in words, in definitions, and what a change of one means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from tidemark.durations import format_duration
from tidemark.graph.operators.changes import Definition, DefinitionChange
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain


def describe_lifetime(ttl: StateTtl | None) -> str:
    """Return a lifetime in words.

    >>> describe_lifetime(StateTtl(3_600_000, "event"))
    '1h of event time'
    """
    return "ever" if ttl is None else f"{format_duration(ttl.ms)} of {ttl.domain} time{' after it was read' if ttl.on_read else ''}"


def encode_lifetime(ttl: StateTtl | None) -> dict[str, object]:
    """Return the entry of a lifetime in a definition, none where state never expires."""
    return {} if ttl is None else {"ttl": {"ms": ttl.ms, "domain": ttl.domain}}


def decode_lifetime(definition: Definition) -> StateTtl | None:
    """Return the lifetime of a definition."""
    found = definition.get("ttl")
    if not isinstance(found, Mapping):
        return None
    return StateTtl(int(found["ms"]), cast("TimeDomain", found["domain"]), bool(found.get("on_read")))


def lifetime_changes(old: Definition, new: Definition) -> tuple[DefinitionChange, ...]:
    """Return the change of a lifetime: it counts from when state is next written."""
    was, now = decode_lifetime(old), decode_lifetime(new)
    if was == now:
        return ()
    what = f"state lived for {describe_lifetime(was)} and lives now for {describe_lifetime(now)}, from when it is next written"
    return (DefinitionChange("ttl", "none", what),)
