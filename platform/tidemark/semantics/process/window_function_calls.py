"""Window functions: their context, their state, their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.errors import CorruptStoreError, TidemarkError, UserCodeError
from tidemark.semantics.triggers.panes import PaneTiming
from tidemark.semantics.user_lines import raised_at
from tidemark.semantics.user_rows import own_row
from tidemark.semantics.watermarks.lateness import is_expired
from tidemark.semantics.watermarks.operator_clock import OperatorClock
from tidemark.semantics.windows.state_values import from_json, to_json
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

Row = Mapping[str, object]


@dataclass(frozen=True)
class WindowContext:
    """The context of a window function's call.

    ``key`` is the key's columns by name, ``window`` None for count and global windows. ``watermark`` is the operator's after the epoch,
    for windows of processing time PT - 1; ``processing_time`` is the epoch's. ``timing`` and ``index`` are of the pane. ``key_state`` is
    the function's state of the key and is never cleared; values are as ``state_values`` accepts them.
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
        """The function's state of the key and window; dropped with the window, not when it is purged.

        Raises:
            UserCodeError: sessions have none, as in Flink: states of sessions that merge would have to become one.
        """
        if self.of_window is None:
            raise UserCodeError("sessions have no state per window", fix="keep it in context.key_state")
        return self.of_window


WindowFunction = Callable[[Sequence[Row], WindowContext], Iterable[Row]]
"""``function(elements, context)``: elements as dicts, in the order in which they arrived: by epoch, in an epoch in the contract's order."""


class FunctionState:
    """A window function's state of one key, per key and per window, between epochs.

    Args:
        stored: the result of ``to_json`` after the epoch before; empty for a key without.
        merging: whether windows are sessions, which have no state per window.
    """

    def __init__(self, stored: Mapping[str, object], *, merging: bool) -> None:
        self._merging = merging
        self._key = _texts(from_json(stored.get("key", {})))
        self._windows = dict(map(_window, _list(stored.get("windows", []))))

    def context(self, key: Mapping[str, object], window: Window, clock: OperatorClock, *, timing: PaneTiming, index: int) -> WindowContext:
        """Return the context of one pane; changes of its state are kept."""
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
        """Drop the state of expired windows; call it after an epoch's panes."""
        self._windows = {w: kept for w, kept in self._windows.items() if kept and not is_expired(w, allowed_lateness_ms, watermark)}

    def to_json(self) -> dict[str, object]:
        """Return the state as plain JSON, empty if there is none.

        Raises:
            UserCodeError: a value that JSON cannot represent.
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

    The function runs while they are consumed: consume them all before the next call.

    Raises:
        UserCodeError: it failed, or returned anything but rows as dicts.
    """
    where = f"window function {getattr(function, '__qualname__', type(function).__qualname__)}"
    try:
        for row in _rows(function(elements, context), where):
            yield own_row(row)
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
            raise UserCodeError(f"{where} returned {row!r} as a row", fix="yield each row as a dict of column names and values")
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
