"""The registry of stateful operator kinds, by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from tidemark.errors import StateMismatchError
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.asof_join.kind import AsofJoinKind
from tidemark.graph.operators.async_map.kind import AsyncMapKind
from tidemark.graph.operators.changes import SAME, Definition, DefinitionChange, Kept, Names, other_kind
from tidemark.graph.operators.deduplicate.kind import DeduplicateKind
from tidemark.graph.operators.element_process.broadcast import BroadcastElementProcessKind
from tidemark.graph.operators.element_process.kind import ElementProcessKind
from tidemark.graph.operators.group_aggregate.kind import GroupAggregateKind
from tidemark.graph.operators.interval_join.kind import IntervalJoinKind
from tidemark.graph.operators.keyed_process.connected import BroadcastProcessKind, ConnectedProcessKind
from tidemark.graph.operators.keyed_process.kind import KeyedProcessKind
from tidemark.graph.operators.kind import OperatorKind
from tidemark.graph.operators.latest.kind import LatestKind
from tidemark.graph.operators.lookup.kind import LookupKind
from tidemark.graph.operators.regular_join.kind import RegularJoinKind
from tidemark.graph.operators.running.kind import RunningKind
from tidemark.graph.operators.sql_state.kind import SqlStateKind
from tidemark.graph.operators.top_n.kind import TopKind
from tidemark.graph.operators.window.kind import WindowKind
from tidemark.graph.operators.window_join.kind import WindowJoinKind


@cache
def kinds() -> Mapping[str, OperatorKind[Any]]:
    """Return all kinds by name."""
    every: tuple[OperatorKind[Any], ...] = (
        WindowKind(),
        DeduplicateKind(),
        KeyedProcessKind(),
        ConnectedProcessKind(),
        BroadcastProcessKind(),
        ElementProcessKind(),
        BroadcastElementProcessKind(),
        AsyncMapKind(),
        RegularJoinKind(),
        RunningKind(),
        GroupAggregateKind(),
        SqlStateKind(),
        LatestKind(),
        TopKind(),
        IntervalJoinKind(),
        WindowJoinKind(),
        AsofJoinKind(),
        LookupKind(),
    )
    return MappingProxyType({kind.name: kind for kind in every})


def kind_of(node: StatefulNode) -> OperatorKind[Any]:
    """Return a node's kind."""
    return kinds()[node.KIND]


def kind_of_definition(definition: Definition, uid: str) -> OperatorKind[Any]:
    """Return the kind of a stored definition.

    Raises:
        StateMismatchError: this release does not know it.
    """
    name = str(definition.get("kind"))
    if name not in kinds():
        raise StateMismatchError(
            f"the state of {uid!r} is of a {name} operator, which this release does not know",
            fix=f"use the release that wrote it; this one knows: {', '.join(sorted(kinds()))}",
            uid=uid,
        )
    return kinds()[name]


def describe_state(definition: Definition, rows: int) -> str:
    """Return in words what would be lost with an operator's state."""
    kind = kinds().get(str(definition.get("kind")))
    return f"{rows:,} rows of state" + (f", and with them {kind.state_noun}" if kind else "")


def keeps_state(node: StatefulNode) -> bool:
    """Return whether an operator keeps anything from one epoch to the next, and so needs a uid."""
    return kind_of(node).keeps_state


def stored_state(definition: Definition) -> bool:
    """Return whether an operator with a stored definition kept anything; an unknown kind is taken to have."""
    kind = kinds().get(str(definition.get("kind")))
    return kind is None or kind.keeps_state


def encode(node: StatefulNode) -> dict[str, object]:
    """Return a node's definition as plain JSON."""
    return kind_of(node).encode(node)


def definition_changes(
    old: Definition, new: Definition, names: Names = SAME, *, kept: tuple[Kept, Kept] | None = None
) -> tuple[DefinitionChange, ...]:
    """Return all differences between two definitions of an operator, as ``encode`` makes them.

    Args:
        old: as stored; of any kind, also one that this release does not know.
        new: as declared by the job.
        names: renamed keys, aggregates and columns.
        kept: what either keeps, if that is known better than by the definitions.
    """
    other = other_kind(old, new)
    if other is not None:
        return (other,)
    return kinds()[str(new["kind"])].changes(old, new, names, kept)
