"""What a process function is given: times, key, timers, side outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tidemark.errors import UnknownContextNameError, UserCodeError
from tidemark.semantics.keyed_process.broadcast_maps import NO_MAPS
from tidemark.semantics.keyed_process.timers import KeyTimers
from tidemark.semantics.keyed_process.times import Now
from tidemark.semantics.user_mistakes import bare, near_name, warn_of_unit
from tidemark.semantics.user_rows import is_text, own_row
from tidemark.semantics.windows.windows import TimeDomain

if TYPE_CHECKING:
    import pyarrow as pa

_BOUND = 1 << 63
_EARLIEST, _LATEST = 10_000_000_000, 100_000_000_000_000
"""Most timers are between these, and of times outside it is asked whether they are in another unit."""

Row = Mapping[str, object]


class TimerService:
    """Sets and deletes the timers of the current key; times are milliseconds since 1970."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._has_warned = False
        self.timers: KeyTimers | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise _unknown(self, name, "the timer service", "ctx.timer_service().")

    def current_watermark(self) -> int:
        """Return the watermark of the operator at this element or timer."""
        return self._now.watermark

    def current_processing_time(self) -> int:
        """Return the processing time of the epoch."""
        return self._now.processing_time

    def register_event_time_timer(self, time: int, name: str | None = None) -> None:
        """Have ``on_timer`` called when the watermark reaches a time. A timer with a name replaces an earlier one of this name."""
        timers = self.timers or self._of_key
        if name is None and type(time) is int and _EARLIEST <= time < _LATEST:
            timers.register_event_time(time)
        else:
            timers.register("event", self._checked(time, self._now.timestamp), None if name is None else _name(name))

    def register_processing_time_timer(self, time: int, name: str | None = None) -> None:
        """Have ``on_timer`` called in the first epoch whose processing time is a time or later; names as for event time."""
        at = self._checked(time, self._now.processing_time)
        (self.timers or self._of_key).register("processing", at, None if name is None else _name(name))

    def delete_event_time_timer(self, time: int | None = None, *, name: str | None = None) -> None:
        """Delete the timer at a time, or the one with a name, if there is one."""
        self._of_key.delete("event", *_which(time, name))

    def delete_processing_time_timer(self, time: int | None = None, *, name: str | None = None) -> None:
        """Delete the timer at a time, or the one with a name, if there is one."""
        self._of_key.delete("processing", *_which(time, name))

    def _checked(self, time: object, now: int) -> int:
        """Return a timer's time; the first one of a task that seems to be in another unit than milliseconds is logged."""
        found = _time(time)
        if not _EARLIEST <= found < _LATEST and not self._has_warned:
            self._has_warned = warn_of_unit(found, now)
        return found

    @property
    def _of_key(self) -> KeyTimers:
        if self.timers is None:
            raise UserCodeError("timers belong to a key, and there is none in open() and close()", fix="set them in process or on_timer")
        return self.timers


