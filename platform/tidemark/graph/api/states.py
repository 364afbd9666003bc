"""Declares the states of process functions, and state machines in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.model.call_site import call_site
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor, check_default, spark_type
from tidemark.graph.operators.sql_state.declaration import SqlState, declared_fields, declared_returns
from tidemark.semantics.keyed_process.declarations import Aggregation, StateTtl, reducing
from tidemark.semantics.windows.windows import TimeDomain


def state_ttl(after: Duration, *, domain: TimeDomain = "processing", on_read: bool = False) -> StateTtl:
    """Return how long state lives after it was last written, and with ``on_read`` also after it was last read.

    Expired state is never returned, and dropped at the end of the epoch. Each entry of a list and of a map has its own time.

    Args:
        after: how long.
        domain: ``processing`` time, or ``event`` time: the operator's watermark.
        on_read: whether reading renews it, too.

    Raises:
        DurationError: cannot be read, or is negative.
        DefinitionError: zero, or another domain.

    >>> state_ttl("7 days").ms
    604800000
    """
    place = call_site()
    ms = to_ms(after, what="state_ttl", place=place)
    if ms < 1:
        raise DefinitionError("state_ttl of zero length keeps nothing", fix="write state_ttl('7 days')", place=place)
    if domain not in ("processing", "event"):
        raise DefinitionError(f"state_ttl(domain={domain!r}) is no time", fix="write domain='processing' or domain='event'", place=place)
    return StateTtl(ms, domain, on_read)


def value_state(type: str, *, default: object = None, ttl: StateTtl | None = None) -> StateDescriptor:
    """Return a state of one value per key: ``value()``, ``update(value)``, ``clear()``.

    Args:
        type: Spark type of the value, such as ``"DOUBLE"`` or ``"STRUCT<start: TIMESTAMP, fare: DOUBLE>"``.
        default: what ``value()`` returns where there is none.
        ttl: how long the value lives.

    Raises:
        DefinitionError: the type cannot be read, or the default could be changed.

    >>> value_state("double").type
    'DOUBLE'
    """
    place = call_site()
    if isinstance(default, list | dict | set):
        raise DefinitionError(
            f"value_state(default={default!r}) is one object for all keys", fix="leave it out, and read None as an empty one", place=place
        )
    found = spark_type(type, "value_state", place)
    check_default(default, found, "value_state(default=...)", place)
    return StateDescriptor("value", found, default=default, ttl=_ttl(ttl, place), place=place)


def list_state(type: str, *, ttl: StateTtl | None = None) -> StateDescriptor:
    """Return a state of any number of values per key: ``get()``, ``add(value)``, ``add_all(values)``, ``update(values)``, ``clear()``.

    Args:
        type: Spark type of a value.
        ttl: how long each value lives.

    Raises:
        DefinitionError: the type cannot be read.
    """
    place = call_site()
    return StateDescriptor("list", spark_type(type, "list_state", place), ttl=_ttl(ttl, place), place=place)


def map_state(key_type: str, type: str, *, ttl: StateTtl | None = None) -> StateDescriptor:
    """Return a state of values by a key of its own, per key of the stream.

    It has ``get(key)``, ``put(key, value)``, ``put_all(values)``, ``remove(key)``, ``contains(key)``, ``items()``, ``keys()``,
    ``values()``, ``is_empty()`` and ``clear()``.

    Args:
        key_type: Spark type of a key.
        type: Spark type of a value.
        ttl: how long each entry lives.

    Raises:
        DefinitionError: a type cannot be read.
    """
    place = call_site()
    key = spark_type(key_type, "map_state's keys", place)
    if "<" in key or key == "VARIANT":
        raise DefinitionError(
            f"map_state has keys of the type {key}, whose values are no keys of a dict",
            fix="use a type such as STRING or BIGINT; several values are one text, or a map per key of the stream: .key_by('a', 'b')",
            place=place,
        )
    return StateDescriptor("map", spark_type(type, "map_state", place), key_type=key, ttl=_ttl(ttl, place), place=place)


def reducing_state(type: str, function: Callable[[Any, Any], Any], *, ttl: StateTtl | None = None) -> StateDescriptor:
    """Return a state of all values added so far, reduced to one: ``get()``, ``add(value)``, ``clear()``.

    Args:
        type: Spark type of a value.
        function: of the value so far and another one, returns the next.
        ttl: how long it lives after the last value.

    Raises:
        DefinitionError: the type cannot be read, or the function does not take two arguments.

    >>> reducing_state("BIGINT", max).kind
    'reducing'
    """
    place = call_site()
    check_takes(function, "reducing_state", count=2, fix="pass a function of two values: reducing_state('BIGINT', max)", place=place)
    return StateDescriptor(
        "reducing", spark_type(type, "reducing_state", place), aggregation=reducing(function), ttl=_ttl(ttl, place), place=place
    )


def aggregating_state(
    type: str,
    *,
    create: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    result: Callable[[Any], Any],
    ttl: StateTtl | None = None,
) -> StateDescriptor:
    """Return a state of all values added so far, aggregated: ``get()``, ``add(value)``, ``clear()``.

    Args:
        type: Spark type of the accumulator.
        create: returns an empty accumulator.
        add: of the accumulator and a value, returns the next accumulator.
        result: of the accumulator, returns what ``get()`` returns.
        ttl: how long it lives after the last value.

    Raises:
        DefinitionError: the type cannot be read, or a function takes another number of arguments.
    """
    place = call_site()
    fix = "pass create=lambda: 0, add=lambda total, value: total + value, result=lambda total: total"
    check_takes(add, "aggregating_state(add=...)", count=2, fix=fix, place=place)
    check_takes(result, "aggregating_state(result=...)", count=1, fix=fix, place=place)
    if not callable(create):
        raise DefinitionError(f"aggregating_state(create={create!r}) is not a function", fix=fix, place=place)
    aggregation = Aggregation(create, add, result, (create, add, result))
    return StateDescriptor(
        "aggregating", spark_type(type, "aggregating_state", place), aggregation=aggregation, ttl=_ttl(ttl, place), place=place
    )


def sql_state(
    fields: Mapping[str, tuple[str, str] | tuple[str, str, str]],
    *,
    returns: Mapping[str, str],
    emit_when: str | None = None,
    ttl: StateTtl | None = None,
) -> SqlState:
    """Return a state machine in SQL, for ``key_by(...).process(sql_state(...))``: fields of each key that every element updates.

    Expressions see the columns of the element, and by their names the fields as they were before it; ``emit_when`` and ``returns`` also
    the fields after it, as ``new.name``. Spark evaluates all of it; no Python runs.

    Args:
        fields: by name the SQL of the next value and its Spark type, and the SQL of the initial value, null by default. A field whose
            next value is null is cleared, and has its initial value again.
        returns: the columns of the rows, with their SQL.
        emit_when: which elements emit a row: all by default.
        ttl: how long the fields of a key without elements live; then they have their initial values again.

    Raises:
        DefinitionError: no field or no column, or a type cannot be read.
        InvalidNameError: a name is not allowed.

    >>> doubled = sql_state({"last": ("fare", "DOUBLE")}, emit_when="fare > 2 * last", returns={"before": "last", "fare": "fare"})
    >>> doubled.fields[0].type
    'DOUBLE'
    """
    place = call_site()
    if emit_when is not None and not isinstance(emit_when, str):
        raise DefinitionError(f"sql_state(emit_when={emit_when!r}) is no SQL text", fix="write emit_when='fare > 2 * last'", place=place)
    return SqlState(declared_fields(fields, place), declared_returns(returns, place), emit_when, require_ttl(ttl, "sql_state", place))


def require_ttl(ttl: object, where: str, place: str) -> StateTtl | None:
    """Return the lifetime of state that each element writes, None for one without.

    Raises:
        DefinitionError: not from ``state_ttl``, or one that reading renews.
    """
    if ttl is None:
        return None
    if not isinstance(ttl, StateTtl):
        fix = f"write ttl=tm.state_ttl({ttl!r})" if isinstance(ttl, str) else "write ttl=tm.state_ttl('7 days')"
        raise DefinitionError(f"{where}(ttl={ttl!r}) is no lifetime of state", fix=fix, place=place)
    if ttl.on_read:
        raise DefinitionError(
            f"{where}(ttl=...) is to be renewed when state is read, and here each element both reads and writes it",
            fix="leave on_read out: every element of a key renews its state",
            place=place,
        )
    return ttl


def _ttl(ttl: object, place: str) -> StateTtl | None:
    if ttl is None or isinstance(ttl, StateTtl):
        return ttl
    raise DefinitionError(f"ttl is {ttl!r}, not how long state lives", fix="write ttl=tm.state_ttl('7 days')", place=place)
