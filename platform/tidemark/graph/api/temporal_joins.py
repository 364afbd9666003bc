"""Joins with versions: of another stream as of an element's time, and of a table as it is when an epoch runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.expressions.name_checks import column_names
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Node, On, OutputTag
from tidemark.graph.operators.asof_join.node import AsofJoinNode
from tidemark.graph.operators.join_keys import join_keys
from tidemark.graph.operators.lookup.node import LookupNode, LookupTable

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream


class TemporalJoinMethods:
    """The methods of a stream that join versions."""

    if TYPE_CHECKING:
        node: Node

    def join_asof(
        self,
        right: Stream,
        *,
        on: On,
        how: Literal["inner", "left"] = "inner",
        allowed_lateness: Duration = "0 seconds",
        key: Sequence[str] | None = None,
        late_left_to: OutputTag | None = None,
        late_right_to: OutputTag | None = None,
    ) -> Stream:
        """Join each element with the newest version of its key: the element of ``right`` with the greatest time that is not after its own.

        An element is answered when the watermark of ``right`` reaches its time; where ``right`` is idle, that of the operator. Of versions
        of one time the later in its source is met. Results have the columns and the time of the left element, then the columns of
        ``right`` without those that both are compared by under one name. A null key meets nothing.

        The operator keeps elements that wait, and of each key the versions that can still be met: name it with ``.uid("...")``.

        Args:
            right: the versions.
            on: a column of both streams, a list of these, or a mapping of left expressions to right ones.
            how: ``inner`` drops elements without a version, ``left`` keeps them, with nulls.
            allowed_lateness: how long after an answer a version that comes late corrects it. Results are a changelog then.
            key: the columns of this stream that identify an element, where answers are corrected. No two elements may have the same,
                which is not checked: the answer to one would take the place of that to the other.
            late_left_to: takes elements that come when the versions that they could meet are dropped; without it they are counted only.
            late_right_to: takes versions that come when all that could meet them is answered; without it they are counted only.

        Raises:
            ColumnError: an unknown column, or one name for columns of both sides.
            DefinitionError: values of different types are compared, another ``how``, or corrections without a key.
            DurationError: ``allowed_lateness`` cannot be read.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        if not isinstance(right, Stream):
            raise DefinitionError(
                f"join_asof is given {shortened(repr(right))}, not a stream",
                fix="pass the stream of versions: orders.join_asof(rates, on='currency')",
                place=place,
            )
        check_has_rows(right.node, place)
        return Stream(
            AsofJoinNode(
                inputs=(self.node, right.node),
                on=join_keys(on, "join_asof(on=...)", place),
                how=how,
                allowed_lateness_ms=to_ms(allowed_lateness, what="join_asof allowed_lateness", place=place),
                key=() if key is None else column_names(key, "join_asof(key=...)", place),
                late_left_to=late_left_to,
                late_right_to=late_right_to,
                place=place,
            )
        )

    def lookup(
        self,
        table: LookupTable,
        *,
        on: On,
        how: Literal["left", "inner"] = "left",
        columns: Sequence[str] | None = None,
        refresh: Duration = "1 minute",
    ) -> Stream:
        """Add to each element the columns of the rows of a table that have its key; of several rows it becomes several.

        All elements of an epoch see one version of the table, which is fixed when the epoch is planned, and is in its record. An epoch that
        a crash ended runs again with the same version. The rows stay in memory while the version is the same. A null key meets nothing.
        A Delta table has versions of its own. Of a Parquet folder and of a table of a database a version is a copy in the job's store.

        Args:
            table: made by ``tm.delta_table``, ``tm.parquet_table`` or ``tm.jdbc_table``.
            on: a column of both, a list of these, or a mapping of the stream's expressions to the table's.
            how: ``left`` keeps elements without a row, with nulls; ``inner`` drops them.
            columns: the columns of the table that are added; all by default.
            refresh: how long a version is used, in processing time, before a newer one is looked for; zero for each epoch.

        Raises:
            ColumnError: an unknown column, or one name for columns of both sides. Where the table has no ``schema=``, when the job runs.
            DefinitionError: not a table, values of different types are compared, or another ``how``.
            DurationError: ``refresh`` cannot be read.
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        if not isinstance(table, LookupTable):
            raise DefinitionError(
                f"lookup is given {shortened(repr(table))}, not a table",
                fix="write .lookup(tm.delta_table('lake/zones'), on='zone'); for another stream, .join_asof(...)",
                place=place,
            )
        return Stream(
            LookupNode(
                inputs=(self.node,),
                on=join_keys(on, "lookup(on=...)", place),
                table=table,
                how=how,
                columns=None if columns is None else column_names(columns, "lookup(columns=...)", place),
                refresh_ms=to_ms(refresh, what="lookup refresh", place=place),
                place=place,
            )
        )
