"""Window functions: what they see, what they keep, how they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.errors import CorruptStoreError, TidemarkError, UserCodeError
from tidemark.semantics.triggers.panes import PaneTiming
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.watermarks.lateness import is_expired
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.windows.state_values import from_json, to_json
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

Row = Mapping[str, object]


@dataclass(frozen=True)
class WindowContext:
    """What a window function sees beside the elements.

    ``key`` is the key's columns by name, ``window`` none for count and global windows. ``watermark`` is the operator's after the epoch,
    for windows of processing time PT - 1; ``processing_time`` is the epoch's. ``timing`` and ``index`` are of the pane. ``key_state`` is
    the function's own of the key and is never cleared for it; values are as ``state_values`` takes them.
    """

    key: Mapping[str, object]
    window: Window | None
    watermark: int
    processing_time: int
    timing: PaneTiming
    index: int
    key_state: dict[str, object]
    of_window: dict[str, object] | None = field(repr=False)

    @property
    def window_state(self) -> dict[str, object]:
        """The function's own of the key and window; gone with the window, not when it is purged.

        Raises:
            UserCodeError: sessions have none, as in Flink: states of sessions that merge would have to become one.
        """
        if self.of_window is None:
            raise UserCodeError("sessions have no state per window", fix="keep it in context.key_state")
        return self.of_window


WindowFunction = Callable[[Sequence[Row], WindowContext], Iterable[Row]]
"""``function(elements, context)``: elements as dicts, in the order in which they arrived: by epoch, in an epoch in the contract's order."""


class FunctionState:
    """What a window function keeps of one key, per key and per window, between epochs.

    Args:
        stored: what ``to_json`` returned after the epoch before; empty for a key without.
        merging: whether windows are sessions, which have no state of their own.
    """

    def __init__(self, stored: Mapping[str, object], *, merging: bool) -> None:
        self._merging = merging
        self._key = _texts(from_json(stored.get("key", {})))
        self._windows = dict(map(_window, _list(stored.get("windows", []))))

    def context(self, key: Mapping[str, object], window: Window, clock: OperatorClock, *, timing: PaneTiming, index: int) -> WindowContext:
        """Return what the function sees for one pane; what it changes of its state is kept."""
        return WindowContext(
            key=key,
            window=None if window == GLOBAL_WINDOW else window,
            watermark=clock.watermark,
            processing_time=clock.processing_time,
            timing=timing,
            index=index,
            key_state=self._key,
            of_window=None if self._merging else self._windows.setdefault(window, {}),
        )

    def forget_expired(self, allowed_lateness_ms: int, watermark: int) -> None:
        """Drop the state of windows that are over; call it after an epoch's panes."""
        self._windows = {w: kept for w, kept in self._windows.items() if kept and not is_expired(w, allowed_lateness_ms, watermark)}

    def to_json(self) -> dict[str, object]:
        """Return what is kept as JSON has it, empty if there is nothing.

        Raises:
            UserCodeError: a value that JSON cannot give back.
        """
        what = "the state of a window function"
        windows = [
            [None if window == GLOBAL_WINDOW else [window.start, window.end], to_json(kept, what)]
            for window, kept in sorted(self._windows.items())
            if kept
        ]
        written = {"key": to_json(self._key, what), "windows": windows}
        return {name: part for name, part in written.items() if part}


def call_function(function: WindowFunction, elements: Sequence[Row], context: WindowContext) -> Iterator[dict[str, object]]:
    """Yield the rows of one pane.

    The function runs while they are taken: take them all before the next call.

    Raises:
        UserCodeError: it failed, or returned something else than rows as dicts.
    """
    where = f"window function {getattr(function, '__qualname__', type(function).__qualname__)}"
    try:
        for row in _rows(function(elements, context), where):
            yield dict(row)
    except TidemarkError:
        raise
    except Exception as error:
        at = "" if context.window is None else f" for the window [{context.window.start}, {context.window.end})"
        raise UserCodeError(
            f"{where} failed{at}: {type(error).__name__}: {error}", fix="make it take every list of elements", place=raised_at(error)
        ) from error


def _rows(returned: object, where: str) -> Iterator[Row]:
    if not isinstance(returned, Iterable) or isinstance(returned, Mapping | str | bytes):
        raise UserCodeError(f"{where} returned {returned!r}", fix="yield each row as a dict, or return a list of dicts")
    for row in returned:
        if not isinstance(row, Mapping):
            raise UserCodeError(f"{where} gave {row!r} for a row", fix="yield each row as a dict of column names and values")
        yield row


def _window(entry: object) -> tuple[Window, dict[str, object]]:
    bounds, kept = _list(entry)
    return GLOBAL_WINDOW if bounds is None else Window(*_list(bounds)), _texts(from_json(kept))  # type: ignore[arg-type]


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise CorruptStoreError(f"the state of a window function has {value!r} for a list", fix="restore from a savepoint")
    return value


def _texts(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CorruptStoreError(f"the state of a window function has {value!r} for a dict", fix="restore from a savepoint")
    return value
