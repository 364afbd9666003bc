"""The state of one key between epochs: its open windows, their triggers' values and timers, and removed elements. As JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.errors import CorruptStoreError, FormatError
from tidemark.semantics.triggers.panes import ReplacedSession
from tidemark.semantics.triggers.triggers import TriggerResult, TriggerValue
from tidemark.semantics.windows.element_ranges import NOTHING_REMOVED, ElementRange, RemovedElements, removed_from_json
from tidemark.semantics.windows.state_values import dump, from_json, to_json
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

FORMAT: Final = 2
"""Of states with the bounds of replaced sessions; others are still written as the first one, in which these are starts alone."""

_STARTS_ONLY: Final = 1
_ORDERS_PER_EPOCH: Final = 2**32


class HeldElement(NamedTuple):
    """An element as it is stored: its time in the domain of the windows, its place in the order of arrival, its row."""

    timestamp: int
    order: int
    row: object


@dataclass
class WindowState:
    """The state of one open window of a key.

    ``held`` counts its elements, ``panes`` those it has emitted, ``replaced`` are absorbed sessions whose results were emitted, and
    ``trigger``, ``event``, ``processing`` are the trigger's values and timers. ``asked`` and ``touched`` are of the epoch only.
    """

    window: Window
    held: int = 0
    panes: int = 0
    replaced: tuple[ReplacedSession, ...] = ()
    trigger: dict[str, TriggerValue] = field(default_factory=dict)
    event: set[int] = field(default_factory=set)
    processing: set[int] = field(default_factory=set)
    removed: RemovedElements = NOTHING_REMOVED
    asked: TriggerResult = TriggerResult.CONTINUE
    touched: bool = False

    @property
    def result_is_out(self) -> bool:
        """Whether there was a pane under the window's own bounds. A session made of others that had some had none itself before its own."""
        return self.panes > 0 and not self.replaced

    def holds(self, timestamp: int, order: int) -> bool:
        """Return whether a stored element of the key is the window's, ignoring tombstones."""
        return self.window.start <= timestamp < self.window.end and not self.removed.covers(timestamp, order)


@dataclass
class KeyState:
    """The state of one key.

    ``born`` is the least order that a live element can have: others are left from dropped windows. ``tombstones`` are the ranges of
    expired sessions. ``counted`` is for count windows: how many elements the key has had. ``function`` is the window function's part.
    """

    born: int
    windows: dict[Window, WindowState] = field(default_factory=dict)
    tombstones: tuple[ElementRange, ...] = ()
    counted: int = 0
    function: Mapping[str, object] = field(default_factory=dict)

    def holds(self, timestamp: int, order: int) -> bool:
        """Return whether any window of the key has a stored element."""
        return self.is_live(timestamp, order) and any(state.holds(timestamp, order) for state in self.windows.values())

    def is_live(self, timestamp: int, order: int) -> bool:
        """Return whether a stored element is of this life of the key, and in no tombstone."""
        return order >= self.born and not any(area.covers(timestamp, order) for area in self.tombstones)


def order_of(epoch: int, place: int) -> int:
    """Return an element's order: by epoch, in an epoch by its place in the contract's order of the key's elements."""
    return epoch * _ORDERS_PER_EPOCH + place


def write_state(state: KeyState) -> str | None:
    """Return a key's state as text, None if there is nothing to keep.

    Raises:
        UserCodeError: a trigger or window function keeps a value that JSON cannot represent.
    """
    if not state.windows and not state.counted and not state.function:
        return None
    bounded = any(session.end is not None for window in state.windows.values() for session in window.replaced)
    written: dict[str, object] = {"format": FORMAT if bounded else _STARTS_ONLY}
    if state.windows:
        written |= {"born": state.born, "windows": [_window_json(window) for window in state.windows.values()]}
    if state.tombstones:
        written["graves"] = [[area.start, area.end, area.through] for area in state.tombstones]
    if state.counted:
        written["counted"] = state.counted
    if state.function:
        written["function"] = state.function
    return dump(written)


def read_state(text: str | None, epoch: int) -> KeyState:
    """Return a key's state from its text, an empty one if there is none.

    Args:
        text: the result of ``write_state``.
        epoch: the epoch that begins; a new life of the key begins with it if it has no windows.

    Raises:
        FormatError: a later release wrote it.
        CorruptStoreError: it is no such text.
    """
    if text is None:
        return KeyState(born=order_of(epoch, 0))
    try:
        written = json.loads(text)
        found = written["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStoreError(f"a key's window state is unreadable: {text[:80]!r}", fix="restore from a savepoint") from error
    if found not in {FORMAT, _STARTS_ONLY}:
        raise FormatError(
            f"a key's window state has format {found!r}, this release reads up to {FORMAT}", fix="run the release that wrote it"
        )
    windows = [_window_state(window) for window in written.get("windows", [])]
    return KeyState(
        born=written.get("born", order_of(epoch, 0)),
        windows={window.window: window for window in windows},
        tombstones=tuple(ElementRange(*area) for area in written.get("graves", [])),
        counted=written.get("counted", 0),
        function=written.get("function", {}),
    )


def _window_json(state: WindowState) -> dict[str, object]:
    bounds = None if state.window == GLOBAL_WINDOW else [state.window.start, state.window.end]
    parts: dict[str, object] = {
        "held": state.held,
        "panes": state.panes,
        "replaced": [session.start if session.end is None else list(session) for session in state.replaced],
        "trigger": to_json(state.trigger, "a trigger's state"),
        "event": sorted(state.event),
        "processing": sorted(state.processing),
        "removed": state.removed.to_json() if state.removed != NOTHING_REMOVED else None,
    }
    return {"window": bounds} | {name: part for name, part in parts.items() if part}


def _window_state(written: Mapping[str, object]) -> WindowState:
    bounds = written["window"]
    trigger = from_json(written.get("trigger", {}))
    return WindowState(
        window=Window(*bounds) if isinstance(bounds, list) else GLOBAL_WINDOW,
        held=_whole(written.get("held", 0)),
        panes=_whole(written.get("panes", 0)),
        replaced=tuple(_replaced(written.get("replaced", []))),
        trigger=trigger if isinstance(trigger, dict) else {},
        event=set(_wholes(written.get("event", []))),
        processing=set(_wholes(written.get("processing", []))),
        removed=removed_from_json(written["removed"]) if "removed" in written else NOTHING_REMOVED,
    )


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise CorruptStoreError(f"a key's window state has {value!r} for a whole number", fix="restore from a savepoint")
    return value


def _wholes(values: object) -> Iterable[int]:
    return [_whole(value) for value in values] if isinstance(values, list) else []


def _replaced(values: object) -> Iterable[ReplacedSession]:
    """Return sessions of their bounds, or of a start where the first format has no more."""
    found = values if isinstance(values, list) else []
    return [ReplacedSession(*_wholes(value)) if isinstance(value, list) else ReplacedSession(_whole(value)) for value in found]
