"""The window join as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from tidemark.durations import format_duration
from tidemark.graph.expressions.column_origins import NO_ORIGINS, ColumnOrigins
from tidemark.graph.model.schema import Schema, SchemaColumn
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries
from tidemark.graph.operators.join_keys import decode_join_keys, encode_join_keys
from tidemark.graph.operators.join_kind import ROWS, ElementJoinKind, describe_keys, join_key_changes
from tidemark.graph.operators.join_node import LATE_OF
from tidemark.graph.operators.kind import Schemas
from tidemark.graph.operators.window.columns import BOUNDS, PANE
from tidemark.graph.operators.window.definition import assigner_definition
from tidemark.graph.operators.window.definition_decoder import known_assigner
from tidemark.graph.operators.window.descriptions import describe_assigner
from tidemark.graph.operators.window.recorded_rules import describe_recorded_windows
from tidemark.graph.operators.window_join.checks import check_names
from tidemark.graph.operators.window_join.node import WindowJoinNode
from tidemark.semantics.joins.interval import How, outer_sides
from tidemark.semantics.joins.window import AlignedWindows

_FORMAT = 1
_COLUMNS = {
    "window_start": "The start of the window, inclusive.",
    "window_end": "The end of the window, exclusive.",
    "pane_timing": "ON_TIME when the watermark passed the window's end; LATE when elements came after it, within the allowed lateness.",
    "pane_index": "0, 1, … for each firing of a key and window.",
}


class WindowJoinKind(ElementJoinKind[WindowJoinNode]):
    """``left.window_join(right, on=..., window=...)``."""

    name: ClassVar[str] = "window_join"
    method: ClassVar[str] = "window_join"
    noun: ClassVar[str] = "window join"
    nouns: ClassVar[str] = "window joins"
    state_noun: ClassVar[str] = "the elements of both sides in windows that are still open"
    instead_of_changelog: ClassVar[str] = (
        "join changelogs without windows: .join(other, on='id') is right at the end of every epoch; or take the changes as elements, "
        ".as_elements()"
    )

    def validate(self, node: WindowJoinNode, schemas: Schemas) -> None:
        """Check how, keys, side outputs, and the names of result columns."""
        super().validate(node, schemas)
        for schema in schemas[:1] if node.one_sided else schemas:
            check_names(() if schema is None else schema.names, node)

    def output_schema(self, node: WindowJoinNode, schemas: Schemas) -> Schema | None:
        """Return the columns of the left side, those of the right, the window, and the pane."""
        found = super().output_schema(node, schemas)
        if found is None:
            return None
        types = dict(zip((*BOUNDS, *PANE), ("TIMESTAMP", "TIMESTAMP", "STRING", "INT"), strict=True))
        return Schema((*found.columns, *(SchemaColumn(name, kind) for name, kind in types.items())))

    def lineage(self, node: WindowJoinNode, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return those of either side's columns; of the bounds of windows, those of event time."""
        found = super().lineage(node, origins)
        own = {**dict.fromkeys(BOUNDS, found.time), **dict.fromkeys(PANE, NO_ORIGINS)}
        return ColumnOrigins({**found.columns, **own}, found.other, found.time)

    def describe(self, node: WindowJoinNode) -> str:
        """Return how, keys, windows, and lateness."""
        lateness = f", allowed lateness {format_duration(node.allowed_lateness_ms)}" if node.allowed_lateness_ms else ""
        return f"{node.how} window join on {describe_keys(node)}, {describe_assigner(node.assigner)}{lateness}"

    def describe_rows(self, node: WindowJoinNode) -> str:
        """Return what pairs are."""
        keys = ", ".join(f"`{key.name}`" for key in node.on)
        return f"{ROWS[node.how]}: of equal {keys} and in the same window, {describe_assigner(node.assigner)}"

    def describe_column(self, node: WindowJoinNode, name: str) -> str | None:
        """Return what the columns of window and pane are, and a key column that both sides have."""
        return _COLUMNS.get(name.lower()) or super().describe_column(node, name)

    def describe_counter(self, counter: str) -> str:
        """Return what late rows of a side are."""
        return f"Late rows of the {LATE_OF[counter]} stream: all their windows had expired"

    def encode(self, node: WindowJoinNode) -> dict[str, object]:
        """Return keys, windows, lateness, and how."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_join_keys(node.on),
            "assigner": assigner_definition(node.assigner),
            "allowed_lateness_ms": node.allowed_lateness_ms,
            "how": node.how,
        }

    def decode(self, definition: Definition, uid: str) -> WindowJoinNode:
        """Return a node with the same state."""
        return WindowJoinNode(
            uid=uid,
            on=decode_join_keys(entries(definition, "keys")),
            assigner=cast("AlignedWindows", known_assigner(definition["assigner"], uid)),
            allowed_lateness_ms=int(cast("int", definition["allowed_lateness_ms"])),
            how=cast("How", definition["how"]),
        )

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences. Lateness, and how elements with partners are joined, may change from the next epoch on.

        Where a side becomes an outer one, elements of open windows with a null in their keys are missing in state.
        """
        del kept
        found = join_key_changes(old, new, names)
        if old["assigner"] != new["assigner"]:
            was, now = (describe_recorded_windows(each["assigner"]) for each in (old, new))
            found.append(DefinitionChange("windows", "other", f"the windows were {was} and are now {now}"))
        if old["how"] != new["how"]:
            sides = [set(outer_sides(cast("How", each["how"]))) for each in (old, new)]
            what = f"it was how={old['how']!r} and is now how={new['how']!r}"
            found.append(DefinitionChange("how", "none" if sides[1] <= sides[0] else "other", what))
        before, after = (int(cast("int", each["allowed_lateness_ms"])) for each in (old, new))
        if before != after:
            what = f"the allowed lateness was {_duration(before)} and is now {_duration(after)}"
            found.append(DefinitionChange("lateness", "none", what))
        return tuple(found)


def _duration(milliseconds: int) -> str:
    return format_duration(milliseconds) if milliseconds else "none"
