"""The interval join as an operator kind: its rules in the graph, and its definition as stored."""

from __future__ import annotations

from typing import ClassVar, cast

from tidemark.durations import format_duration
from tidemark.errors import DefinitionError
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names, entries
from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.graph.operators.join_keys import decode_join_keys, encode_join_keys
from tidemark.graph.operators.join_kind import ROWS, ElementJoinKind, describe_keys, join_key_changes
from tidemark.graph.operators.join_node import LATE_OF
from tidemark.graph.operators.kind import Schemas
from tidemark.semantics.joins.interval import How

_FORMAT = 1


class IntervalJoinKind(ElementJoinKind[IntervalJoinNode]):
    """``left.join(right, on=..., within=(lower, upper))``."""

    name: ClassVar[str] = "interval_join"
    method: ClassVar[str] = "join"
    noun: ClassVar[str] = "interval join"
    nouns: ClassVar[str] = "interval joins"
    state_noun: ClassVar[str] = "the elements of both sides that wait for partners"
    instead_of_changelog: ClassVar[str] = (
        "leave out within=...: a join of changelogs is right at the end of every epoch, whatever their times"
    )

    def validate(self, node: IntervalJoinNode, schemas: Schemas) -> None:
        """Check keys, interval, side outputs, and the names of result columns."""
        if node.lower_ms > node.upper_ms:
            raise DefinitionError(
                "join(within=(lower, upper)) has a lower bound that is greater than the upper one",
                fix="give the least and the greatest time by which a right element may be after its left partner, such as "
                "within=('-10 minutes', '1 hour')",
                uid=node.uid,
                place=node.place,
            )
        super().validate(node, schemas)

    def describe(self, node: IntervalJoinNode) -> str:
        """Return how, keys, and interval."""
        return f"{node.how} join on {describe_keys(node)}, right time - left time from {_signed(node.lower_ms)} to {_signed(node.upper_ms)}"

    def describe_rows(self, node: IntervalJoinNode) -> str:
        """Return what pairs are."""
        keys = ", ".join(f"`{key.name}`" for key in node.on)
        interval = f"the right one from {_signed(node.lower_ms)} to {_signed(node.upper_ms)} after the left one"
        return f"{ROWS[node.how]}: of equal {keys}, {interval}"

    def describe_counter(self, counter: str) -> str:
        """Return what late rows of a side are."""
        return f"Late rows of the {LATE_OF[counter]} stream: nothing that they could meet is in state any more"

    def encode(self, node: IntervalJoinNode) -> dict[str, object]:
        """Return keys, interval, and how."""
        return {
            "format": _FORMAT,
            "kind": self.name,
            "keys": encode_join_keys(node.on),
            "lower_ms": node.lower_ms,
            "upper_ms": node.upper_ms,
            "how": node.how,
        }

    def decode(self, definition: Definition, uid: str) -> IntervalJoinNode:
        """Return a node with the same state."""
        lower, upper = (int(cast("int", definition[name])) for name in ("lower_ms", "upper_ms"))
        on = decode_join_keys(entries(definition, "keys"))
        return IntervalJoinNode(uid=uid, on=on, lower_ms=lower, upper_ms=upper, how=cast("How", definition["how"]))

    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return differences. Where results have pairs only, before and after, another interval applies from the next epoch on.

        Other joins know from the interval which stored elements had a partner, so that it cannot change under them.
        """
        del kept
        found = join_key_changes(old, new, names)
        if old["how"] != new["how"]:
            what = f"it was how={old['how']!r} and is now how={new['how']!r}"
            found.append(DefinitionChange("how", "none" if new["how"] == "inner" else "other", what))
        if _interval(old) != _interval(new):
            what = f"the interval was from {_interval(old)} and is now from {_interval(new)}"
            found.append(DefinitionChange("interval", "none" if new["how"] == "inner" else "other", what))
        return tuple(found)


def _signed(milliseconds: int) -> str:
    """Return a duration that may be negative in words."""
    return f"{'-' if milliseconds < 0 else ''}{format_duration(abs(milliseconds))}" if milliseconds else "0"


def _interval(definition: Definition) -> str:
    lower, upper = (int(cast("int", definition[name])) for name in ("lower_ms", "upper_ms"))
    return f"{_signed(lower)} to {_signed(upper)}"
