"""Changelogs in the fluent API: streams taken as changes, the newest row of each key, the best rows of each group, panes of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.api.states import require_ttl
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.expressions.name_checks import column_names
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import ChangelogNode, ElementsNode, Expression, Node, OutputTag
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.operators.latest.node import LatestNode, PaneRules
from tidemark.graph.operators.registry import kind_of
from tidemark.graph.operators.top_n.node import TopNode
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import CountWindows, GlobalWindows

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream
    from tidemark.semantics.keyed_process.declarations import StateTtl


@checked_methods()
class ChangelogMethods:
    """The methods of a stream that make changelogs, and elements of them."""

    if TYPE_CHECKING:

        @property
        def node(self) -> Node:
            """The stream's place in the graph."""
            ...

    def as_changelog(self, key: Sequence[str], *, operation: Expression | None = None, sequence: Expression | None = None) -> Stream:
        """Take the rows as changes of a table with a key: each one as an insert, or as what ``operation`` says.

        Without ``operation`` no key may come twice: nothing is kept, so that it is not checked here. A stream whose keys come again is
        made a changelog by ``latest(by=...)``.

        Args:
            key: the columns that identify a row; they stay part of every step that follows.
            operation: gives ``insert``, ``update_before``, ``update_after`` or ``delete``, or ``+I``, ``-U``, ``+U``, ``-D``. Updates and
                deletes have to bring the row before: an update is two rows. Feeds without the rows before updates are made a changelog by
                ``latest(by=..., sequence=..., deleted=...)``, which keeps them.
            sequence: an SQL expression whose values order the changes of a key in an epoch, such as a log position; null is less than any
                value, and of equal ones the position in the source decides. Without it the changes count in the order of their source
                (Kafka: partition and offset; files: path and row), whatever their event times. Epochs are taken one after the other.

        Raises:
            ColumnError: a column does not exist, or its values cannot be compared.
            ExpressionError: ``operation`` gives no text, or ``sequence`` no values with an order.
            DefinitionError: no key, a sequence without operation, or the stream is a changelog already.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        keys = column_names(key, "as_changelog(key=...)", place)
        return Stream(ChangelogNode(inputs=(self.node,), keys=keys, operation=operation, sequence=sequence, place=place))

    def as_elements(self, *, operation: str = "operation") -> Stream:
        """Take the changes of a changelog as elements: the rows before and after an update, inserts and deletes, each with its kind.

        An element has the event time of its row, so that the row before an update and a deleted row are as old as they were.

        Args:
            operation: the column that is added: ``insert``, ``update_before``, ``update_after`` or ``delete``.

        Raises:
            DefinitionError: the stream is no changelog.
            ColumnError: there is such a column.
        """
        from tidemark.graph.api.streams import Stream

        return Stream(ElementsNode(inputs=(self.node,), operation=operation, place=call_site()))

    def latest(
        self,
        by: Sequence[str],
        *,
        sequence: Expression | None = None,
        deleted: Expression | None = None,
        unchanged: Mapping[str, Expression] | None = None,
        outdated_to: OutputTag | None = None,
        incomplete_to: OutputTag | None = None,
        ttl: StateTtl | None = None,
    ) -> Stream:
        """Return the newest row of each key, as a changelog: a later row of a key replaces the one before.

        Rows are in the order of their source, epoch after epoch, whatever their event times. Where the source has a sequence, such as a
        version or a log position, name it: a row with a lesser sequence than one of its key that came before is outdated, and changes
        nothing; of equal ones the later row counts. The operator keeps a row of each key: name it with ``.uid("...")``.

        Args:
            by: the columns of the key; a null key is a key like any other.
            sequence: an SQL expression whose values order the rows of a key; null is less than any value.
            deleted: an SQL condition; a row for which it is true deletes its key. With a sequence it is remembered, so that an older row
                does not bring the key back.
            unchanged: columns of which a row may have no value, each with the SQL condition for that: ``{"note": "note = '?'"}``. The row
                then keeps the value that the key's row before has; one without a row before is incomplete, and changes
                nothing: with a ``sequence`` it makes no other row outdated.
            outdated_to: takes outdated rows; without it they are counted only.
            incomplete_to: takes incomplete rows; without it they are counted only.
            ttl: how long a key without rows is kept; its row is then dropped from the state and counted as expired, and no delete is
                emitted. For ever by default.

        Raises:
            ColumnError: a column does not exist, or its values cannot be compared.
            ExpressionError: ``sequence`` or ``deleted`` is no expression over a row, or ``deleted`` or one of ``unchanged`` no condition.
            DefinitionError: the stream is a changelog already.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        return Stream(
            LatestNode(
                inputs=(self.node,),
                by=column_names(by, "latest(by=...)", place),
                sequence=sequence,
                deleted=deleted,
                unchanged=tuple((unchanged or {}).items()),
                outdated_to=outdated_to,
                incomplete_to=incomplete_to,
                ttl=require_ttl(ttl, "latest", place),
                place=place,
            )
        )

    def latest_panes(self) -> Stream:
        """Return the newest pane of each key and window, as a changelog: a late pane replaces the one before.

        A session that takes the place of earlier ones (``replaces``) deletes these. A window's row is kept until no further pane of it can
        come. Groups by number have no bounds; their key has the group's index. Name it with ``.uid("...")``.

        Raises:
            DefinitionError: the stream is not the result of a window, directly.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        window = self.node
        check_has_rows(window, place)
        if not isinstance(window, WindowNode):
            raise DefinitionError(
                "latest_panes is called on a stream that is not the result of a window",
                fix="call it directly after .aggregate(...) or .process(...) of the window, before any other step; the newest row of each "
                "key of another stream is .latest(by=[...])",
                place=place,
            )
        keys = kind_of(window).upsert_keys(window)
        if keys is None:
            raise ValueError("windows have keys")
        if isinstance(window.assigner, CountWindows):
            # Each group has one pane.
            return Stream(ChangelogNode(inputs=(window,), keys=keys.columns, place=place))
        return Stream(LatestNode(inputs=(window,), by=keys.columns, panes=_rules_of(window), method="latest_panes", place=place))

    def top_n(
        self,
        n: int,
        *,
        by: Sequence[str] = (),
        order: str,
        rank: str | None = None,
        key: Sequence[str] | None = None,
        ttl: StateTtl | None = None,
    ) -> Stream:
        """Return the first ``n`` rows of each group in an order, as a changelog: at each epoch's end exactly these.

        Rows that are equal in the order are in that of their key; of a stream without one in that of their source. Over a changelog all its
        rows are kept; over other streams only the first ``n`` of each group. Name the operator with ``.uid("...")``.

        Args:
            n: the number of rows.
            by: the columns of a group; without any all rows are one group.
            order: SQL as after ORDER BY, such as ``"price DESC, sold_at"``; nulls come last where it is descending, else first.
            rank: a column that is added with the place of a row, from 1. The key of the results is then ``by`` and the rank.
            key: of a stream that is no changelog, the columns that identify a row, if there is no rank. No key may come twice, which is
                not checked: the results would have two rows of it; ``latest(by=...)`` keeps the newest. Over a changelog and without a
                rank the results have its key.
            ttl: how long a group is kept into which no row comes. It is then dropped from the state and counted as expired, and no delete
                is emitted; further rows of it are the first of a new group. For ever by default.

        Raises:
            ColumnError: a column does not exist, or there is such a rank.
            ExpressionError: the order cannot be parsed, or its values have no order.
            DefinitionError: neither a rank nor a key, or ``n`` is less than 1.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        return Stream(
            TopNode(
                inputs=(self.node,),
                n=n,
                by=column_names(by, "top_n(by=...)", place) if by else (),
                order=order,
                rank=rank,
                key=() if key is None else column_names(key, "top_n(key=...)", place),
                changelog=changelog_keys(self.node),
                ttl=require_ttl(ttl, "top_n", place),
                place=place,
            )
        )


def last_of_key(node: Node, keys: Sequence[tuple[str, Expression]], ttl: StateTtl | None, place: str) -> LatestNode:
    """Return the operator of ``key_by(...).deduplicate(keep="last")``.

    Raises:
        DefinitionError: a key is an expression, so that the results do not have it as a column.
    """
    for name, expression in keys:
        if not isinstance(expression, str) or expression.strip().strip("`").lower() != name.lower():
            raise DefinitionError(
                f"deduplicate(keep='last') is keyed by {name!r}, an expression that is no column of its results",
                fix=f"add it before as a column: .with_columns({name}=...).key_by({name!r})",
                place=place,
            )
    return LatestNode(inputs=(node,), by=tuple(name for name, _ in keys), ttl=ttl, method="deduplicate", place=place)


def _rules_of(window: WindowNode) -> PaneRules:
    """Return when panes of a window are final: of one without an end never."""
    assigner = window.assigner
    return PaneRules(assigner.domain, None if isinstance(assigner, GlobalWindows) else window.allowed_lateness_ms, assigner.merging)
