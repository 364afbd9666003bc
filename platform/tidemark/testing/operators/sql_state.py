"""State machines in SQL, and ``reduce``, in plain Python: simple SQL is evaluated without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.graph.expressions.expressions import Site
from tidemark.graph.operators.sql_state.expressions import NEW
from tidemark.graph.operators.sql_state.node import SqlStateNode, StateField
from tidemark.graph.operators.window.reduce import EARLIER, LATER
from tidemark.semantics.running.field_machine import FieldMachine, MachineField
from tidemark.semantics.running.keyed_fold import Stepped
from tidemark.testing.operators.contract import Arrived, Folds
from tidemark.testing.operators.keyed_fold import PureKeyedFold
from tidemark.testing.sql_values import sql_value, typed_value

Row = Mapping[str, object]


class PureSqlState(PureKeyedFold):
    """A state machine.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: SqlStateNode, folds: Folds) -> None:
        del folds
        super().__init__(node, node.keys, node.ttl)
        self._machine_node = node
        self._machine = FieldMachine({field.name: self._field(field) for field in node.fields}, self._result)

    def _value(self, text: str, row: Row, what: str) -> Any:  # noqa: ANN401  # of the expression's type
        return sql_value(text, row, Site(what, self._node.place, self._node.uid))

    def _field(self, field: StateField) -> MachineField:
        what = f"the update of field {field.name!r}"
        initial = None if field.initial is None else typed_value(self._value(field.initial, {}, what), field.type)
        return MachineField(lambda row, before: typed_value(self._value(field.update, {**row, **before}, what), field.type), initial)

    def _result(self, row: Row, before: Row, after: Row) -> Row | None:
        node, seen = self._machine_node, {**row, **before, NEW: after}
        if node.emit_when is not None and self._value(node.emit_when, seen, "sql_state emit_when") is not True:
            return None
        return {name: self._value(text, seen, f"sql_state column {name!r}") for name, text in node.returns}

    def step(self, state: Any, element: Arrived) -> Stepped[Any, dict[str, object]]:  # noqa: ANN401
        """Return what an element does."""
        if self._machine_node.reduced:
            return self._reduced(state, element.row)
        after, rows = self._machine.step(state, element.row)
        return Stepped(after, [dict(row) for row in rows])

    def _reduced(self, state: Row | None, row: Row) -> Stepped[Any, dict[str, object]]:
        fields = self._machine_node.fields
        after = {field.name: row[field.name] for field in fields}
        if state is not None:
            both = {EARLIER: state, LATER: row}
            after = {field.name: self._value(field.update, both, f"reduce column {field.name!r}") for field in fields}
        names = [name for name, _ in self._keys]
        return Stepped(after, [{**dict(zip(names, self.key_of(row), strict=True)), **after}])

    def values(self, state: Any) -> dict[str, object]:  # noqa: ANN401
        """Return the fields that are kept."""
        return {field.name: state.get(field.name) for field in self._machine_node.fields}
