"""The state of a window operator as windows: a row per key and open window, merged over files and epochs. Nothing is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK
from tidemark.spark.columns.expressions import START
from tidemark.spark.operators.aligned.pre_aggregation import AlignedEpoch
from tidemark.spark.operators.aligned.sliced import SlicedEpoch
from tidemark.spark.operators.aligned.triggered import TriggeredEpoch
from tidemark.spark.operators.aligned.tumbling import TumblingEpoch
from tidemark.spark.operators.aligned.two_stacks import END, Ends
from tidemark.spark.operators.base.windows import WindowEpoch
from tidemark.spark.operators.count.counted import CountedEpoch
from tidemark.spark.operators.count.counted_frames import SLICE
from tidemark.spark.operators.session.session_epoch import SessionEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_BOUND = "CAST(NULL AS TIMESTAMP)"


@dataclass(frozen=True)
class OpenWindows:
    """Rows with keys and partials as stored; the SQL of the bounds of each row's window, and of its further columns."""

    rows: DataFrame
    start: str = _NO_BOUND
    end: str = _NO_BOUND
    more: tuple[str, ...] = ()


def open_windows(run: WindowEpoch) -> OpenWindows | None:
    """Return an operator's state of windows that still accept elements, including fired ones within the allowed lateness.

    None where nothing is stored.
    """
    match run:
        case SessionEpoch():
            sessions = run.open_sessions()
            return None if sessions is None else OpenWindows(sessions, _at(START), _at(END))
        case CountedEpoch():
            slices = run.open_slices()
            first = f"{SLICE} * {run.runtime.frames.width}L AS first_element"
            return None if slices is None else OpenWindows(slices, more=(first,))
        case AlignedEpoch():
            files = run.tables.files()
            return _absorbed(run, run.merged_for_compaction(files)) if files else None
    raise TypeError(f"no windows of partials in {type(run).__name__}")


def _absorbed(run: AlignedEpoch, rows: DataFrame) -> OpenWindows:
    if isinstance(run, TumblingEpoch):
        return OpenWindows(rows, _at(START), _at(f"{START} + {run.runtime.size}L"))
    if isinstance(run, TriggeredEpoch):
        return OpenWindows(rows, _at(START), _at(END)) if run.runtime.slices is not None else OpenWindows(rows)
    if isinstance(run, SlicedEpoch):
        return _sliced(run, rows)
    raise TypeError(f"no windows of {type(run).__name__}")


def _sliced(run: SlicedEpoch, rows: DataFrame) -> OpenWindows:
    """Return the windows of slices; a window is merged from all its slices."""
    slices = run.runtime.slices
    known = [file.max_time for file in run.tables.files()]
    last = max((slices.last_end_of(time) if time is not None else MAX_WATERMARK for time in known), default=MAX_WATERMARK)
    covered = run.runtime.in_windows(rows, Ends(run.expired_end + slices.ends, last))
    start = f"{END} - 1L - pmod({END} - 1L - {slices.offset}L, {slices.span}L)" if slices.growing else f"{END} - {slices.span}L"
    return OpenWindows(run.runtime.partials.grouped(covered, END), _at(start), _at(END))


def _at(milliseconds: str) -> str:
    return f"timestamp_millis({milliseconds})"
