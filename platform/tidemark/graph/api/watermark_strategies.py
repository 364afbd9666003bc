"""Declares watermark strategies: a source's timestamps and its watermarks."""

from __future__ import annotations

from tidemark.durations import Duration, to_ms
from tidemark.graph.model.call_site import call_site, with_call_site
from tidemark.semantics.watermarks.watermarks import (
    Ascending,
    BoundedOutOfOrderness,
    IngestionTime,
    Punctuated,
    WatermarkGenerator,
    WatermarkStrategy,
)


def bounded_out_of_orderness(
    bound: Duration,
    *,
    timestamp: str,
    idle_after: Duration | None = None,
    split_by: str | None = None,
    max_future_skew: Duration | None = "1 day",
    advance_when_idle: bool = False,
) -> WatermarkStrategy:
    """Expect elements at most ``bound`` behind the latest: the watermark is the greatest event time minus the bound.

    Args:
        bound: how far out of order elements may come, 0 or more.
        timestamp: SQL expression of type TIMESTAMP, DATE or BIGINT (milliseconds): an element's event time.
        idle_after: processing time without rows after which a split no longer holds the watermark back; None is never.
        split_by: column whose values are the source's splits, each with its own watermark; Kafka's partitions are splits by themselves.
        max_future_skew: elements further ahead of processing time are malformed; None turns the guard off.
        advance_when_idle: advance the watermark with the clock when all splits are idle.

    Raises:
        DurationError: a duration cannot be read or is negative.
        DefinitionError: ``advance_when_idle`` without ``idle_after``.

    >>> bounded_out_of_orderness("5 minutes", timestamp="pickup_at").generator.bound_ms
    300000
    """
    return watermark_strategy(
        BoundedOutOfOrderness(to_ms(bound, what="bound", place=call_site())),
        timestamp=timestamp,
        idle_after=idle_after,
        split_by=split_by,
        max_future_skew=max_future_skew,
        advance_when_idle=advance_when_idle,
    )


def ascending(
    *,
    timestamp: str,
    idle_after: Duration | None = None,
    split_by: str | None = None,
    max_future_skew: Duration | None = "1 day",
    advance_when_idle: bool = False,
) -> WatermarkStrategy:
    """Expect event times that never go back within a split; arguments as in ``bounded_out_of_orderness``.

    Raises:
        DurationError: a duration cannot be read or is negative.
    """
    return watermark_strategy(
        Ascending(),
        timestamp=timestamp,
        idle_after=idle_after,
        split_by=split_by,
        max_future_skew=max_future_skew,
        advance_when_idle=advance_when_idle,
    )


def punctuated(
    marker: str,
    *,
    timestamp: str,
    idle_after: Duration | None = None,
    split_by: str | None = None,
    max_future_skew: Duration | None = "1 day",
    advance_when_idle: bool = False,
) -> WatermarkStrategy:
    """Take the watermark from markers in the elements.

    Args:
        marker: SQL expression over an element: its watermark as TIMESTAMP or BIGINT (milliseconds), null where it has none.
        timestamp: as the other arguments, see ``bounded_out_of_orderness``.
        idle_after: processing time after which a split without rows is idle.
        split_by: column whose values are the source's splits.
        max_future_skew: elements further ahead of processing time are malformed.
        advance_when_idle: advance the watermark with the clock when all splits are idle.

    Raises:
        DurationError: a duration cannot be read or is negative.
    """
    with with_call_site(call_site()):
        generator = Punctuated(marker)
    return watermark_strategy(
        generator,
        timestamp=timestamp,
        idle_after=idle_after,
        split_by=split_by,
        max_future_skew=max_future_skew,
        advance_when_idle=advance_when_idle,
    )


def ingestion_time() -> WatermarkStrategy:
    """Time elements by the processing time of the epoch that reads them; nothing can be late.

    >>> ingestion_time().timestamp is None
    True
    """
    return watermark_strategy(IngestionTime(), timestamp=None)


def watermark_strategy(
    generator: WatermarkGenerator,
    *,
    timestamp: str | None,
    idle_after: Duration | None = None,
    split_by: str | None = None,
    max_future_skew: Duration | None = "1 day",
    advance_when_idle: bool = False,
) -> WatermarkStrategy:
    """Use a custom watermark generator, any object of the ``WatermarkGenerator`` protocol.

    The other arguments are those of ``bounded_out_of_orderness``; ``timestamp`` None means ingestion time.

    Raises:
        DurationError: a duration cannot be read or is negative.
    """
    place = call_site()
    with with_call_site(place):
        return WatermarkStrategy(
            timestamp=timestamp,
            generator=generator,
            idle_after_ms=None if idle_after is None else to_ms(idle_after, what="idle_after", minimum=1, place=place),
            split_by=split_by,
            max_future_skew_ms=None if max_future_skew is None else to_ms(max_future_skew, what="max_future_skew", place=place),
            advance_when_idle=advance_when_idle,
        )
