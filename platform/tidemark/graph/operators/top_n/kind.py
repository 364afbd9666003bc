"""The best rows of each group as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from tidemark.graph.expressions.column_origins import ColumnOrigins, merged
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import (
    Definition,
    DefinitionChange,
    Kept,
    Names,
    entries,
    key_changes,
    renamed,
    same_expression,
)
from tidemark.graph.operators.keys import encode_keys
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime, encode_lifetime, lifetime_changes
from tidemark.graph.operators.state_names import element_column
from tidemark.graph.operators.top_n.checks import check_top
from tidemark.graph.operators.top_n.node import TopNode
from tidemark.graph.operators.top_n.order import OrderPart, parse_order

_FORMAT = 1


class TopKind(OperatorKind[TopNode]):
    """``top_n(n, by=..., order=...)``."""

    name: ClassVar[str] = "top_n"
    noun: ClassVar[str] = "operator"
    nouns: ClassVar[str] = "top-N operators"
    state_noun: ClassVar[str] = "the rows that the best are chosen from"
    takes_changelogs: ClassVar[bool] = True

    def validate(self, node: TopNode, schemas: Schemas) -> None:
        """Check the number, the group, the order, and how rows are identified."""
        check_top(node, schemas[0])

    def output_schema(self, node: TopNode, schemas: Schemas) -> Schema | None:
        """Return the input's columns, and the rank."""
        given = schemas[0]
        if node.rank is None or given is None:
            return given
        return Schema((*given.columns, SchemaColumn(node.rank, "INT")))

    def lineage(self, node: TopNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of the input; the rank is made of what groups and orders rows."""
        given = origins[0]
        if node.rank is None:
            return given
        read = [*(given.of_names([name]) for name in node.by), *(given.of(part.expression) for part in _order(node))]
        return ColumnOrigins({**given.columns, node.rank.lower(): merged(read)}, given.other, given.time)

    def describe(self, node: TopNode) -> str:
        """Return the number, the group, the order, what identifies rows, and how long groups are kept."""
        by = f" by {', '.join(node.by)}" if node.by else ""
        rank = f", rank in {node.rank}" if node.rank is not None else f", rows by {', '.join(node.row_key) or 'no column'}"
        lives = f", state lives for {describe_lifetime(node.ttl)}" if node.ttl is not None else ""
        return f"top {node.n}{by} in order of {node.order}{rank}{lives}"

    def describe_rows(self, node: TopNode) -> str:
        """Return which rows there are."""
        of = f" of each {', '.join(f'`{name}`' for name in node.by)}" if node.by else ""
        return f"The first {node.n:,} rows{of} in order of `{node.order}`"

    def describe_column(self, node: TopNode, name: str) -> str | None:
        """Return what the rank is; other columns hold what the input's do."""
        return "The place of the row, from 1." if name == node.rank else None

    def describe_counter(self, counter: str) -> str:
        """Never called: it accepts all rows."""
        raise KeyError(counter)

    def made_by(self, node: TopNode) -> tuple[str, str]:
        """Return the method."""
        return "top_n", f"keeps the first {node.n} in order of {node.order}"

    def counters(self, node: TopNode) -> tuple[str, ...]:
        """Return none."""
        del node
        return ()

    def expressions(self, node: TopNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield those of the order."""
        yield from (("top_n order", part.expression) for part in _order(node))

    def encode(self, node: TopNode) -> dict[str, object]:
        """Return the number, the group, the order, and what identifies rows."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "n": node.n,
            "keys": encode_keys(node.keys),
            "order": [
                {"expression": part.expression, "descending": part.descending, "nulls_first": part.nulls_first} for part in _order(node)
            ],
            "text": node.order,
            "rank": node.rank,
            "row_key": list(node.row_key),
            "of_changelog": node.changelog is not None,
            **encode_lifetime(node.ttl),
        }

    def decode(self, definition: Definition, uid: str) -> TopNode:
        """Return the node."""
        row_key = tuple(cast("list[str]", definition["row_key"]))
        of_changelog = bool(definition["of_changelog"])
        return TopNode(
            uid=uid,
            n=int(cast("int", definition["n"])),
            by=tuple(entries(definition, "keys")),
            order=str(definition["text"]),
            rank=cast("str | None", definition["rank"]),
            key=() if of_changelog else row_key,
            changelog=row_key if of_changelog else None,
            ttl=decode_lifetime(definition),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of the number, the group, the order, what identifies rows, and the lifetime."""
        del kept
        return (*key_changes(old, new, names), *_rule_changes(old, new, names), *lifetime_changes(old, new))

    def keeps(self, node: TopNode) -> Kept:
        """Return ``elements``: whole rows."""
        del node
        return "elements"

    def state_columns(self, node: TopNode, schemas: Schemas) -> dict[str, str | None] | None:
        """Return the input's columns."""
        del node
        return None if schemas[0] is None else {element_column(column.name): column.type for column in schemas[0].columns}

    def changelog_keys(self, node: TopNode) -> tuple[str, ...]:
        """Return the group and the rank, or the key of rows."""
        return node.result_key

    def expires(self, node: TopNode) -> bool:
        """Return whether groups are kept for some time only."""
        return node.ttl is not None

    def needs_order(self, node: TopNode) -> bool:
        """Return true: of equal rows the first in its source comes first."""
        del node
        return True


def _order(node: TopNode) -> tuple[OrderPart, ...]:
    return parse_order(node.order, Site("top_n order", node.place, node.uid))


def _rule_changes(old: Definition, new: Definition, names: Names) -> Iterator[DefinitionChange]:
    if old["of_changelog"] != new["of_changelog"]:
        was, now = ("a changelog" if each["of_changelog"] else "a stream that is only added to" for each in (old, new))
        yield DefinitionChange("input", "other", f"it was over {was} and is now over {now}")
        return
    if not _same_order(old, new, names):
        yield DefinitionChange("order", "other", f"the order was {old['text']} and is now {new['text']}: it was emitted by the other")
    before, after = ([*cast("list[str]", each["row_key"])] for each in (old, new))
    if [renamed(name, names) for name in before] != after or old["rank"] != new["rank"]:
        one, other = (str(each["rank"] or ", ".join(cast("list[str]", each["row_key"]))) for each in (old, new))
        yield DefinitionChange("row_key", "other", f"rows of the results were identified by {one} and are now by {other}")
    if old["n"] != new["n"]:
        yield DefinitionChange("n", "other", f"it kept the first {old['n']} rows and keeps now the first {new['n']}")


def _same_order(old: Definition, new: Definition, names: Names) -> bool:
    before, after = (cast("list[dict[str, object]]", each["order"]) for each in (old, new))
    return len(before) == len(after) and all(
        same_expression(str(one["expression"]), str(other["expression"]), names)
        and (one["descending"], one["nulls_first"]) == (other["descending"], other["nulls_first"])
        for one, other in zip(before, after, strict=True)
    )
