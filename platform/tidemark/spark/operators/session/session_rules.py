"""When sessions fire by a trigger, as conditions over their rows at the end of an epoch.

They are equivalent to ``tidemark.semantics.triggers.builtin_triggers``, which decide element by element, for sessions of event time. A
trigger's state of a session is a few columns of its row: elements counted since it last fired, and the next step of event time. Steps of
processing time are the same for all sessions, so they need no state.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.operators.aligned.firing_rules import Times
from tidemark.spark.operators.session.session_input import END
from tidemark.spark.prepared.runtime_literals import runtime_literals

NEXT = "__tm_next"
"""The next step of event time at which a session fires, null for none."""

ASKED = "__tm_asked"
"""Bits: a row's requests of the epoch that wrote it."""

TOUCHED, COUNTED_OUT, COUNTED_OUT_LATE, TICKS, FIRED = 1, 2, 4, 8, 16
"""The session took elements; the count was reached, that of late elements was; a step of processing time was set before; it has fired."""

NEVER = "false"


@dataclass(frozen=True)
class SessionRules:
    """The parts of a trigger.

    Args:
        trigger: of a node that ``is_triggered_session``.
    """

    trigger: Trigger

    @property
    def phased(self) -> bool:
        """Whether the state before a session is due is dropped when it is due."""
        return isinstance(self.trigger, EventTimeTrigger)

    @property
    def sooner(self) -> Trigger | None:
        """The trigger that decides before a session is due."""
        return self.trigger.early if isinstance(self.trigger, EventTimeTrigger) else self.trigger

    @property
    def count(self) -> int | None:
        """The number of elements that fires."""
        return self.sooner.count if isinstance(self.sooner, CountTrigger) else None

    @property
    def late_count(self) -> int | None:
        """The number of late elements that fires."""
        late = self.trigger.late if isinstance(self.trigger, EventTimeTrigger) else None
        return late.count if isinstance(late, CountTrigger) else None

    @property
    def step(self) -> int | None:
        """The interval of event time."""
        return self.sooner.interval_ms if isinstance(self.sooner, ContinuousEventTimeTrigger) else None

    @property
    def tick(self) -> int | None:
        """The interval of processing time."""
        return self.sooner.interval_ms if isinstance(self.sooner, ContinuousProcessingTimeTrigger) else None

    @property
    def ends(self) -> bool:
        """Whether sessions fire when the watermark reaches their end."""
        return isinstance(self.trigger, EventTimeTrigger | ContinuousEventTimeTrigger)

    @property
    def ends_by_clock(self) -> bool:
        """Whether sessions fire when processing time reaches their end."""
        return isinstance(self.trigger, ProcessingTimeTrigger)

    @property
    def ordered(self) -> bool:
        """Whether the order in which elements and stored sessions merge matters."""
        return (self.count, self.late_count, self.step) != (None, None, None)

    def is_at_tick(self, times: Times) -> bool:
        """Whether processing time has reached a step."""
        return self.tick is not None and times.ticks(self.tick)

    def ending(self, times: Times) -> tuple[int, int] | None:
        """Return the bounds, (low, high], of the ends of sessions that fire at their end; None for none."""
        if self.ends:
            low, high = (min(watermark, MAX_WATERMARK - 1) + 1 for watermark in (times.watermark_before, times.watermark))
        elif self.ends_by_clock:
            low, high = times.clock_before, times.clock
        else:
            return None
        return (low, high) if high > low else None

    def fires(self, times: Times) -> str:
        """Return the condition of sessions that fire in an epoch, over rows with ``END``, ``ASKED``, ``NEXT``."""
        due_before, due = due_conditions(times)
        touched = has(TOUCHED)
        match self.trigger:
            case EventTimeTrigger(_, late):
                again = has(COUNTED_OUT_LATE) if isinstance(late, CountTrigger) else touched
                return f"CASE WHEN {due_before} THEN {again} WHEN {due} THEN true ELSE {self._sooner(times)} END"
            case ContinuousEventTimeTrigger():
                return f"CASE WHEN {due_before} THEN {touched} WHEN {due} THEN true ELSE {self._sooner(times)} END"
            case ProcessingTimeTrigger():
                before, now = runtime_literals(times.clock_before, times.clock, varying=END)
                return f"({END} <= {now} AND ({touched} OR {END} > {before}))"
        return self._sooner(times)

    def _sooner(self, times: Times) -> str:
        match self.sooner:
            case CountTrigger():
                return has(COUNTED_OUT)
            case EachEpochTrigger():
                return has(TOUCHED)
            case ContinuousEventTimeTrigger():
                return f"coalesce({NEXT} <= {runtime_literals(times.watermark, varying=END)[0]}, false)"
            case ContinuousProcessingTimeTrigger():
                return has(TICKS) if self.is_at_tick(times) else NEVER
        return NEVER

    def next_step(self, times: Times) -> str:
        """Return the next step of sessions after an epoch; meaningless for those that are due."""
        if self.step is None:
            return NEXT
        now, following = runtime_literals(times.watermark, times.watermark - times.watermark % self.step + self.step, varying=END)
        return f"if({NEXT} <= {now}, least({following}, {END} - 1), {NEXT})"


def has(bit: int) -> str:
    """Return the condition of rows that have a bit."""
    return f"(({ASKED} & {bit}) <> 0)"


def due_conditions(times: Times) -> tuple[str, str]:
    """Return the conditions of sessions that were due before an epoch, and that are due after it."""
    bounds = (min(watermark, MAX_WATERMARK - 1) + 1 for watermark in (times.watermark_before, times.watermark))
    before, now = runtime_literals(*bounds, varying=END)
    return f"{END} <= {before}", f"{END} <= {now}"
