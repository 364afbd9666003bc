"""The handles of a key's states, with the operations that a function calls, each of which can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidemark.errors import UnknownContextNameError, UserCodeError
from tidemark.semantics.keyed_process.declarations import Aggregation, StateDeclaration, StateTtl
from tidemark.semantics.keyed_process.key_record import Entry, KeyRecord, Stored, entries_of
from tidemark.semantics.keyed_process.map_order import MapOrder
from tidemark.semantics.keyed_process.times import EpochTimes, Now
from tidemark.semantics.user_mistakes import bare
from tidemark.semantics.user_rows import copied
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK

Undo = list[Callable[[], None]]
"""What takes back the changes of a call, in the order in which they were made."""


class _NoKey:
    """Stands for the states of a key where there is none."""

    def _refuse(self, *_: object) -> Any:  # noqa: ANN401 - never returns
        raise UserCodeError("state belongs to a key, and there is none in open() and close()", fix="use it in process or on_timer")

    get = pop = __contains__ = __setitem__ = _refuse


_NO_KEY = _NoKey()
_NO_ENTRIES: Final[Mapping[object, Entry]] = {}


class State:
    """A state of the key that is processed; the same object for all keys of a task.

    It is no value: that it is compared, counted with or tested for truth is refused.

    Args:
        declared: as declared.
        now: the times of the call.
        undo: gets what takes changes back; None where that is never asked for.
    """

    _read = "get()"
    """The call that reads it, for errors."""
    _words: ClassVar[Mapping[str, str]] = {}
    """What to call instead of names that users of Python and Flink write, in lower case without underscores."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            near = None if name.startswith("_") else self._words.get(bare(name))
            if near is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise UnknownContextNameError(f"the state {self._name!r} has no {name!r}", fix=f"write {self._name}.{near}")

    def __init__(self, declared: StateDeclaration, now: Now, undo: Undo | None) -> None:
        self._declared = declared
        self._name = declared.name
        self._ttl = declared.ttl
        self._copy = (declared.copy or copied) if declared.nested else None
        self._convert = declared.convert or self._copy
        self._convert_key = declared.convert_key
        self._key_type = declared.key_type
        # Most states neither expire nor are undone; an operation of these is one look-up, since there is one for each element.
        self._plain = undo is None and declared.ttl is None
        self._states: Any = _NO_KEY
        self._now = now
        self._undo = undo

    def _refuse_value(self, *_: object) -> Any:  # noqa: ANN401  # never returns
        name = self._name
        raise UserCodeError(
            f"the state {name!r} is used as if it were its value",
            fix=f"read it: self.{name}.{self._read}, or ctx.state.{name}.{self._read}",
        )

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __setitem__ = __int__ = __float__ = _refuse_value
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_value
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse_value
    __hash__ = object.__hash__

    def begin_key(self, record: KeyRecord | None) -> None:
        """Make it the state of a key; None between keys."""
        self._states = _NO_KEY if record is None else record.states

    def clear(self) -> None:
        """Drop all that the state has."""
        if self._name in self._states:
            self._set(None)

    def _stored(self) -> Any:  # noqa: ANN401  # each kind has its own form
        return self._states.get(self._name)

    def _set(self, stored: Stored | None) -> None:
        if self._undo is not None:
            self._undo.append(partial(self._put_back, self._stored()))
        self._put_back(stored)

    def _put_back(self, stored: Stored | None) -> None:
        if stored is None:
            self._states.pop(self._name, None)
        else:
            self._states[self._name] = stored

    def _may_undo(self, take_back: Callable[[], None]) -> None:
        if self._undo is not None:
            self._undo.append(take_back)

    def _entry(self, value: object) -> Entry:
        return self._again(value if self._convert is None else self._convert(value))

    def _again(self, kept: object) -> Entry:
        """Return an entry of a value that is kept already, renewed."""
        return kept, 0 if self._ttl is None else self._now.of(self._ttl.domain)

    def _is_live(self, entry: Entry) -> bool:
        return self._ttl is None or not self._ttl.is_expired(entry[1], self._now.of(self._ttl.domain))

    @property
    def _renews(self) -> bool:
        return self._ttl is not None and self._ttl.on_read

    def _own(self, value: object) -> object:
        return value if self._copy is None or value is None else self._copy(value)


