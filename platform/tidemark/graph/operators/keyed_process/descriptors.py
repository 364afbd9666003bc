"""The states of a process function as users declare them: by descriptors, or by a dataclass with defaults."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.annotations import KNOWN, field_types, type_of_annotation
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.function_checks import shown_function
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.semantics.keyed_process.declarations import Aggregation, StateDeclaration, StateKind, StateTtl
from tidemark.semantics.keyed_process.states import STATES as HANDLES

STATES: Final = "__tm_states"
"""The attribute of a function's instance with the handles of the current key's states."""

_OPERATIONS: Final = frozenset(name for kind in HANDLES.values() for name in dir(kind) if not name.startswith("_"))
"""What functions call on the handle of a state."""


@dataclass(frozen=True, eq=False)
class StateDescriptor:
    """A state of each key, declared as a class attribute of the function, or in ``state={...}``.

    ``type`` is the Spark type of its values, of an aggregating state that of the accumulator; ``key_type`` is that of a map state's keys.
    As a class attribute it gives the function the handle of the current key's state.
    """

    kind: StateKind
    type: str
    key_type: str | None = None
    default: object = None
    aggregation: Aggregation | None = None
    ttl: StateTtl | None = None
    place: str | None = None
    _attribute: str = dataclasses.field(default="", init=False, repr=False)

    def __set_name__(self, owner: builtins.type[object], name: str) -> None:
        # The first of several names, which ``declared_states`` refuses.
        object.__setattr__(self, "_attribute", self._attribute or name)

    def __get__(self, instance: object, owner: builtins.type[object]) -> Any:  # noqa: ANN401  # the handle's type depends on the kind
        if instance is None:
            return self
        try:
            return instance.__dict__[STATES][self._attribute]
        except KeyError:
            raise DefinitionError(
                f"the state {self._attribute!r} is read where there is no key: in __init__, open() or close()",
                fix="read it in process or on_timer, which are called for a key",
                place=self.place,
            ) from None

    def __set__(self, instance: object, value: object) -> None:
        name = self._attribute
        raise DefinitionError(f"the state {name!r} is assigned to", fix=f"write self.{name}.update({value!r})", place=self.place)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name in _OPERATIONS:
                raise DefinitionError(
                    f"a {self.kind} state is made in __init__ or open(), where it belongs to no key, and {name} of it is called",
                    fix="declare it as an attribute of the class, such as: last = tm.value_state('DOUBLE')",
                    place=self.place,
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def attribute(self) -> str:
        """The name of the attribute, of several the first; empty for one that is none."""
        return self._attribute

    @property
    def functions(self) -> tuple[Any, ...]:
        """The user's functions in it."""
        return () if self.aggregation is None else self.aggregation.functions

    def declaration(self, name: str) -> StateDeclaration:
        """Return what the semantics knows of it."""
        nested = any(part in self.type for part in ("<", "VARIANT"))
        return StateDeclaration(name, self.kind, default=self.default, aggregation=self.aggregation, ttl=self.ttl, nested=nested)


def states_of_class(function: object) -> dict[str, StateDescriptor]:
    """Return the states that are attributes of a function's class, or of one that it inherits from."""
    kinds = reversed(type(function).__mro__)
    return {name: value for each in kinds for name, value in vars(each).items() if isinstance(value, StateDescriptor)}


def declared_states(function: object, state: object, place: str) -> dict[str, StateDescriptor]:
    """Return all states of a function: those that are attributes of its class, and those of ``state``.

    Args:
        function: the user's, an instance or a plain function.
        state: descriptors by name, or a dataclass whose fields have defaults, or None.
        place: of the definition.

    Raises:
        DefinitionError: a name or a type is not allowed, a default is missing or can be changed, or a state is declared twice.
    """
    found = states_of_class(function)
    for name, descriptor in found.items():
        # One that was set as an attribute of the class later has no name yet.
        descriptor.__set_name__(type(function), name)
        if descriptor.attribute != name:
            raise DefinitionError(
                f"the states {descriptor.attribute!r} and {name!r} are one object, so that each would have the values of the other",
                fix=f"declare each: {name} = tm.{descriptor.kind}_state(...)",
                place=descriptor.place or place,
            )
    for name, descriptor in _of_argument(state, place).items():
        if name in found:
            raise DefinitionError(
                f"the state {name!r} is declared in the class and in state=", fix="declare it in one of them", place=place
            )
        found[name] = descriptor
    check_column_names(found, "process(state=...)", place)
    wrong = next((name for name in found if not name.isidentifier()), None)
    if wrong is not None:
        raise DefinitionError(
            f"process has a state {wrong!r}, which is no name of an attribute",
            fix="name it such as 'last_fare': ctx.state.last_fare",
            place=place,
        )
    return {name: replace(descriptor, type=spark_type(descriptor.type, f"state {name!r}", place)) for name, descriptor in found.items()}


