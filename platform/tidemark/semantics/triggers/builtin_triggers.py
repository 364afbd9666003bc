"""The built-in triggers. This module re-exports their names.

``event_time_trigger`` fires at the window's end, ``time_triggers`` by the clock and at each step of a time, ``element_triggers`` by the
elements; ``triggers`` is the interface of all of them, and of custom ones.
"""

from __future__ import annotations

from tidemark.semantics.triggers.element_triggers import (
    CountTrigger,
    DeltaFunction,
    DeltaTrigger,
    EachEpochTrigger,
    NeverTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.event_time_trigger import EventTimeTrigger
from tidemark.semantics.triggers.time_triggers import ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger, ProcessingTimeTrigger
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.windows.assigners import CountWindows, GlobalWindows
from tidemark.semantics.windows.windows import WindowAssigner

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "DeltaFunction",
    "DeltaTrigger",
    "EachEpochTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "default_trigger",
]


def default_trigger(assigner: WindowAssigner) -> Trigger:
    """Return the default trigger of windows: the end of their time; none for global windows.

    Count windows have groups instead of a trigger; theirs never fires.

    >>> from tidemark.semantics.windows.assigners import Tumbling
    >>> default_trigger(Tumbling(10)).describe(), default_trigger(Tumbling(10, domain="processing")).describe()
    ('event_time_trigger()', 'processing_time_trigger()')
    """
    if isinstance(assigner, GlobalWindows | CountWindows):
        return NeverTrigger()
    return ProcessingTimeTrigger() if assigner.domain == "processing" else EventTimeTrigger()
