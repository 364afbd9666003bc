"""The node of a regular join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, get_args

from tidemark.graph.model.nodes import Expression, OutputTag, StatefulNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.windows.windows import TimeDomain

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: tuple[str, ...] = get_args(How)


@dataclass(frozen=True)
class JoinSide:
    """One input: its columns, those of its changelog's key, and the expressions that are compared with the other input's.

    ``ttl`` is how long a row is kept after it was inserted or updated, None for ever.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    on: tuple[Expression, ...]
    ttl: StateTtl | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class RegularJoinNode(StatefulNode):
    """The join of the contents of two changelogs: rows with equal values of ``on``, and the rows without such ones that ``how`` keeps."""

    left: JoinSide
    right: JoinSide
    how: How = "inner"

    KIND: ClassVar[str] = "regular_join"
    PORTS: ClassVar[tuple[str, ...]] = ("left", "right")

    @property
    def sides(self) -> Mapping[str, JoinSide]:
        """The inputs by port."""
        return {"left": self.left, "right": self.right}

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The compared expressions of both inputs."""
        return tuple(tuple((f"on_{number}", each) for number, each in enumerate(side.on)) for side in (self.left, self.right))

    @property
    def pairs(self) -> tuple[tuple[Expression, Expression], ...]:
        """What is compared: an expression of the left input with one of the right input."""
        return tuple(zip(self.left.on, self.right.on, strict=True))

    @property
    def left_only(self) -> bool:
        """Whether results are rows of the left input alone."""
        return self.how in {"semi", "anti"}

    @cached_property
    def shared(self) -> Mapping[str, str]:
        """The right columns that are compared with a left column of the same name, which results have once; with that one's name."""
        pairs = ((plain_name(left, self.left.columns), plain_name(right, self.right.columns)) for left, right in self.pairs)
        return {right: left for left, right in pairs if left is not None and right is not None and left.lower() == right.lower()}

    @cached_property
    def added(self) -> tuple[str, ...]:
        """The columns of results that only the right input has."""
        return () if self.left_only else tuple(name for name in self.right.columns if name not in self.shared)

    @property
    def result_keys(self) -> tuple[str, ...]:
        """The columns that identify a result: the keys of both inputs, of a semi or anti join the left one's."""
        if self.left_only:
            return self.left.keys
        return tuple(dict.fromkeys((*self.left.keys, *(self.shared.get(name, name) for name in self.right.keys))))

    def own_keys(self, port: str) -> tuple[str, ...]:
        """Return the columns of an input's key that results have of it alone: null where a row of the other one has no partner."""
        shared = set(self.shared.values() if port == "left" else self.shared)
        return tuple(name for name in self.sides[port].keys if name not in shared)

    @property
    def compares_key(self) -> bool:
        """Whether nothing but shared columns of the result's key is compared: rows without nulls that agree in these are partners."""
        names = [(plain_name(left, self.left.columns), plain_name(right, self.right.columns)) for left, right in self.pairs]
        shared = {(left, right) for right, left in self.shared.items() if left in self.result_keys}
        return all(pair in shared for pair in names)

    @property
    def side_tags(self) -> Mapping[str, OutputTag]:
        """None: it accepts all changes."""
        return {}

    @property
    def time_domain(self) -> TimeDomain:
        """Event time; it waits for none."""
        return "event"


def plain_name(expression: Expression, columns: tuple[str, ...]) -> str | None:
    """Return the column that an expression is, as it is written among the columns; None for any other expression."""
    if not isinstance(expression, str):
        return None
    name = expression.strip().strip("`").lower()
    return next((column for column in columns if column.lower() == name), None)
