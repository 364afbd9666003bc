"""Checks of window joins."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.operators.join_node import ElementJoinNode
from tidemark.graph.operators.window.columns import BOUNDS, PANE
from tidemark.semantics.joins.window import AlignedWindows
from tidemark.semantics.windows.assigners import Cumulative, DynamicSession, Session, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import LocalWindows

_WINDOWS = "window=tm.tumbling('10 minutes'), tm.sliding('1 hour', '10 minutes') or tm.cumulative('1 day', '1 hour')"


def joined_windows(window: object, place: str) -> AlignedWindows:
    """Return the windows of a join.

    Args:
        window: as the user gives it.
        place: the user's file and line.

    Raises:
        DefinitionError: no windows, or of a kind whose bounds depend on the elements or on processing time.
    """
    if isinstance(window, Session | DynamicSession):
        raise DefinitionError(
            f"window_join(window={window.describe()}): sessions of two streams have no common bounds",
            fix=f"write {_WINDOWS}; or join elements that are near each other: .join(other, on='id', within=('-30 minutes', '30 minutes'))",
            place=place,
        )
    if isinstance(window, LocalWindows):
        raise DefinitionError(
            f"window_join(window={window.describe()}) is given windows of local days, and joins in windows of one length",
            fix="leave out the zone; or aggregate each side in local days, and join the results by key and window_start",
            place=place,
        )
    if not isinstance(window, Tumbling | Sliding | Cumulative):
        shown = shortened(repr(window))
        raise DefinitionError(f"window_join(window={shown}) takes windows with fixed bounds", fix=f"write {_WINDOWS}", place=place)
    if window.domain != "event":
        raise DefinitionError(
            f"window_join(window={window.describe()}) is given windows of processing time, and joins by event time",
            fix="leave out time='processing'",
            place=place,
        )
    return window


def check_names(names: Sequence[str], node: ElementJoinNode) -> None:
    """Check that no column of the inputs has the name of one that the join adds.

    Raises:
        ColumnError: one has.
    """
    own = (*BOUNDS, *PANE)
    taken = [name for name in names if name.lower() in own]
    if taken:
        raise ColumnError(
            f"the streams of window_join have {', '.join(map(repr, taken))}, and it adds {', '.join(own)}",
            fix=f"rename it before: .select(..., own_{taken[0]}='{taken[0]}'); or leave it out",
            uid=node.uid,
            place=node.place,
        )
