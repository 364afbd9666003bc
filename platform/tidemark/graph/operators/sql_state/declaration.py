"""A state machine in SQL as users declare it, before it is given to a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.operators.keyed_process.descriptors import spark_type
from tidemark.graph.operators.sql_state.node import StateField
from tidemark.semantics.keyed_process.declarations import StateTtl

FIELDS_FIX = "write such as fields={'last': ('fare', 'DOUBLE')}: the next value in SQL, and its type"
RETURNS_FIX = "write such as returns={'zone': 'zone', 'before': 'last', 'fare': 'fare'}: columns and their SQL"


@dataclass(frozen=True, eq=False)
class SqlState:
    """A state machine, for ``KeyedStream.process``; made by ``sql_state``."""

    fields: tuple[StateField, ...]
    returns: tuple[tuple[str, str], ...]
    emit_when: str | None = None
    ttl: StateTtl | None = None


def declared_fields(fields: object, place: str) -> tuple[StateField, ...]:
    """Return fields as users give them: by name the SQL of the next value, the type, and the SQL of the initial value, if any.

    Raises:
        DefinitionError: there are none, one is of another form, or its type cannot be read.
        InvalidNameError: a name is not allowed.
    """
    if not isinstance(fields, Mapping) or not fields:
        raise DefinitionError(f"sql_state(fields={fields!r}) declares no field", fix=FIELDS_FIX, place=place)
    check_column_names(fields, "sql_state(fields=...)", place)
    return tuple(_field(name, given, place) for name, given in fields.items())


def _field(name: str, given: object, place: str) -> StateField:
    parts = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if not 2 <= len(parts) <= 3 or not all(isinstance(part, str) and part.strip() for part in parts):
        numbers = [part for part in parts[2:] if isinstance(part, int | float)]
        fix = f"write the initial value as SQL: {str(numbers[0]).lower()!r}" if numbers else FIELDS_FIX
        raise DefinitionError(f"the field {name!r} is {given!r}, not its next value and its type as texts", fix=fix, place=place)
    update, kind, *more = (part.strip() for part in parts)
    return StateField(name, update, spark_type(kind, f"the field {name!r}", place), more[0] if more else None)


def declared_returns(returns: object, place: str) -> tuple[tuple[str, str], ...]:
    """Return the columns of the rows with their SQL.

    Raises:
        DefinitionError: there are none, or one is no SQL text.
        InvalidNameError: a name is not allowed.
    """
    if not isinstance(returns, Mapping) or not returns:
        raise DefinitionError(f"sql_state(returns={returns!r}) names no column", fix=RETURNS_FIX, place=place)
    check_column_names(returns, "sql_state(returns=...)", place)
    wrong = next((name for name, text in returns.items() if not isinstance(text, str)), None)
    if wrong is not None:
        raise DefinitionError(f"sql_state returns {wrong!r} as {returns[wrong]!r}, which is no SQL text", fix=RETURNS_FIX, place=place)
    return tuple(returns.items())
