"""Operators that call a Python function, which emits rows: what their nodes and checks have in common."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_text import function_name
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.nodes import OutputTag, StatefulNode
from tidemark.graph.model.schema import Schema
from tidemark.semantics.windows.windows import TimeDomain

FAILED: Final = "failed"
"""The counter of elements whose call failed."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EmittingNode(StatefulNode, ABC):
    """A function whose rows are the operator's.

    ``returns`` is the DDL of its rows, empty where they are elements, unchanged. ``side_outputs`` are the tags that it emits to, with the
    DDL of their rows. ``on_error`` takes elements whose call fails.
    """

    function: object = field(repr=False)
    returns: str = ""
    side_outputs: tuple[tuple[OutputTag, str], ...] = ()
    on_error: OutputTag | None = None

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The tag of ``failed`` elements."""
        return {} if self.on_error is None else {FAILED: self.on_error}

    @property
    def emitted_tags(self) -> Mapping[str, OutputTag]:
        """The tags that the function emits to."""
        return {emitted_counter(tag): tag for tag, _ in self.side_outputs}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; timers of processing time have their own deadlines."""
        return "event"

    @property
    def function_name(self) -> str:
        """What users call the function."""
        return function_name(self.function)


def emitted_counter(tag: OutputTag) -> str:
    """Return the name under which the rows that a function emits to a tag are counted."""
    return f"to:{tag.name}"


def check_emitted(node: EmittingNode, name: str, given: Schema | None, *, returns: bool = True) -> None:
    """Check what a function returns, and its side outputs.

    Args:
        node: the operator.
        name: of the method by which it was declared.
        given: the columns of its elements.
        returns: whether it declares the columns of its rows.

    Raises:
        DefinitionError: or one of its kinds.
    """
    if returns:
        _check_columns(node, node.returns, f"{name}(returns=...)")
    for tag, ddl in node.side_outputs:
        _check_columns(node, ddl, f"the side output {tag.name!r}")
    if node.on_error is not None and node.on_error.name in [tag.name for tag, _ in node.side_outputs]:
        raise DefinitionError(
            f"{name} uses the tag {node.on_error.name!r} for on_error and in side_outputs",
            fix="give each its own tag",
            uid=node.uid,
            place=node.place,
        )
    if node.on_error is not None and given is not None and given.find("error") is not None:
        raise ColumnError(
            f"{name}(on_error=...) adds a column 'error' to failed elements, and the stream has one already",
            fix="rename it before: .select(..., message='error')",
            uid=node.uid,
            place=node.place,
        )


def _check_columns(node: EmittingNode, ddl: str, what: str) -> None:
    check_column_names(parse_schema(ddl, place=node.place, what=what).names, what, node.place, uid=node.uid)
