"""The node of a state machine in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain


@dataclass(frozen=True)
class StateField:
    """A value per key: the SQL of its next value, its Spark type, and the SQL of the value that it has before the first element.

    The type is None where it is that of the stream's column of this name.
    """

    name: str
    update: str
    type: str | None = None
    initial: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SqlStateNode(StatefulNode):
    """Fields of each key that every element updates, and a row for each element that ``emit_when`` chooses.

    With ``reduced`` the fields are columns of the stream: a key's first element is its state, and updates merge the state, ``a``, with a
    later element, ``b``. The rows are then keys and fields, and ``returns`` is empty.
    """

    keys: tuple[tuple[str, Expression], ...]
    fields: tuple[StateField, ...]
    returns: tuple[tuple[str, str], ...] = ()
    emit_when: str | None = None
    ttl: StateTtl | None = None
    reduced: bool = False

    KIND: ClassVar[str] = "sql_state"
    PORTS: ClassVar[tuple[str, ...]] = ("elements",)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of the one input, ``elements``."""
        return (self.keys,)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """None: it accepts all elements."""
        return {}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; state of processing time has its own deadlines."""
        return "event"

    @property
    def field_names(self) -> frozenset[str]:
        """The names of fields, in lower case."""
        return frozenset(field.name.lower() for field in self.fields)
