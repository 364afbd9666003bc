"""Functions over elements without keys as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.function_fingerprint import function_text, text_hash
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names
from tidemark.graph.operators.element_process.checks import check_function
from tidemark.graph.operators.element_process.node import ElementProcessNode
from tidemark.graph.operators.emitting import FAILED, check_emitted, emitted_counter
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.semantics.element_process.calls import Method

_FORMAT = 1
ERROR = "error"
"""The column of a failed element that says what went wrong."""


class ElementProcessKind(OperatorKind[ElementProcessNode]):
    """``stream.process(...)``."""

    name: ClassVar[str] = "element_process"
    noun: ClassVar[str] = "function over elements"
    nouns: ClassVar[str] = "functions over elements"
    state_noun: ClassVar[str] = "nothing: it keeps no state"
    keeps_state: ClassVar[bool] = False

    def validate(self, node: ElementProcessNode, schemas: Schemas) -> None:
        """Check the function and the side outputs."""
        check_function(node)
        check_emitted(node, node.called, schemas[0], returns=not node.keeps_elements)

    def output_schema(self, node: ElementProcessNode, schemas: Schemas) -> Schema | None:
        """Return the columns that the function declares; of a filter those of the elements."""
        return schemas[0] if node.keeps_elements else parse_schema(node.returns, place=node.place)

    def side_schema(self, node: ElementProcessNode, counter: str, schemas: Schemas) -> Schema | None:
        """Return the declared columns; of failed elements those of the input, and the error."""
        for tag, ddl in node.side_outputs:
            if emitted_counter(tag) == counter:
                return parse_schema(ddl, place=node.place)
        return None if schemas[0] is None else schemas[0].with_columns([SchemaColumn(ERROR, "STRING")])

    def lineage(self, node: ElementProcessNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return all columns of the input as the origin of each result; of a filter's each its own."""
        if node.keeps_elements:
            return origins[0]
        return _made_of_all(parse_schema(node.returns).names, origins[0])

    def side_lineage(self, node: ElementProcessNode, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of failed elements as they are, and all columns of the input for what the function makes."""
        given = origins[0]
        if counter == FAILED:
            return ColumnOrigins({**given.columns, ERROR: given.every()}, given.other, given.time)
        schema = self.side_schema(node, counter, (None,))
        return _made_of_all(schema.names if schema else (), given)

    def describe(self, node: ElementProcessNode) -> str:
        """Return the function, and what it returns."""
        return f"{node.called} with {node.function_name}{'' if node.keeps_elements else f', returns {node.returns}'}"

    def describe_rows(self, node: ElementProcessNode) -> str:
        """Return who makes the rows."""
        return f"The {'elements that' if node.keeps_elements else 'rows that'} `{node.function_name}` {_DOES[node.method]}"

    def describe_column(self, node: ElementProcessNode, name: str) -> str | None:
        """Return nothing: only the function knows."""
        del node, name
        return None

    def describe_counter(self, counter: str) -> str:
        """Return what failed elements are, and rows that were emitted to a tag."""
        if counter == FAILED:
            return "Failed elements: the function raised an error"
        return "Rows that the function emitted to this side output"

    def made_by(self, node: ElementProcessNode) -> tuple[str, str]:
        """Return the method."""
        return node.called, f"processes with {node.function_name}"

    def counters(self, node: ElementProcessNode) -> tuple[str, ...]:
        """Return ``failed``, where there is an output for these; else the first one ends the epoch."""
        return () if node.on_error is None else (FAILED,)

    def expressions(self, node: ElementProcessNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield nothing: there is no SQL in it."""
        del node
        yield from ()

    def functions(self, node: ElementProcessNode) -> Iterator[tuple[str, object]]:
        """Yield the function."""
        yield f"the {node.called} function", node.function

    def encode(self, node: ElementProcessNode) -> dict[str, object]:
        """Return side outputs and a hash of the function's text."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "method": node.method,
            "function": {"hash": text_hash(function_text(node.function)), "returns": node.returns},  # type: ignore[arg-type]
            "side_outputs": [{"name": tag.name, "returns": ddl} for tag, ddl in node.side_outputs],
        }

    def decode(self, definition: Definition, uid: str) -> ElementProcessNode:
        """Return a node whose function does nothing."""
        return ElementProcessNode(uid=uid, function=_nothing, method=method_of(definition), returns=returns_of(definition))

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of the function and its outputs, which concern no state."""
        del names, kept
        found = []
        if (old.get("function"), old.get("method")) != (new.get("function"), new.get("method")):
            found.append(DefinitionChange("function", "none", "the function was replaced"))
        if old.get("side_outputs") != new.get("side_outputs"):
            found.append(DefinitionChange("side_outputs", "none", "the side outputs changed"))
        return tuple(found)

    def keeps(self, node: ElementProcessNode) -> Kept:
        """Return ``nothing``."""
        del node
        return "nothing"

    def state_columns(self, node: ElementProcessNode, schemas: Schemas) -> dict[str, str | None]:
        """Return no columns."""
        del node, schemas
        return {}

    def needs_order(self, node: ElementProcessNode) -> bool:
        """Return true: rows get the positions of their elements, by which operators and sinks that follow order them."""
        del node
        return True

    def late_known_after_emit(self, node: ElementProcessNode) -> bool:
        """Return true: side outputs are read after the results were emitted."""
        del node
        return True

    def looks_up_side_rows(self, node: ElementProcessNode) -> bool:
        """Return false: they come from the function."""
        del node
        return False


_DOES: Mapping[Method, str] = {"process": "emits", "map": "makes of elements", "flat_map": "makes of elements", "filter": "lets pass"}


def returns_of(definition: Definition) -> str:
    """Return the DDL of the rows of a stored definition."""
    return str(cast("Mapping[str, object]", definition["function"])["returns"])


def method_of(definition: Definition) -> Method:
    """Return what the function of a stored definition is."""
    return cast("Method", definition.get("method", "process"))


def _made_of_all(names: Sequence[str], given: ColumnOrigins) -> ColumnOrigins:
    return ColumnOrigins({name.lower(): given.every() for name in names}, NO_ORIGINS, given.time)


def _nothing(*_: object) -> None:
    """Stand for a function of a job whose state is read without its code."""