class ValueState(State):
    """One value per key."""

    _read = "value()"
    _words: ClassVar[Mapping[str, str]] = {
        "get": "value()",
        "read": "value()",
        **dict.fromkeys(("set", "put", "add", "write", "setvalue"), "update(value)"),
    }

    def value(self) -> Any:  # noqa: ANN401  # of the declared type
        """Return the value; the declared default where there is none."""
        entry: Any = self._states.get(self._name)
        if entry is None or (not self._plain and not self._is_live(entry)):
            return self._declared.default
        if self._renews:
            self._set(self._again(entry[0]))
        return self._own(entry[0])

    def update(self, value: object) -> None:
        """Set the value; None clears the state, as in Flink."""
        if self._plain and value is not None:
            self._states[self._name] = (value if self._convert is None else self._convert(value), 0)
        else:
            self._set(None if value is None else self._entry(value))


class ListState(State):
    """Any number of values per key, in the order in which they were added."""

    _words: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("append", "put"), "add(value)"),
        **dict.fromkeys(("extend", "addall"), "add_all(values)"),
        **dict.fromkeys(("value", "values", "read"), "get()"),
    }

    def get(self) -> list[Any]:
        """Return the values."""
        stored: list[Entry] = self._stored() or []
        live = [entry for entry in stored if self._is_live(entry)]
        if self._renews and live:
            self._set([self._again(entry[0]) for entry in live])
        return [self._own(entry[0]) for entry in live]

    def add(self, value: object) -> None:
        """Add a value."""
        stored = self._stored()
        if stored is None:
            self._set([self._entry(value)])
            return
        stored.append(self._entry(value))
        self._may_undo(stored.pop)

    def add_all(self, values: Iterable[object]) -> None:
        """Add values."""
        for value in values:
            self.add(value)

    def update(self, values: Iterable[object]) -> None:
        """Replace all values."""
        self._set([self._entry(value) for value in values] or None)


