"""The reference's state of a window, and its calls of triggers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from tidemark.errors import UserCodeError
from tidemark.semantics.triggers.panes import ReplacedSession
from tidemark.semantics.triggers.trigger_calls import MAX_FIRINGS
from tidemark.semantics.triggers.triggers import Trigger, TriggerResult, TriggerValue
from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows.windows import TimeDomain, Window

Item = TypeVar("Item")


class Taken(NamedTuple, Generic[Item]):
    """An element that a window accepted: its time, in the domain of the windows, and its number in the operator."""

    element: Item
    timestamp: int
    number: int


@dataclass
class OperatorTimes:
    """The times of an operator, in the domain of its windows; ``watermark`` moves when an epoch ends."""

    domain: TimeDomain
    watermark: int = MIN_WATERMARK
    processing_time: int = 0

    @property
    def clock(self) -> int:
        """The time that processing-time timers go by: at the end of input, all of it for windows of processing time."""
        return MAX_WATERMARK if self.domain == "processing" and self.watermark == MAX_WATERMARK else self.processing_time


@dataclass
class Contents(Generic[Item]):
    """One key's and window's elements and panes, the trigger's results of the epoch, and its state.

    ``replaced`` are the bounds of absorbed sessions whose results were emitted.
    """

    elements: list[Taken[Item]] = field(default_factory=list)
    panes: int = 0
    touched: bool = False
    replaced: tuple[ReplacedSession, ...] = ()
    asked: TriggerResult = TriggerResult.CONTINUE
    values: dict[str, TriggerValue] = field(default_factory=dict)
    timers: set[tuple[TimeDomain, int]] = field(default_factory=set)

    @property
    def result_is_out(self) -> bool:
        """Whether there was a pane under the window's own bounds. A session made of others that had some had none itself before its own."""
        return self.panes > 0 and not self.replaced


@dataclass(frozen=True)
class ContentsContext(Generic[Item]):
    """A trigger's context: the contents of a window, and of the sessions that it absorbs, if any."""

    contents: Contents[Item]
    times: OperatorTimes
    absorbed: Sequence[Contents[Item]] = ()

    @property
    def domain(self) -> TimeDomain:
        """The time that windows are of."""
        return self.times.domain

    @property
    def watermark(self) -> int:
        """The operator's watermark as it is at the call."""
        return self.times.watermark

    @property
    def processing_time(self) -> int:
        """The epoch's."""
        return self.times.processing_time

    def get(self, name: str) -> TriggerValue | None:
        """Return a value."""
        return self.contents.values.get(name)

    def put(self, name: str, value: TriggerValue | None) -> None:
        """Keep a value, or remove one."""
        self.contents.values = {key: kept for key, kept in {**self.contents.values, name: value}.items() if kept is not None}

    def register_event_time_timer(self, time: int) -> None:
        """Set a timer."""
        self.contents.timers |= {("event", time)}

    def register_processing_time_timer(self, time: int) -> None:
        """Set a timer."""
        self.contents.timers |= {("processing", time)}

    def delete_event_time_timer(self, time: int) -> None:
        """Take a timer back."""
        self.contents.timers -= {("event", time)}

    def delete_processing_time_timer(self, time: int) -> None:
        """Take a timer back."""
        self.contents.timers -= {("processing", time)}

    def merged(self, name: str) -> tuple[TriggerValue, ...]:
        """Return a value of each absorbed session that has one."""
        return tuple(part.values[name] for part in self.absorbed if name in part.values)


def ask_at_epoch_end(trigger: Trigger, window: Window, contents: Contents[Item], times: OperatorTimes) -> TriggerResult:
    """Return the result of a window's trigger after an epoch's elements, once the watermark has advanced.

    Raises:
        UserCodeError: the trigger would fire forever.
    """
    context, fired, ended = ContentsContext(contents, times), Counter[tuple[TimeDomain, int]](), False
    answer = contents.asked
    while True:
        # "event" comes before "processing" in the alphabet, too.
        due = sorted((domain, time) for domain, time in contents.timers if time <= (times.watermark if domain == "event" else times.clock))
        if due:
            timer = due[0]
            fired[timer] += 1
            if fired[timer] > MAX_FIRINGS:
                raise UserCodeError(f"{trigger.describe()} sets {timer} again, which would not end", fix="set it at a later time")
            contents.timers -= {timer}
            call = trigger.on_event_time if timer[0] == "event" else trigger.on_processing_time
            answer |= call(timer[1], window, context)
        elif contents.touched and not ended:
            ended = True
            answer |= trigger.on_epoch_end(window, context)
        else:
            return answer
