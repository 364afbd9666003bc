"""Joins of two streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.durations import Duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.api.changelog_joins import Lifetimes, regular_join
from tidemark.graph.checks.side_outputs import check_has_rows
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.expressions.name_checks import check_tag
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Node, On, OutputTag
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.graph.operators.join_keys import join_keys
from tidemark.graph.operators.window_join.checks import joined_windows
from tidemark.graph.operators.window_join.node import WindowJoinNode
from tidemark.semantics.joins.interval import How
from tidemark.semantics.joins.window import AlignedWindows

if TYPE_CHECKING:
    from tidemark.graph.api.streams import Stream

_LEAST = -(2**53)
_WITHIN = (
    "write within=('-10 minutes', '1 hour'): a right element may be up to 10 minutes before its left partner, and up to 1 hour after it"
)


@checked_methods()
class JoinMethods:
    """The methods of a stream that join it with another."""

    node: Node

    def join(
        self,
        other: Stream,
        *,
        on: On,
        how: How = "inner",
        within: tuple[Duration, Duration] | None = None,
        late_left_to: OutputTag | None = None,
        late_right_to: OutputTag | None = None,
        ttl: Lifetimes | None = None,
    ) -> Stream:
        """Pair the rows of two streams that have equal keys: elements whose event times are near each other, or all rows of changelogs.

        Results have all columns of this stream, then those of the other; key columns of the same name once. The operator keeps rows that
        may meet others: name it with ``.uid("...")``.

        With ``within`` it is an interval join of streams that are only added to. A pair comes in the epoch in which the second of the two
        does, with the later of their times. A row without a partner comes when none can come on time any more, with its own time.

        Without it, it is the regular join of two changelogs: at each epoch's end the content of the result is the join of both contents.
        The result is a changelog, whose key is that of both (``semi``, ``anti``: the left one's). A stream that is only added to becomes
        a changelog by ``.as_changelog([...])``, or ``.latest(by=[...])``.

        Args:
            other: the right stream.
            on: a column that both have, several, or expressions of this stream with those of the other that are to be equal. A null is
                equal to nothing.
            how: ``inner``: pairs; ``left``, ``right`` and ``full``: also the rows of that side, or of both, that have no partner;
                ``semi``: the rows of this stream that have a partner; ``anti``: those that have none.
            within: the least and the greatest time by which an element of the other stream may be after its partner in this one, both
                inclusive; negative if it may be before it, such as ``("-10 minutes", "1 hour")``.
            late_left_to: takes the elements of this stream that come too late to meet anything; without it they are dropped and counted.
            late_right_to: the same for the other stream.
            ttl: without ``within``, how long a row is kept after it was inserted or updated, such as ``tm.state_ttl("7 days")``; or a pair
                of these, for this stream and for the other, each None for ever. What expires is dropped from the state and counted, and no
                delete is emitted: results stay as they are, and a later change of the other stream does not meet the row.

        Raises:
            DefinitionError: ``other`` is no stream, ``on`` or ``within`` is none of these, or the keys are of different types.
            ColumnError: a column does not exist, or both streams have one that is no key.
            DurationError: a bound is not a duration.

        >>> import tidemark as tm
        >>> def read(name, columns):
        ...     files = tm.files(name, format="json", schema=columns)
        ...     return tm.source(name, files, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="at"))
        >>> views = read("views", "at TIMESTAMP, ad STRING")
        >>> clicks = read("clicks", "at TIMESTAMP, ad STRING").select("ad", clicked_at="at")
        >>> views.join(clicks, on="ad", how="left", within=("0 seconds", "1 hour")).uid("clicked")
        <Stream: left join on ad, right time - left time from 0 to 1h>
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        right = _right(other, "join", self.node, place)
        if within is None:
            _require_interval({"late_left_to": late_left_to, "late_right_to": late_right_to}, place)
            return Stream(regular_join(self.node, right, on, how=how, ttl=ttl, place=place))
        if ttl is not None:
            raise DefinitionError(
                "join(within=..., ttl=...): elements are kept as long as they can meet others, which within says",
                fix="leave ttl out",
                place=place,
            )
        keys = join_keys(on, "join(on=...)", place)
        lower, upper = _bounds(within, place)
        _check_tags(late_left_to, late_right_to, place)
        return Stream(
            IntervalJoinNode(
                inputs=(self.node, right),
                on=keys,
                lower_ms=lower,
                upper_ms=upper,
                how=how,
                late_left_to=late_left_to,
                late_right_to=late_right_to,
                place=place,
            )
        )

    def window_join(
        self,
        other: Stream,
        *,
        on: On,
        window: AlignedWindows,
        how: How = "inner",
        allowed_lateness: Duration = "0 seconds",
        late_left_to: OutputTag | None = None,
        late_right_to: OutputTag | None = None,
    ) -> Stream:
        """Pair the elements of two streams that have equal keys and are in the same window, when the window ends.

        Results have all columns of this stream, then those of the other (``semi`` and ``anti``: only this stream's); key columns of the
        same name once; then ``window_start``, ``window_end``, ``pane_timing`` (ON_TIME or LATE) and ``pane_index``. Their event time is the
        window's end less a millisecond. The operator keeps the elements of windows that are open: name it with ``.uid("...")``.

        With ``allowed_lateness``, elements that come after the window's end fire it again, for their key: its whole result once more, as a
        LATE pane.

        Args:
            other: the right stream.
            on: a column that both have, several, or expressions of this stream with those of the other that are to be equal. A null is
                equal to nothing.
            window: ``tumbling``, ``sliding`` or ``cumulative`` windows of event time.
            how: ``inner``: pairs; ``left``, ``right`` and ``full``: also the rows of that side, or of both, that have no partner in their
                window; ``semi``: the rows of this stream that have a partner; ``anti``: those that have none.
            allowed_lateness: how long after its end a window still accepts elements.
            late_left_to: takes the elements of this stream that no window accepts; without it they are dropped and counted.
            late_right_to: the same for the other stream.

        Raises:
            DefinitionError: ``other`` is no stream, ``on`` or ``window`` is none of these, or the keys are of different types.
            ColumnError: a column does not exist, both streams have one that is no key, or one has the name of a column that is added.
            DurationError: the allowed lateness cannot be read or is negative.

        >>> import tidemark as tm
        >>> def read(name, columns):
        ...     files = tm.files(name, format="json", schema=columns)
        ...     return tm.source(name, files, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="at"))
        >>> views = read("views", "at TIMESTAMP, ad STRING")
        >>> clicks = read("clicks", "at TIMESTAMP, ad STRING").select("ad", clicked_at="at")
        >>> views.window_join(clicks, on="ad", window=tm.tumbling("1 hour")).uid("clicked")
        <Stream: inner window join on ad, tumbling 1h>
        """
        from tidemark.graph.api.streams import Stream

        place = call_site()
        right = _right(other, "window_join", self.node, place)
        _check_tags(late_left_to, late_right_to, place)
        return Stream(
            WindowJoinNode(
                inputs=(self.node, right),
                on=join_keys(on, "window_join(on=...)", place),
                assigner=joined_windows(window, place),
                allowed_lateness_ms=to_ms(allowed_lateness, what="window_join allowed_lateness", place=place),
                how=how,
                late_left_to=late_left_to,
                late_right_to=late_right_to,
                place=place,
            )
        )


