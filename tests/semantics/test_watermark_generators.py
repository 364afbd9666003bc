from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidemark.errors import DefinitionError, DurationError, TidemarkError
from tidemark.semantics.watermarks.watermarks import (
    MIN_WATERMARK,
    Ascending,
    BoundedOutOfOrderness,
    IngestionTime,
    Punctuated,
    SplitStats,
    WatermarkGenerator,
    WatermarkStrategy,
)


def stats(latest: int | None = None, metrics: Mapping[str, int | None] | None = None, processing_time: int = 0) -> SplitStats:
    return SplitStats(latest, metrics or {}, processing_time, MIN_WATERMARK)


def test_bounded_is_the_greatest_event_time_less_bound_less_one() -> None:
    assert BoundedOutOfOrderness(5).watermark(stats(100)) == 94
    assert BoundedOutOfOrderness(0).watermark(stats(-7)) == -8
    assert BoundedOutOfOrderness(5).watermark(stats(None)) is None


def test_ascending_is_bounded_by_zero() -> None:
    assert Ascending().bound_ms == 0
    assert Ascending().watermark(stats(100)) == BoundedOutOfOrderness(0).watermark(stats(100)) == 99
    assert Ascending().watermark(stats(None)) is None


def test_punctuated_takes_the_greatest_marker_as_it_is() -> None:
    generator = Punctuated("mark_at")
    assert generator.watermark(stats(1_000, {"marker": 70})) == 70
    assert generator.watermark(stats(1_000, {"marker": None})) is None
    assert list(generator.metrics) == ["marker"]
    assert generator.metrics["marker"].startswith("max(")
    assert "(mark_at)" in generator.metrics["marker"]


def test_ingestion_time_is_processing_time_less_one_with_or_without_rows() -> None:
    assert IngestionTime().watermark(stats(None, processing_time=50)) == 49
    assert IngestionTime().watermark(stats(50, processing_time=50)) == 49


@pytest.mark.parametrize("generator", [BoundedOutOfOrderness(1), Ascending(), Punctuated("m"), IngestionTime()])
def test_all_keep_the_protocol(generator: WatermarkGenerator) -> None:
    assert generator.bound_ms >= 0
    assert all(isinstance(sql, str) for sql in generator.metrics.values())


@pytest.mark.parametrize("bound", [-1, 1.5, True, "5 minutes", None])
def test_bad_bounds(bound: int) -> None:
    with pytest.raises(DurationError, match=r"bound=.*whole number.*Fix:"):
        BoundedOutOfOrderness(bound)


@pytest.mark.parametrize("marker", ["", "  ", None])
def test_bad_markers(marker: str) -> None:
    with pytest.raises(DefinitionError, match=r"marker=.*Fix:"):
        Punctuated(marker)


def test_strategy_takes_what_users_give() -> None:
    assert WatermarkStrategy(None, IngestionTime()).max_future_skew_ms == 86_400_000
    assert WatermarkStrategy("t", Ascending(), idle_after_ms=1, max_future_skew_ms=0, advance_when_idle=True).advance_when_idle


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"timestamp": "t", "generator": Ascending(), "idle_after_ms": 0}, DurationError, "idle_after=0 ms must be positive"),
        ({"timestamp": "t", "generator": Ascending(), "idle_after_ms": -1}, DurationError, "idle_after=-1 ms must be positive"),
        (
            {"timestamp": "t", "generator": Ascending(), "max_future_skew_ms": -1},
            DurationError,
            "max_future_skew=-1 ms must not be negative",
        ),
        ({"timestamp": "t", "generator": Ascending(), "advance_when_idle": True}, DefinitionError, "advance_when_idle needs to know"),
        ({"timestamp": "t", "generator": IngestionTime()}, DefinitionError, "timestamp='t' contradicts ingestion time"),
        ({"timestamp": None, "generator": IngestionTime(), "idle_after_ms": 5}, DefinitionError, "ingestion time is never idle"),
    ],
)
def test_strategy_refuses_contradictions(settings: Mapping[str, object], error: type[TidemarkError], text: str) -> None:
    with pytest.raises(error) as caught:
        WatermarkStrategy(**settings)  # type: ignore[arg-type]
    assert text in str(caught.value)
    assert "Fix:" in str(caught.value)
