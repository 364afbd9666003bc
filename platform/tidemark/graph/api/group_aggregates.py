"""Aggregates without a window: changelogs with a row for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.graph.api.states import require_ttl
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Expression, Node
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream
    from tidemark.semantics.keyed_process.declarations import StateTtl


@checked_methods()
class KeyedAggregates:
    """What a keyed stream has."""

    if TYPE_CHECKING:
        node: Node
        keys: tuple[tuple[str, Expression], ...]

    def aggregate(self, *, ttl: StateTtl | None = None, **aggregates: Aggregate) -> Stream:
        """Aggregate all rows of each key, without a window: a changelog with a row per key, the keys and the results so far.

        An epoch changes the row of a key at most once, and only where a result differs. Over a changelog the rows before changes are taken
        back, and a key without rows is deleted; ``min``, ``max``, distinct counts and sets, and ``approx_percentile`` then keep each value
        with its number of rows, all others but counts, sums, means and variances each row. A row has the greatest event time of all
        rows and changes of the key so far. The operator keeps state of each key: name it with ``.uid("...")``.

        Args:
            ttl: how long the state of a key is kept that no row changes. What expires is counted, and not deleted from the changelog; the
                next row of the key begins again. For ever by default.
            aggregates: by result column, such as ``trips=count()``; all but ``python_aggregate``.

        Raises:
            DefinitionError: no aggregate is given, or something that is not one, or one in Python.
            ColumnError: an aggregate reads a column that the stream does not have.
        """
        place = call_site()
        return _aggregated(self.node, self.keys, aggregates, require_ttl(ttl, "aggregate", place), place)


@checked_methods()
class StreamAggregates:
    """What a stream has."""

    if TYPE_CHECKING:
        node: Node

    def aggregate_all(self, **aggregates: Aggregate) -> Stream:
        """Aggregate all rows, whatever their key: a changelog with one row, as ``key_by(...).aggregate(...)`` has one of each key.

        There is no row before the first one came, nor where the last one of a changelog was deleted.

        Raises:
            DefinitionError: no aggregate is given, or something that is not one, or one in Python.
            ColumnError: an aggregate reads a column that the stream does not have.
        """
        place = call_site()
        check_has_rows(self.node, place)
        return _aggregated(self.node, (), aggregates, None, place)


def _aggregated(
    node: Node, keys: tuple[tuple[str, Expression], ...], aggregates: dict[str, Aggregate], ttl: StateTtl | None, place: str
) -> Stream:
    from tidemark.graph.api.streams import Stream

    made = GroupAggregateNode(
        inputs=(node,), keys=keys, aggregates=tuple(aggregates.items()), row_keys=changelog_keys(node), ttl=ttl, place=place
    )
    return Stream(made)