def _check_tags(left: OutputTag | None, right: OutputTag | None, place: str) -> None:
    for name, tag in (("late_left_to", left), ("late_right_to", right)):
        if tag is not None:
            check_tag(tag, name, place)


def _right(other: object, method: str, left: Node, place: str) -> Node:
    """Return the node of the right stream."""
    from tidemark.graph.api.streams import Stream

    if not isinstance(other, Stream):
        raise DefinitionError(
            f"{method} is given {shortened(repr(other))}, not a stream",
            fix=f"pass the stream to join with: .{method}(other, on='id', ...)",
            place=place,
        )
    for node in (left, other.node):
        check_has_rows(node, place)
    return other.node


def _require_interval(given: Mapping[str, OutputTag | None], place: str) -> None:
    """Refuse side outputs of late elements where no element is late."""
    for name, tag in given.items():
        if tag is not None:
            raise DefinitionError(
                f"join({name}=...) takes late elements, and a join of changelogs has none",
                fix=f"leave {name} out, or {_WITHIN}",
                place=place,
            )


def _bounds(within: object, place: str) -> tuple[int, int]:
    """Return the bounds of an interval in milliseconds."""
    if not isinstance(within, tuple | list) or len(within) != 2:
        raise DefinitionError(f"join(within={within!r}) is not a pair of durations", fix=_WITHIN, place=place)
    lower, upper = (to_ms(bound, what="join within", minimum=_LEAST, place=place) for bound in within)
    return lower, upper
