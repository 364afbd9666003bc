"""Elements that a test gives an operator: checked against the operator's columns when they are given, not where one is missed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.checks.node_expressions import node_expressions
from tidemark.graph.checks.schema_inference import input_schemas
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expressions import referenced_columns
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.model.schema import Schema
from tidemark.spark.columns.user_values import MisfitError, coerce_batch
from tidemark.testing.arrow_types import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa


class InputColumns:
    """The columns of an operator's inputs, as far as they are known.

    Args:
        node: the operator.
        schema: DDL of the columns that elements have, for all inputs or by input; None for those that the job declares.
        place: the user's line.

    Raises:
        DefinitionError: no DDL, or of an input that the operator does not have.
    """

    def __init__(self, node: StatefulNode, schema: str | Mapping[str, str] | None, place: str) -> None:
        self._node = node
        self._known: dict[str, Schema | None] = dict(zip(node.PORTS, input_schemas(node), strict=True))
        self._types: dict[str, pa.Schema] = {}
        given = schema if isinstance(schema, Mapping) else {} if schema is None else dict.fromkeys(node.PORTS, schema)
        for port, ddl in given.items():
            if port not in self._known:
                raise DefinitionError(
                    f"schema= names the input {port!r}, which the operator does not have",
                    fix=f"name {' or '.join(map(repr, node.PORTS))}",
                    uid=node.uid,
                    place=place,
                )
            self._known[port] = parse_schema(ddl, place=place, what="schema of the harness")
            self._types[port] = arrow_schema(ddl)
        # Of several inputs it is not known here which of them an expression reads.
        texts = [text for _, text in node_expressions(node)] if len(node.PORTS) == 1 else []
        self._read = {name.lower() for text in texts for name in referenced_columns(text) or ()}
        self._lacking: dict[str, str] = {}

    def check(self, port: str, row: object, place: str) -> None:
        """Check an element of an input.

        Raises:
            DefinitionError: it is no mapping, has a column that the input has not, lacks one that an expression reads, or, where
                ``schema=`` was given, has a value of another type.
        """
        if not isinstance(row, Mapping):
            raise self._refused(f"{row!r} is no element", 'give its columns by name: process({"zone": 1, "fare": 5.0}, at=0)', place)
        known = self._known[port]
        if known is None:
            return
        columns = f"the columns{f' of input {port!r}' if len(self._known) > 1 else ''} are: {', '.join(known.names)}"
        for name in row:
            if name not in known.names:
                near = known.nearest(str(name))
                fix = (
                    f"write {near!r}"
                    if near
                    else 'name columns of the input, or give what it has instead: OperatorHarness(..., schema="zone INT")'
                )
                raise self._refused(f"the element has a column {name!r}, which the operator's input has not; {columns}", fix, place)
        missing = [name for name in known.names if name not in row]
        required = [name for name in missing if port in self._types or name.lower() in self._read]
        if required:
            raise self._lacks(required[0], f"; {columns}", place)
        self._lacking.update(dict.fromkeys(missing, place))
        if port in self._types:
            self._check_types(row, self._types[port], place)

    def misses(self, error: KeyError) -> DefinitionError | None:
        """Return the error for a column that a function in Python read and an element was given without, None for another key."""
        name = error.args[0] if error.args else None
        return self._lacks(name, ", which its function reads", self._lacking[name]) if name in self._lacking else None

    def _lacks(self, name: str, more: str, place: str) -> DefinitionError:
        return self._refused(f"the element lacks the column {name!r}{more}", f"give it, {{{name!r}: None}} for a null", place)

    def _check_types(self, row: Mapping[str, object], types: pa.Schema, place: str) -> None:
        import pyarrow as pa

        try:
            coerce_batch([row], types)
        except (MisfitError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = f"the element {dict(row)!r} does not fit schema=: {' '.join(str(error).split())}"
            raise self._refused(what, "give values of the types in schema=", place) from error

    def _refused(self, what: str, fix: str, place: str) -> DefinitionError:
        return DefinitionError(what, fix=fix, uid=self._node.uid, place=place)
