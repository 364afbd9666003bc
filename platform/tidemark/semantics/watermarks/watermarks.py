"""Watermarks: the progress of event time, per split, per source, per operator. This module re-exports the public names.

``watermark_generators`` computes a split's watermark from its statistics, ``watermark_strategy`` declares a source's time,
``source_state`` is the state between epochs, ``watermark_progress`` advances it.
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
    delayed,
    end_of_input,
    held,
    next_idle_deadline,
    operator_watermark,
    processing_time_reaching,
    read_to_end,
    with_splits_of,
)
from tidemark.semantics.watermarks.watermark_strategy import (
    DEFAULT_FUTURE_SKEW_MS,
    MAX_WATERMARK,
    MIN_WATERMARK,
    WatermarkStrategy,
    clamp_watermark,
)

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
    "clamp_watermark",
    "decode_source",
    "delayed",
    "encode_source",
    "end_of_input",
    "held",
    "next_idle_deadline",
    "operator_watermark",
    "processing_time_reaching",
    "read_to_end",
    "with_splits_of",
]
