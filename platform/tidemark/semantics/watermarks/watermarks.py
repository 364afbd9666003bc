"""Watermarks: how far event time has come, per split, per source, per operator. This module gathers the public names.

``watermark_generators`` makes a split's watermark from what was seen of it, ``watermark_strategy`` declares a source's time,
``source_state`` is what is kept between epochs, ``watermark_progress`` moves it.
"""

from __future__ import annotations

from tidemark.semantics.watermarks.source_state import SourceEnd, SourceState, SplitObservation, SplitState, decode_source, encode_source
from tidemark.semantics.watermarks.watermark_generators import (
    Ascending,
    BoundedOutOfOrderness,
    IngestionTime,
    Punctuated,
    SplitStats,
    WatermarkGenerator,
)
from tidemark.semantics.watermarks.watermark_progress import (
    advance,
    end_of_input,
    next_idle_deadline,
    operator_watermark,
    processing_time_reaching,
    read_to_end,
    with_splits_of,
)
from tidemark.semantics.watermarks.watermark_strategy import DEFAULT_FUTURE_SKEW_MS, MAX_WATERMARK, MIN_WATERMARK, WatermarkStrategy

__all__ = [
    "DEFAULT_FUTURE_SKEW_MS",
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "Ascending",
    "BoundedOutOfOrderness",
    "IngestionTime",
    "Punctuated",
    "SourceEnd",
    "SourceState",
    "SplitObservation",
    "SplitState",
    "SplitStats",
    "WatermarkGenerator",
    "WatermarkStrategy",
    "advance",
    "decode_source",
    "encode_source",
    "end_of_input",
    "next_idle_deadline",
    "operator_watermark",
    "processing_time_reaching",
    "read_to_end",
    "with_splits_of",
]
