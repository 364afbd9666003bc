"""Windows as an operator kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from tidemark.graph.aggregates.aggregate_types import aggregate_type
from tidemark.graph.expressions.column_origins import ColumnOrigins
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries
from tidemark.graph.operators.keys import typed
from tidemark.graph.operators.kind import OperatorKind, Schemas, UpsertKeys
from tidemark.graph.operators.state_names import partial_column
from tidemark.graph.operators.window.checks import check_window
from tidemark.graph.operators.window.columns import BOUNDS, PANE_INDEX, REPLACED_SESSIONS, REPLACES
from tidemark.graph.operators.window.definition import operator_definition
from tidemark.graph.operators.window.definition_decoder import node_of_definition
from tidemark.graph.operators.window.definition_diff import window_changes
from tidemark.graph.operators.window.descriptions import describe_column, describe_rows, describe_window
from tidemark.graph.operators.window.execution import is_incremental
from tidemark.graph.operators.window.lineage import window_lineage
from tidemark.graph.operators.window.node import WindowNode
from tidemark.graph.operators.window.reduce import reduced_types
from tidemark.graph.operators.window.state_columns import state_columns
from tidemark.graph.operators.window.trigger_rules import never_late
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession
from tidemark.semantics.windows.local_windows import LocalWindows


class WindowKind(OperatorKind[WindowNode]):
    """Keyed windows with aggregates, ``reduce`` or a process function."""

    name: ClassVar[str] = "window"
    noun: ClassVar[str] = "window"
    nouns: ClassVar[str] = "windows"
    state_noun: ClassVar[str] = "the windows that are still open"
    instead_of_changelog: ClassVar[str] = (
        "group by the window, .key_by(hour=\"date_trunc('hour', at)\").aggregate(...), whose results are revised with the content, "
        "or take the changes as elements, .as_elements()"
    )

    def validate(self, node: WindowNode, schemas: Schemas) -> None:
        """Check keys, assigner, results and trigger."""
        check_window(node, schemas[0])

    def output_schema(self, node: WindowNode, schemas: Schemas) -> Schema:
        """Return keys, bounds, results, and the columns of the pane."""
        bounds = [SchemaColumn(name, "TIMESTAMP") for name in BOUNDS]
        pane = [SchemaColumn("pane_timing", "STRING"), SchemaColumn(PANE_INDEX, "INT")]
        merged = [SchemaColumn(REPLACES, REPLACED_SESSIONS)] if node.assigner.merging else []
        return Schema((*typed(node.keys, schemas[0]), *bounds, *_results(node, schemas[0]), *pane, *merged))

    def lineage(self, node: WindowNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of keys, bounds and results."""
        return window_lineage(node, origins[0])

    def describe(self, node: WindowNode) -> str:
        """Return keys, windows, trigger, evictor, lateness and results."""
        return f"window {describe_window(node)}"

    def describe_rows(self, node: WindowNode) -> str:
        """Return that there is a row for each key, window and pane."""
        return describe_rows(node)

    def describe_column(self, node: WindowNode, name: str) -> str | None:
        """Return a description of keys, bounds, results and the columns of the pane."""
        return describe_column(node, name)

    def describe_counter(self, counter: str) -> str:
        """Return what late rows are."""
        return {"late": "Late rows: their window had expired"}[counter]

    def made_by(self, node: WindowNode) -> tuple[str, str]:
        """Return the method that made the results."""
        if node.reduced:
            return "reduce", f"reduces {', '.join(name for name, _ in node.reduced)}"
        if node.aggregates:
            return "aggregate", f"aggregates {', '.join(name for name, _ in node.aggregates)}"
        function = node.function and node.function.function
        return "process", f"processes with {getattr(function, '__name__', type(function).__name__)}"

    def counters(self, node: WindowNode) -> tuple[str, ...]:
        """Return ``late``, where elements can be."""
        return () if never_late(node.assigner) else ("late",)

    def expressions(self, node: WindowNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of keys, gaps and aggregates, and the SQL that merges reduced columns."""
        yield from ((f"key {name!r}", expression) for name, expression in node.keys)
        if isinstance(node.assigner, DynamicSession):
            yield "session gap_by", node.assigner.gap_by
        if isinstance(node.assigner, LocalWindows) and node.assigner.zone_by is not None:
            yield "zone_by", node.assigner.zone_by
        yield from ((f"reduce column {name!r}", merge) for name, merge in node.reduced)
        for name, aggregate in node.aggregates if not node.reduced else ():
            yield from ((f"aggregate {name!r}", text) for text in _written(aggregate))

    def functions(self, node: WindowNode) -> Iterator[tuple[str, object]]:
        """Yield the window function, and the functions of aggregates."""
        if node.function is not None:
            yield "the window function", node.function.function
        for name, aggregate in node.aggregates:
            parts = (vars(each.function).values() for each in aggregate.functions if hasattr(each.function, "__dict__"))
            yield from ((f"aggregate {name!r}", function) for part in parts for function in part)

    def encode(self, node: WindowNode) -> dict[str, object]:
        """Return keys, assigner, aggregates, lateness, trigger, evictor and function."""
        return operator_definition(node)

    def decode(self, definition: Definition, uid: str) -> WindowNode:
        """Return an operator with the state that the definition describes, without the job's functions."""
        return node_of_definition(definition, uid)

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of keys, windows, lateness, trigger, evictor, aggregates and function."""
        return window_changes(old, new, names, kept=kept)

    def keeps(self, node: WindowNode) -> Kept:
        """Return ``partials`` if Spark's native operators run the windows."""
        return "partials" if is_incremental(node) else "elements"

    def state_columns(self, node: WindowNode, schemas: Schemas) -> dict[str, str | None] | None:
        """Return keys, and partials or the columns of elements."""
        return state_columns(node, schemas[0])

    def state_parts(self, definition: Definition) -> dict[str, list[str]]:
        """Return the columns of partial results, by aggregate."""
        return {
            name: [partial_column(name, str(part["name"])) for part in cast("list[Definition]", entry.get("partials", []))]
            for name, entry in entries(definition, "aggregates").items()
        }

    def upsert_keys(self, node: WindowNode) -> UpsertKeys:
        """Return the key's columns and both bounds; of groups by number, which have no bounds, the group's index."""
        keys = tuple(name for name, _ in node.keys)
        if isinstance(node.assigner, CountWindows):
            return UpsertKeys((*keys, PANE_INDEX))
        return UpsertKeys((*keys, *BOUNDS), BOUNDS, REPLACES) if node.assigner.merging else UpsertKeys((*keys, *BOUNDS))

    def needs_order(self, node: WindowNode) -> bool:
        """Return whether elements are processed one by one, or an aggregate depends on their order."""
        one_by_one = isinstance(node.assigner, DynamicSession | CountWindows)
        return not is_incremental(node) or one_by_one or any(aggregate.ordered for _, aggregate in node.aggregates)

    def late_known_after_emit(self, node: WindowNode) -> bool:
        """Return whether windows keep elements: which of them are late is known once their functions ran."""
        return not is_incremental(node)


def _results(node: WindowNode, given: Schema | None) -> tuple[SchemaColumn, ...]:
    if node.function is not None:
        return parse_schema(node.function.returns, place=node.place).columns
    if node.reduced:
        return reduced_types(node.aggregates[0][1], [name for name, _ in node.reduced], given)
    return tuple(SchemaColumn(name, aggregate_type(aggregate, given)) for name, aggregate in node.aggregates)


def _written(aggregate: Aggregate) -> tuple[str, ...]:
    """Return the user's SQL of an aggregate: its arguments, or the templates of ``sql_aggregate``."""
    if aggregate.kind != "sql_aggregate":
        return aggregate.arguments
    return (*(text for part in aggregate.partials for text in (part.create, part.merge)), aggregate.result)
