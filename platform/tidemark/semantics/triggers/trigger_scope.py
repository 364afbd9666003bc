"""A part of a window's trigger state for a trigger inside another, so that two of them do not read each other's values or timers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemark.semantics.triggers.triggers import MergeContext, TriggerContext, TriggerValue
from tidemark.semantics.windows.windows import TimeDomain

_VALUES = "values"


@dataclass(frozen=True)
class TriggerScope:
    """The part of an outer trigger's context that a named inner trigger sees; it is kept there as one value, a dict, under that name.

    The timers it set are listed in it, so that the outer trigger can find a timer's owner, and drop them. ``keeps_event_timer`` names a
    time that the outer trigger has a timer for itself, which is not deleted.
    """

    outer: TriggerContext
    name: str
    keeps_event_timer: int | None = None

    @property
    def domain(self) -> TimeDomain:
        """As outside."""
        return self.outer.domain

    @property
    def watermark(self) -> int:
        """As outside."""
        return self.outer.watermark

    @property
    def processing_time(self) -> int:
        """As outside."""
        return self.outer.processing_time

    def get(self, name: str) -> TriggerValue | None:
        """Return a value of the inner trigger's own."""
        return _part(self.outer.get(self.name), _VALUES).get(name)  # type: ignore[return-value]

    def put(self, name: str, value: TriggerValue | None) -> None:
        """Keep a value of the inner trigger's own."""
        kept = self._kept()
        values = _part(kept, _VALUES)
        self._keep({**kept, _VALUES: {key: old for key, old in {**values, name: value}.items() if old is not None}})

    def register_event_time_timer(self, time: int) -> None:
        """Set a timer outside and list it."""
        self._list("event", self._timers("event") | {time})
        self.outer.register_event_time_timer(time)

    def register_processing_time_timer(self, time: int) -> None:
        """Set a timer outside and list it."""
        self._list("processing", self._timers("processing") | {time})
        self.outer.register_processing_time_timer(time)

    def delete_event_time_timer(self, time: int) -> None:
        """Delete a timer that is listed."""
        if self.take_timer("event", time) and time != self.keeps_event_timer:
            self.outer.delete_event_time_timer(time)

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a timer that is listed."""
        if self.take_timer("processing", time):
            self.outer.delete_processing_time_timer(time)

    def take_timer(self, domain: TimeDomain, time: int) -> bool:
        """Remove a timer from the list, as when it fires; return whether it was on it."""
        timers = self._timers(domain)
        if time not in timers:
            return False
        self._list(domain, timers - {time})
        return True

    def clear(self) -> None:
        """Drop the inner trigger's values and timers."""
        for time in self._timers("event"):
            self.delete_event_time_timer(time)
        for time in self._timers("processing"):
            self.delete_processing_time_timer(time)
        self.outer.put(self.name, None)

    def _kept(self) -> dict[str, object]:
        kept = self.outer.get(self.name)
        return kept if isinstance(kept, dict) else {}

    def _keep(self, kept: dict[str, object]) -> None:
        self.outer.put(self.name, {key: value for key, value in kept.items() if value} or None)

    def _timers(self, domain: Literal["event", "processing"]) -> frozenset[int]:
        listed = self._kept().get(domain)
        return frozenset(time for time in listed if isinstance(time, int)) if isinstance(listed, list) else frozenset()

    def _list(self, domain: Literal["event", "processing"], timers: frozenset[int]) -> None:
        self._keep({**self._kept(), domain: sorted(timers)})


@dataclass(frozen=True)
class MergeScope(TriggerScope):
    """The scope of an inner trigger while sessions merge."""

    merging: MergeContext | None = None

    def merged(self, name: str) -> tuple[TriggerValue, ...]:
        """Return the inner trigger's value of a name of each absorbed session."""
        scopes = () if self.merging is None else self.merging.merged(self.name)
        found = (_part(scope, _VALUES).get(name) for scope in scopes)
        return tuple(value for value in found if value is not None)  # type: ignore[misc]


def _part(kept: object, name: str) -> dict[str, object]:
    part = kept.get(name) if isinstance(kept, dict) else None
    return part if isinstance(part, dict) else {}
