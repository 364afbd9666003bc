"""Which triggers, evictors and lateness are allowed with which windows."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.builtin_triggers import (
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    default_trigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.assigners import CountWindows, GlobalWindows, Sliding
from tidemark.semantics.windows.windows import WindowAssigner


def never_late(assigner: WindowAssigner) -> bool:
    """Return whether a window takes every element: the windows are of processing time, or without an end, and have no gaps."""
    return _always_open(assigner) and not (isinstance(assigner, Sliding) and assigner.slide_ms > assigner.size_ms)


def _always_open(assigner: WindowAssigner) -> bool:
    return isinstance(assigner, CountWindows | GlobalWindows) or assigner.domain == "processing"


def discarding(assigner: WindowAssigner, trigger: Trigger | None, *, lateness_ms: int, place: str) -> Trigger:
    """Return the trigger that purges after each pane of the one in effect.

    Raises:
        DefinitionError: it would change nothing.
    """
    if isinstance(assigner, CountWindows):
        without = f"{assigner.describe()} defines the contents of its groups itself"
    elif isinstance(trigger, PurgingTrigger):
        without = f"{trigger.describe()} purges already"
    elif _fires_once(assigner, trigger or default_trigger(assigner), lateness_ms):
        without = "the windows fire once"
    else:
        return PurgingTrigger(trigger or default_trigger(assigner))
    raise DefinitionError(
        f"discarding() has no effect: {without}",
        fix="leave it out, or make the windows fire more often: .trigger(tm.event_time_trigger(early=...)), .allowed_lateness(...)",
        place=place,
    )


def _fires_once(assigner: WindowAssigner, trigger: Trigger, lateness_ms: int) -> bool:
    if isinstance(trigger, EventTimeTrigger):
        return trigger.early is None and lateness_ms == 0
    # Windows of event time may take elements long after their end has come by the clock.
    return isinstance(trigger, NeverTrigger) or (isinstance(trigger, ProcessingTimeTrigger) and assigner.domain == "processing")


def check_firing(node: WindowNode) -> None:
    """Check a window operator's trigger, evictor and lateness against its windows.

    Raises:
        DefinitionError: they do not go together.
    """
    for wrong, fix in (_trigger_problem(node), _late_problem(node), _evictor_problem(node)):
        if wrong:
            raise DefinitionError(wrong, fix=fix, uid=node.uid, place=node.place)


def _trigger_problem(node: WindowNode) -> tuple[str, str]:
    trigger, assigner = node.trigger, node.assigner
    if isinstance(assigner, CountWindows) and trigger is not None:
        wrong = f"{assigner.describe()} fires by its counts, and takes no trigger {trigger.describe()}"
        return wrong, "leave .trigger(...) out, or put it on tm.global_window()"
    if isinstance(assigner, GlobalWindows):
        if trigger is None:
            wrong = "the global window has no trigger, so it would never fire before the end of input"
            return wrong, "give one: .trigger(tm.count_trigger(100)); to fire at the end of input only, .trigger(tm.event_time_trigger())"
        if isinstance(trigger.inner if isinstance(trigger, PurgingTrigger) else trigger, ProcessingTimeTrigger):
            wrong = f"{trigger.describe()} never fires the global window, which has no end in processing time"
            return wrong, "use tm.continuous_processing_time_trigger('1 minute')"
    if trigger is not None and assigner.merging and not trigger.can_merge:
        wrong = f"the trigger {trigger.describe()} cannot merge what it keeps of windows, and sessions merge"
        return wrong, "use another trigger, or windows that do not merge; a custom trigger needs can_merge and on_merge"
    return "", ""


def _late_problem(node: WindowNode) -> tuple[str, str]:
    if node.allowed_lateness_ms and _always_open(node.assigner):
        given = "allowed_lateness"
    elif node.late_to is not None and never_late(node.assigner):
        given = "late_to"
    else:
        return "", ""
    kind = "windows of processing time" if node.assigner.domain == "processing" else node.assigner.describe()
    return f"{given} has no meaning for {kind}: no element is ever late there", f"leave .{given}(...) out"


def _evictor_problem(node: WindowNode) -> tuple[str, str]:
    if node.evictor is None:
        return "", ""
    if node.aggregates:
        wrong = "an evictor works on the elements that a process function is given, and aggregates keep none"
        return wrong, "compute the result in Python: .evictor(...).process(function, returns=...)"
    if isinstance(node.assigner, CountWindows):
        wrong = f"{node.assigner.describe()} defines the contents of its groups itself, and takes no evictor"
        return wrong, "leave .evictor(...) out, or put it on tm.global_window() with .trigger(tm.count_trigger(100))"
    return "", ""
