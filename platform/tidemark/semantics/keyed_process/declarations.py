"""The states that a process function declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.semantics.windows.windows import TimeDomain

StateKind = Literal["value", "list", "map", "reducing", "aggregating"]


@dataclass(frozen=True)
class StateTtl:
    """How long state lives after it was written, or read, in the time of ``domain``: processing time, or the operator's watermark.

    Of a list and a map each entry has its own time. ``on_read`` renews it at each reading, too; else only when it is written.
    By the watermark, state that was written before there was one lives from the first one.
    """

    ms: int
    domain: TimeDomain = "processing"
    on_read: bool = False

    def is_expired(self, renewed: int, now: int) -> bool:
        """Whether state that was renewed at a time has expired at another."""
        return renewed + self.ms <= now

    def begins(self, renewed: int, before: int, watermark: int) -> int:
        """Return the time from which state lives, given when it was renewed; ``before`` and ``watermark`` are W(n-1) and W(n)."""
        if renewed != MIN_WATERMARK or self.domain != "event":
            return renewed
        return before if before != MIN_WATERMARK else watermark


@dataclass(frozen=True)
class Aggregation:
    """The function of a reducing or an aggregating state: an accumulator is created, values are added, the result is computed.

    ``functions`` are the user's, of which it was made.
    """

    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    functions: tuple[Callable[..., Any], ...] = ()


@dataclass(frozen=True)
class StateDeclaration:
    """A state of each key.

    Args:
        name: of the state.
        kind: which operations it has.
        default: of a value state without a value.
        aggregation: of a reducing or an aggregating state.
        ttl: None where it never expires.
        nested: whether values are lists, dicts or the like, which are copied, so that a change of one changes no state.
        copy: of a value that is not None; None where ``nested`` says enough.
        convert: of a value that is written, returns the one that is kept, or raises; None where each is kept as it is.
        convert_key: the same of a map's keys.
        key_type: that of keys which are looked up as they are; None where all are converted first.
    """

    name: str
    kind: StateKind
    default: object = None
    aggregation: Aggregation | None = None
    ttl: StateTtl | None = None
    nested: bool = False
    copy: Callable[[Any], Any] | None = None
    convert: Callable[[Any], Any] | None = None
    convert_key: Callable[[Any], Any] | None = None
    key_type: type | None = None


_NOTHING = object()


def reducing(function: Callable[[Any, Any], Any]) -> Aggregation:
    """Return the aggregation of a reducing state: the first value, and then the function of the result so far and each value."""
    return Aggregation(
        create=lambda: _NOTHING,
        add=lambda so_far, value: value if so_far is _NOTHING else function(so_far, value),
        result=lambda so_far: so_far,
        functions=(function,),
    )