def _of_argument(state: object, place: str) -> Mapping[str, StateDescriptor]:
    if state is None:
        return {}
    if isinstance(state, type) and dataclasses.is_dataclass(state):
        return {field.name: _of_field(state, field, place) for field in dataclasses.fields(state)}
    if isinstance(state, Mapping) and all(isinstance(value, StateDescriptor) for value in state.values()):
        return {str(name): value for name, value in state.items()}
    raise DefinitionError(
        f"process(state={state!r}) is neither states by name nor a dataclass",
        fix="give state={'last': tm.value_state('DOUBLE')}, or a dataclass whose fields have types and defaults",
        place=place,
    )


def _of_field(owner: type, field: dataclasses.Field[Any], place: str) -> StateDescriptor:
    type_ = field_types(owner).get(field.name)
    if type_ is None:
        raise DefinitionError(
            f"the field {field.name!r} of {owner.__name__} is of type {field.type!r}, for which no column is known",
            fix=f"use {KNOWN}; or declare it: state={{{field.name!r}: tm.value_state('...')}}",
            place=place,
        )
    if field.default_factory is not dataclasses.MISSING:
        written = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
        raise DefinitionError(
            f"the field {field.name!r} of {owner.__name__} has a default_factory, and its value could be changed without being stored",
            fix=f"write {field.name}: {written.removesuffix(' | None')} | None = None, and assign a new value to it; "
            f"or declare a list or map: state={{{field.name!r}: tm.list_state('...')}}",
            place=place,
        )
    if field.default is dataclasses.MISSING:
        raise DefinitionError(
            f"the field {field.name!r} of {owner.__name__} has no default, which a key has before its first element",
            fix=f"write {field.name}: {getattr(field.type, '__name__', field.type)} = ...",
            place=place,
        )
    check_default(field.default, type_, f"the default of the field {field.name!r} of {owner.__name__}", place)
    return StateDescriptor("value", type_, default=field.default, place=place)


def spark_type(text: object, what: str, place: str) -> str:
    """Return a Spark type in one spelling.

    Raises:
        DefinitionError: it is no text, or cannot be read.
    """
    if not isinstance(text, str):
        meant = type_of_annotation(text) or "BIGINT"
        raise DefinitionError(f"the type of {what} is {shown_function(text)}, not a text", fix=f"write Spark DDL: {meant!r}", place=place)
    (column,) = parse_schema(f"value {text}", place=place, what=f"the type of {what}").columns
    return str(column.type)


_VALUES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), (int,)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), (int, float)),
    "DECIMAL": (int, Decimal),
    "STRING": (str,),
    "BOOLEAN": (bool,),
    "BINARY": (bytes,),
    "DATE": (date,),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_NTZ"), (datetime,)),
}
"""What a value of a type may be, of types whose name says so."""

_MAX_FLOAT: Final = 3.4028234663852886e38

_BITS: Mapping[str, int] = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
"""How many bits the integers of a type have."""


def check_default(default: object, type_: str, what: str, place: str) -> None:
    """Check that a default is a value of a state's type.

    Raises:
        DefinitionError: it is of another type or too large for it.
    """
    if default is None or _is_value(default, type_):
        return
    raise DefinitionError(
        f"{what} is {default!r} ({type(default).__name__}), which is no value of {type_}",
        fix="give a value of the state's type",
        place=place,
    )


def _is_value(default: object, type_: str) -> bool:
    values = _VALUES.get(type_.partition("(")[0])
    if values is None:
        return True
    if not isinstance(default, values) or (isinstance(default, bool) and type_ != "BOOLEAN"):
        return False
    if isinstance(default, datetime):
        return type_ != "DATE"
    if type_.startswith("DECIMAL"):
        return _fits_decimal(Decimal(str(default)), type_)
    if type_ == "FLOAT" and isinstance(default, int | float):
        return not math.isfinite(default) or abs(default) <= _MAX_FLOAT
    bits = _BITS.get(type_)
    return bits is None or not isinstance(default, int) or -(2 ** (bits - 1)) <= default < 2 ** (bits - 1)


def _fits_decimal(default: Decimal, type_: str) -> bool:
    """Return whether a decimal keeps all its digits in a type such as ``DECIMAL(4,2)``."""
    precision, _, scale = type_.removeprefix("DECIMAL").strip("()").partition(",")
    digits, fraction = int(precision or 10), int(scale or 0)
    if not default.is_finite() or (default and default.adjusted() >= digits - fraction):
        return False
    return default.quantize(Decimal(1).scaleb(-fraction), context=Context(prec=100)) == default