class MapState(State):
    """Values by key of the map, per key of the stream."""

    _read = "get(key)"
    _words: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("set", "add"), "put(key, value)"),
        **dict.fromkeys(("update", "putall"), "put_all(values)"),
        **dict.fromkeys(("pop", "delete"), "remove(key)"),
        **dict.fromkeys(("entries", "iterator", "value"), "items()"),
        **dict.fromkeys(("has", "containskey"), "contains(key)"),
        "isempty": "is_empty()",
    }

    _order: MapOrder | None = None
    """The order of the map that a key was removed from last, where removals can be undone."""

    def get(self, key: object) -> Any:  # noqa: ANN401  # of the declared type
        """Return the value of a key, None where there is none."""
        stored = self._states.get(self._name)
        # A key that is there fits its type, so that most need not be converted.
        entry = None if stored is None or type(key) is not self._key_type else stored.get(key)
        if entry is None:
            if self._convert_key is not None:
                key = self._convert_key(key)
            entry = None if stored is None else stored.get(key)
            if entry is None:
                return None
        if self._plain:
            value = entry[0]
            return value if self._copy is None or value is None else self._copy(value)
        if not self._is_live(entry):
            return None
        if self._renews:
            self._put(key, self._again(entry[0]))
        return self._own(entry[0])

    def put(self, key: object, value: object) -> None:
        """Set the value of a key."""
        if self._convert is not None:
            value = self._convert(value)
        stored = self._states.get(self._name)
        if self._convert_key is not None and (stored is None or type(key) is not self._key_type or key not in stored):
            key = self._convert_key(key)
        if self._plain:
            if stored is None:
                self._states[self._name] = {key: (value, 0)}
            else:
                stored[key] = (value, 0)
            return
        if stored is None:
            self._set({})
        self._put(key, self._again(value))

    def put_all(self, values: Mapping[Any, object]) -> None:
        """Set the values of several keys."""
        for key, value in values.items():
            self.put(key, value)

    def remove(self, key: object) -> None:
        """Drop a key."""
        stored = self._states.get(self._name)
        if stored is None or type(key) is not self._key_type or key not in stored:
            key = self._key(key)
            if stored is None or key not in stored:
                return
        if len(stored) == 1:
            self._set(None)
            return
        if self._undo is not None:
            if self._order is None or self._order.entries is not stored:
                self._order = MapOrder(stored)
            self._undo.append(self._order.remove(key))
        else:
            del stored[key]

    def contains(self, key: object) -> bool:
        """Whether there is a value of a key; this reads it, as in Flink."""
        key = self._key(key)
        entry = self._live(key)
        if entry is not None and self._renews:
            self._put(key, self._again(entry[0]))
        return entry is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the keys with their values."""
        live = [(key, entry) for key, entry in (self._stored() or {}).items() if self._is_live(entry)]
        for key, entry in live:
            if self._renews:
                self._put(key, self._again(entry[0]))
        return iter([(key, self._own(entry[0])) for key, entry in live])

    def keys(self) -> Iterator[Any]:
        """Return the keys."""
        return iter([key for key, _ in self.items()])

    def values(self) -> Iterator[Any]:
        """Return the values."""
        return iter([value for _, value in self.items()])

    def is_empty(self) -> bool:
        """Whether there is no key."""
        return not any(map(self._is_live, entries_of(self._stored() or {})))

    def _key(self, key: object) -> object:
        return key if self._convert_key is None else self._convert_key(key)

    def _live(self, key: object) -> Entry | None:
        entry = (self._stored() or _NO_ENTRIES).get(key)
        return entry if entry is not None and self._is_live(entry) else None

    def _put(self, key: object, entry: Entry) -> None:
        stored = self._stored()
        before = stored.get(key)
        if before is None and self._order is not None and self._order.entries is stored:
            self._order.append(key)
        stored[key] = entry
        self._may_undo(lambda: stored.pop(key, None) if before is None else stored.__setitem__(key, before))


class AggregatingState(State):
    """The aggregate of all values that were added, per key. A reducing state is one whose function takes and returns a value."""

    _words: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("value", "read", "result"), "get()"),
        **dict.fromkeys(("update", "put", "append"), "add(value)"),
    }

    def get(self) -> Any:  # noqa: ANN401  # of the declared type
        """Return the result so far, None before the first value."""
        entry = self._stored()
        if entry is None or not self._is_live(entry):
            return None
        if self._renews:
            self._set(self._again(entry[0]))
        return self._aggregation.result(self._own(entry[0]))

    def add(self, value: object) -> None:
        """Add a value. An accumulator that becomes None clears the state."""
        entry = self._stored()
        so_far = self._aggregation.create() if entry is None or not self._is_live(entry) else self._own(entry[0])
        accumulator = self._aggregation.add(so_far, value)
        self._set(None if accumulator is None else self._entry(accumulator))

    @property
    def _aggregation(self) -> Aggregation:
        if self._declared.aggregation is None:
            raise ValueError(f"the state {self._declared.name!r} has no aggregation")
        return self._declared.aggregation


STATES: Mapping[str, type[State]] = {
    "value": ValueState,
    "list": ListState,
    "map": MapState,
    "reducing": AggregatingState,
    "aggregating": AggregatingState,
}


def begin_lifetimes(record: KeyRecord, declarations: Mapping[str, StateDeclaration], times: EpochTimes) -> None:
    """Have entries that were written before there was a watermark live from the first one."""
    for name, stored in record.states.items():
        ttl = declarations[name].ttl if name in declarations else None
        if ttl is None or ttl.domain != "event" or all(entry[1] != MIN_WATERMARK for entry in entries_of(stored)):
            continue
        begun = partial(_begun, ttl, times)
        if isinstance(stored, tuple):
            record.states[name] = begun(stored)
        elif isinstance(stored, dict):
            record.states[name] = {key: begun(entry) for key, entry in stored.items()}
        else:
            record.states[name] = [begun(entry) for entry in stored]


def _begun(ttl: StateTtl, times: EpochTimes, entry: Entry) -> Entry:
    return entry[0], ttl.begins(entry[1], times.before, times.watermark)


def drop_expired(record: KeyRecord, declarations: Mapping[str, StateDeclaration], now: Now) -> int:
    """Drop the entries of a key that have expired; return their number."""
    dropped = 0
    for name, stored in list(record.states.items()):
        ttl = declarations[name].ttl if name in declarations else None
        if ttl is None:
            continue
        at = now.of(ttl.domain)
        if isinstance(stored, tuple):
            left: Any = None if ttl.is_expired(stored[1], at) else stored
        elif isinstance(stored, dict):
            left = {key: entry for key, entry in stored.items() if not ttl.is_expired(entry[1], at)}
        else:
            left = [entry for entry in stored if not ttl.is_expired(entry[1], at)]
        dropped += len(entries_of(stored)) - (len(entries_of(left)) if left else 0)
        if left:
            record.states[name] = left
        else:
            del record.states[name]
    return dropped
