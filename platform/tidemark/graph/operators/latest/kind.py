"""The newest row of each key as an operator kind: rules in the graph, and the definition as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, cast

from tidemark.graph.expressions.column_origins import ColumnOrigins
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.expressions.function_fingerprint import function_text, text_hash
from tidemark.graph.model.nodes import Expression
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries, key_changes, same_expression
from tidemark.graph.operators.keys import encode_keys
from tidemark.graph.operators.kind import OperatorKind, Schemas
from tidemark.graph.operators.latest.checks import check_latest
from tidemark.graph.operators.latest.node import INCOMPLETE, OUTDATED, LatestNode, PaneRules
from tidemark.graph.operators.lifetimes import decode_lifetime, describe_lifetime, encode_lifetime, lifetime_changes
from tidemark.graph.operators.state_names import element_column
from tidemark.semantics.windows.windows import TimeDomain

_FORMAT = 1


class LatestKind(OperatorKind[LatestNode]):
    """``latest(by=...)``, ``key_by(...).deduplicate(keep="last")`` and ``latest_panes()``."""

    name: ClassVar[str] = "latest"
    noun: ClassVar[str] = "operator"
    nouns: ClassVar[str] = "operators that keep the newest rows"
    state_noun: ClassVar[str] = "the newest row of each key"
    chooses_rows: ClassVar[bool] = True
    instead_of_changelog: ClassVar[str] = (
        "a changelog has one row for each key already; for one row of each group write .top_n(1, by=['zone'], order='changed_at DESC')"
    )

    def validate(self, node: LatestNode, schemas: Schemas) -> None:
        """Check the key and the expressions."""
        check_latest(node, schemas[0])

    def output_schema(self, node: LatestNode, schemas: Schemas) -> Schema | None:
        """Return the input's columns."""
        del node
        return schemas[0]

    def lineage(self, node: LatestNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of the input."""
        del node
        return origins[0]

    def describe(self, node: LatestNode) -> str:
        """Return the key, the order, what deletes, and how long rows are kept."""
        order = f", in order of {describe_expression(node.sequence)}" if node.sequence is not None else ""
        deleted = f", deleted where {describe_expression(node.deleted)}" if node.deleted is not None else ""
        kept = f", without a value keeps {', '.join(name for name, _ in node.unchanged)}" if node.unchanged else ""
        lives = f", state lives for {describe_lifetime(node.ttl)}" if node.ttl is not None else ""
        return f"{'newest pane' if node.panes else 'latest'} by {', '.join(node.by)}{order}{deleted}{kept}{lives}"

    def describe_rows(self, node: LatestNode) -> str:
        """Return which row is kept."""
        return f"The newest row of each {', '.join(f'`{name}`' for name in node.by)}"

    def describe_column(self, node: LatestNode, name: str) -> str | None:
        """Return nothing: columns hold what the input's do."""
        del node, name
        return None

    def describe_counter(self, counter: str) -> str:
        """Return what outdated and incomplete rows are."""
        return {
            OUTDATED: "Outdated rows: a row of their key with a later sequence had come before",
            INCOMPLETE: "Incomplete rows: they leave a column unchanged, and their key has no row before",
        }[counter]

    def made_by(self, node: LatestNode) -> tuple[str, str]:
        """Return the method."""
        return node.method, f"keeps the newest row by {', '.join(node.by)}"

    def counters(self, node: LatestNode) -> tuple[str, ...]:
        """Return ``outdated``, where a sequence orders rows, and ``incomplete``, where rows may leave columns unchanged."""
        return (*(() if node.sequence is None else (OUTDATED,)), *((INCOMPLETE,) if node.unchanged else ()))

    def expressions(self, node: LatestNode) -> Iterator[tuple[str, Expression | None]]:
        """Yield ``sequence``, ``deleted`` and the conditions of ``unchanged``."""
        yield f"{node.method} sequence", node.sequence
        yield f"{node.method} deleted", node.deleted
        for name, condition in node.unchanged:
            yield f"{node.method} unchanged {name!r}", condition

    def encode(self, node: LatestNode) -> dict[str, object]:
        """Return the key, the expressions, the rules of panes, and the lifetime."""
        panes = node.panes
        rules = (
            {} if panes is None else {"panes": {"domain": panes.domain, "final_after_ms": panes.final_after_ms, "merging": panes.merging}}
        )
        return {
            "format": _FORMAT,
            "kind": self.name,
            "method": node.method,
            "keys": encode_keys(node.keys),
            "sequence": _encoded(node.sequence),
            "deleted": _encoded(node.deleted),
            **({"unchanged": {name: _encoded(condition) for name, condition in node.unchanged}} if node.unchanged else {}),
            **rules,
            **encode_lifetime(node.ttl),
        }

    def decode(self, definition: Definition, uid: str) -> LatestNode:
        """Return the node."""
        found = definition.get("panes")
        panes = (
            PaneRules(cast("TimeDomain", found["domain"]), cast("int | None", found["final_after_ms"]), bool(found["merging"]))
            if isinstance(found, Mapping)
            else None
        )
        return LatestNode(
            uid=uid,
            by=tuple(entries(definition, "keys")),
            sequence=cast("str | None", definition.get("sequence")),
            deleted=cast("str | None", definition.get("deleted")),
            unchanged=_unchanged(definition),
            ttl=decode_lifetime(definition),
            panes=panes,
            method=str(definition.get("method", "latest")),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences of the key, the order, what deletes, and the lifetime."""
        del kept
        return (
            *key_changes(old, new, names),
            *_order_changes(old, new, names),
            *_other_changes(old, new, names),
            *lifetime_changes(old, new),
        )

    def keeps(self, node: LatestNode) -> Kept:
        """Return ``elements``: whole rows."""
        del node
        return "elements"

    def state_columns(self, node: LatestNode, schemas: Schemas) -> dict[str, str | None] | None:
        """Return the input's columns."""
        del node
        return None if schemas[0] is None else {element_column(column.name): column.type for column in schemas[0].columns}

    def changelog_keys(self, node: LatestNode) -> tuple[str, ...]:
        """Return the key."""
        return node.by

    def expires(self, node: LatestNode) -> bool:
        """Return whether keys are kept for some time only."""
        return node.ttl is not None

    def needs_order(self, node: LatestNode) -> bool:
        """Return true: the rows of a key are taken in the order of their source."""
        del node
        return True


def _encoded(expression: Expression | None) -> str | None:
    if expression is None or isinstance(expression, str):
        return expression
    return f"function {text_hash(function_text(expression))}"


def _unchanged(definition: Definition) -> tuple[tuple[str, Expression], ...]:
    found = definition.get("unchanged")
    return tuple((str(name), str(condition)) for name, condition in found.items()) if isinstance(found, Mapping) else ()


def _order_changes(old: Definition, new: Definition, names: Names) -> Iterator[DefinitionChange]:
    """Yield the change of what orders rows: stored rows have the values of the old expression."""
    before, after = old.get("sequence"), new.get("sequence")
    if before == after or (isinstance(before, str) and isinstance(after, str) and same_expression(before, after, names)):
        return
    was, now = (describe_expression(each) if isinstance(each, str) else "the order in which they came" for each in (before, after))
    if isinstance(before, str) and after is None:
        yield DefinitionChange("sequence", "none", f"rows were ordered by {was} and are now by {now}")
    else:
        yield DefinitionChange("sequence", "other", f"rows were ordered by {was} and are now by {now}: stored rows have no such value")


def _other_changes(old: Definition, new: Definition, names: Names) -> Iterator[DefinitionChange]:
    before, after = old.get("deleted"), new.get("deleted")
    same = isinstance(before, str) and isinstance(after, str) and same_expression(before, after, names)
    if before != after and not same:
        yield DefinitionChange("deleted", "none", f"rows deleted their key where {before or 'never'}, and do now where {after or 'never'}")
    if old.get("unchanged") != new.get("unchanged"):
        was, now = (", ".join(name for name, _ in _unchanged(each)) or "no column" for each in (old, new))
        yield DefinitionChange("unchanged", "none", f"rows left {was} unchanged under other conditions, and do now {now}")
    if old.get("panes") != new.get("panes"):
        yield DefinitionChange("panes", "none", "the windows whose panes it keeps changed")