class ProcessContext:
    """The context of a call of ``process`` or ``on_timer``.

    ``timer_name`` is the name of the timer that fires, None in ``process`` and for a timer without one; ``time_domain`` is ``event`` or
    ``processing`` where a timer fires, else None. ``timestamps`` are the event times of the elements of ``process_batch``, as
    ``pyarrow.Int64Array``; ``timestamp`` is that of the last of them. ``takes_batches`` is whether it is ``process_batch`` that is called,
    which may emit batches of rows. ``state`` has the states that were declared beside the function. ``broadcast`` has the map of a
    broadcast stream by its name; it cannot be changed, nor can its values.
    """

    state: Any

    def __init__(self, now: Now, tags: frozenset[str], broadcast: Mapping[str, Mapping[Any, Any]] = NO_MAPS) -> None:
        self.timer_name: str | None = None
        self.time_domain: TimeDomain | None = None
        self.timestamps: Any = None
        self.takes_batches = False
        self.broadcast = broadcast
        self._now = now
        self._tags = tags
        self._service = TimerService(now)
        self._key: Mapping[str, object] | None = None
        self._outputs: list[tuple[str, Any]] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            plain = bare(name)
            if plain == "getruntimecontext" or (plain.startswith("get") and plain.endswith("state")):
                raise UnknownContextNameError(
                    f"the context has no {name!r}: states are declared, not asked for",
                    fix="declare it as an attribute of the class, such as: last = tm.value_state('DOUBLE'), and call self.last.value()",
                )
            raise _unknown(self, name, "the context", "ctx.")

    @property
    def timestamp(self) -> int:
        """The event time of the element, or the time of the timer, milliseconds."""
        return self._now.timestamp

    @property
    def current_key(self) -> Mapping[str, object]:
        """The key's columns by name; they cannot be changed."""
        if self._key is None:
            raise UserCodeError("there is no key in open() and close()", fix="read it in process or on_timer")
        return MappingProxyType(self._key)

    @property
    def has_key(self) -> bool:
        """Whether there is a key: not in ``open`` and ``close``."""
        return self._key is not None

    def current_watermark(self) -> int:
        """Return the watermark of the operator at this element or timer."""
        return self._now.watermark

    def current_processing_time(self) -> int:
        """Return the processing time of the epoch."""
        return self._now.processing_time

    def timer_service(self) -> TimerService:
        """Return what sets and deletes timers."""
        return self._service

    def output(self, tag: object, row: Row | pa.RecordBatch) -> None:
        """Emit a row to a side output; ``process_batch`` may emit a ``pyarrow.RecordBatch`` of rows.

        Raises:
            UserCodeError: the operator has no such side output.
        """
        name = getattr(tag, "name", tag)
        if not isinstance(name, str):
            raise UserCodeError(f"the side output is {tag!r}, not a tag", fix="give the tag first, and then the row: ctx.output(tag, row)")
        if name not in self._tags:
            known = ", ".join(sorted(self._tags)) or "none"
            raise UserCodeError(
                f"there is no side output {name!r}", fix=f"declare it: side_outputs={{tag: 'k STRING'}}; there are: {known}"
            )
        if type(row) is dict or isinstance(row, Mapping):
            self._outputs.append((name, own_row(row)))
        elif self.takes_batches and hasattr(row, "num_rows"):
            self._outputs.append((name, row))
        else:
            shown = f"a {type(row).__name__}" if hasattr(row, "num_rows") else repr(row)
            raise UserCodeError(f"the side output {name!r} is given {shown} as a row", fix="give a dict of column names and values")

    def begin_key(self, key: Mapping[str, object] | None, timers: KeyTimers | None) -> None:
        """Set the key that is processed, None between keys."""
        self._key, self._service.timers = key, timers

    @property
    def pending_outputs(self) -> Sequence[tuple[str, Any]]:
        """The rows of side outputs that were emitted since they were taken; always the same list, which later rows are added to."""
        return self._outputs

    def take_outputs(self) -> list[tuple[str, Any]]:
        """Return the rows of side outputs since the last call."""
        taken = self._outputs.copy()
        self._outputs.clear()
        return taken


def _unknown(owner: object, name: str, what: str, shown: str) -> Exception:
    """Return the error of a name that an object of a call does not have."""
    known = [each for each in dir(type(owner)) if not each.startswith("_")]
    near = None if name.startswith("_") else near_name(name, known, cutoff=0.85)
    if near is None:
        return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    call = "()" if callable(getattr(type(owner), near)) else ""
    return UnknownContextNameError(f"{what} has no {name!r}", fix=f"write {shown}{near}{call}")


def _time(time: object) -> int:
    if type(time) is not int or not -_BOUND <= time < _BOUND:
        raise UserCodeError(f"a timer's time is {time!r}, not milliseconds since 1970", fix="give an int, such as ctx.timestamp + 60_000")
    return time


def _name(name: object) -> str | None:
    if name is not None and (not isinstance(name, str) or not name or not is_text(name)):
        raise UserCodeError(f"a timer's name is {name!r}, not a text", fix="give a text, or leave it out")
    return name


def _which(time: int | None, name: str | None) -> tuple[int | None, str | None]:
    if (time is None) == (name is None):
        raise UserCodeError("a timer is deleted by its time or by its name", fix="give one of them")
    return (None if time is None else _time(time)), _name(name)
