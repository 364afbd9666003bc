"""What a replay returns: each call of the function, what a key kept before and after the epoch, and where that differs from the job's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.clock import format_ms
from tidemark.semantics.keyed_process.context import Row

if TYPE_CHECKING:
    import pyarrow as pa

Key = Mapping[str, object]
States = Mapping[str, object]
Timer = tuple[str, int, str | None]
Timers = tuple[Timer, ...]


@dataclass
class ReplayedCall:
    """A call of the function: its method, the time of its element or timer, and the watermark, in milliseconds.

    ``element`` is the element, of ``process_batch`` the list of them, None for a timer. ``emitted`` are rows by tag, None for the main
    output; ``error`` is why the call failed, of a function with ``on_error``.
    """

    method: str
    time: int
    watermark: int
    element: object = None
    timer_name: str | None = None
    emitted: list[tuple[str | None, Row]] = field(default_factory=list)
    error: str | None = None

    def __str__(self) -> str:
        """Return it as lines of text."""
        what = f"timer {self.timer_name or ''}".rstrip() if self.element is None else f"{self.element!r}"
        shown = [f"    -> {'' if tag is None else f'{tag}: '}{dict(row)!r}" for tag, row in self.emitted]
        failed = [] if self.error is None else [f"    failed: {self.error}"]
        return "\n".join([f"  {self.method} at {_time(self.time)}, watermark {_time(self.watermark)}: {what}", *shown, *failed])


@dataclass(frozen=True)
class ReplayedEpoch:
    """What a function did with a key in an epoch.

    ``states_before`` and ``states`` have the values of each state that is not empty, ``timers_before`` and ``timers`` each timer as
    domain, time and name. ``differences`` say where the state afterwards is not the one that the job committed; none if nothing differs.
    """

    epoch: int
    key: Key
    watermark_before: int
    watermark: int
    processing_time: int
    calls: tuple[ReplayedCall, ...]
    states_before: States
    states: States
    timers_before: Timers
    timers: Timers
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as lines of text, with the instants of times in UTC."""
        watermarks = f"watermark {_time(self.watermark_before)} to {_time(self.watermark)}"
        lines = [
            f"epoch {self.epoch} of the key {dict(self.key)}: {watermarks}, processing time {_time(self.processing_time)}",
            f"  before: {dict(self.states_before)}, {_listed(self.timers_before)}",
            *(map(str, self.calls) if self.calls else ["  no call: the key had no element and no timer that was due"]),
            f"  after: {dict(self.states)}, {_listed(self.timers)}",
            f"  differences from what was committed: {'; '.join(self.differences) or 'none'}",
        ]
        return "\n".join(lines)


def as_dicts(value: object, kind: pa.DataType) -> object:
    """Return a value of a map type, a list of pairs, as a dict; others, and maps whose keys Python cannot look up, as they are."""
    import pyarrow as pa

    if not pa.types.is_map(kind) or not isinstance(value, list) or pa.types.is_nested(kind.key_type):
        return value
    return dict(value)


def differences(states: States, committed: States, timers: Timers, committed_timers: Timers) -> Iterator[str]:
    """Yield where what a key keeps is not what the job committed, for people."""
    for name in sorted({*states, *committed}):
        if _exact(states.get(name)) != _exact(committed.get(name)):
            yield f"the state {name!r} is {states.get(name)!r}, and {committed.get(name)!r} was committed"
    yield from (f"the {_shown(each)} is set, and was not" for each in timers if each not in committed_timers)
    yield from (f"the {_shown(each)} is not set, and was" for each in committed_timers if each not in timers)


def _exact(value: object) -> object:
    """Return what is equal for the values alone that state does not tell apart: NaN is equal to itself, and -0.0 is not to 0.0."""
    match value:
        case float():
            return "float", repr(value)
        case list() | tuple():
            return [_exact(each) for each in value]
        case Mapping():
            return {_exact(key): _exact(each) for key, each in value.items()}
        case _:
            return value


def _time(milliseconds: int) -> str:
    """Return a time in milliseconds with its instant, or in words where no calendar has it."""
    instant = format_ms(milliseconds)
    return f"{milliseconds} ({instant})" if instant.endswith("Z") else f"the {instant}"


def _listed(timers: Timers) -> str:
    return f"timers: {', '.join(map(_shown, timers))}" if timers else "no timers"


def _shown(timer: Timer) -> str:
    domain, time, name = timer
    return f"{domain}-time timer{'' if name is None else f' {name!r}'} at {_time(time)}"
