"""Deferred merging of sessions: an epoch's input is written unmerged, and merged with its sessions some epochs later.

Lateness depends on stored sessions only for elements that would be late by themselves, and results only on sessions that end. So where
many sessions are open, few are touched, no element may be late and no session ends soon, no state has to be read: an epoch's cost
depends on its input alone. Deferred input has to be merged before it, or any session that it may belong to, may be due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, clamp_watermark
from tidemark.spark.columns.expressions import ROWS, quoted
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import MAIN, stagings
from tidemark.spark.operators.session.session_epoch import FEW_TOUCHED, OPEN, TAKEN, SessionEpoch
from tidemark.spark.operators.session.session_merging import HELD, SESSION
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.spark.operators.session.session_runtime import SessionRuntime

DEFERRED = "put_off"
"""The table of deferred input; rows as in the main one, but each is only what one epoch adds to a session."""

MANY_OPEN = 5_000
"""Up to so many open sessions, rewriting all of them is as fast."""

MAX_EPOCHS = 16
"""Input is merged after it was deferred for so many epochs."""

EPOCHS_AHEAD = 4
"""Nothing is deferred if a session may end while the watermark advances as far as in so many epochs like the last."""

EPOCHS_OF_DOUBT = 16
"""Nothing is deferred for so many epochs after one with an element that might be late."""

_WAITED, _ADVANCE, _DOUBT = "__tm_waited", "advance", "doubt"


class DeferringSessionEpoch(SessionEpoch):
    """Sessions that fire at their end, in one epoch."""

    def __init__(self, runtime: SessionRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._doubt = max(0, context.before.counters.get(_DOUBT, 0) - 1)

    @property
    def _deferred_files(self) -> list[StateFile]:
        return self.tables.files(DEFERRED)

    @property
    def _open_files(self) -> Sequence[StateFile]:
        return [*self.tables.files(), *self._deferred_files]

    def _take(self, fresh: DataFrame, older: Sequence[StateFile]) -> None:
        if not self._may_defer(older):
            super()._take(fresh, older)
        else:
            kept = fresh.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                if self._defer(kept):
                    return
                self._doubt = EPOCHS_OF_DOUBT
                super()._take(kept, older)
            finally:
                kept.unpersist()
        self.tables.drop(self._deferred_files)

    def _may_defer(self, older: Sequence[StateFile]) -> bool:
        before, deferred_files = self.context.before, self._deferred_files
        many = self._open_before > MANY_OPEN and any(file.part == MAIN for file in older)
        few = max(before.counters.get(TAKEN, 0), sum(file.rows for file in deferred_files)) * FEW_TOUCHED <= self._open_before
        advance, due = before.counters.get(_ADVANCE), self.runtime.next_timer(before)
        soon = advance is None or (due is not None and due <= before.watermark + EPOCHS_AHEAD * advance)
        simple = not self._remembers and self.node.assigner.domain == "event" and not self.context.ends and not self._doubt
        return simple and many and few and not soon and len(stagings(deferred_files)) < MAX_EPOCHS

    def _defer(self, fresh: DataFrame) -> bool:
        """Write the input unmerged; return whether that is enough: not if an element is late unless it joins a stored session."""
        before, observation = self.context.before.watermark, Observation()
        merged = self._merging.merged(fresh, None, self._expired_end)
        observed = self._observed(merged, observation, touched=True).where(f"{SESSION} > 0")
        files = self.tables.write(self._state.written(observed, self.context.epoch, before), DEFERRED)
        if observation.get["late"]:
            self.tables.drop(files)
            return False
        self.counts = self._counted(observation, files, touched=True)
        return True

    def _stored(self, older: Sequence[StateFile], of: DataFrame | None) -> DataFrame:
        """Return stored sessions, with the deferred input to be merged into them."""
        deferred_files = [file for file in older if file.part == DEFERRED]
        if not deferred_files:
            return super()._stored(older, of)
        deferred = self._state.rows(deferred_files, self._expired_end)
        keys = list(map(quoted, self.runtime.partials.keys))
        asked = None if of is None else of.select(*keys).union(deferred.select(*keys))
        merged = super()._stored([file for file in older if file.part == MAIN], asked)
        self._merging.further = (f"max({_WAITED}) AS {_WAITED}",)
        waited = self._state.as_of(deferred, self.context.before.watermark).withColumn(_WAITED, F.lit(1))
        return merged.withColumn(_WAITED, F.lit(0)).unionByName(waited)

    def open_sessions(self) -> DataFrame | None:
        """Return all sessions that have not expired, with deferred input merged into them; None where nothing is stored."""
        found = super().open_sessions()
        if found is None or not self._deferred_files:
            return found
        nothing = found.where("false").selectExpr(*self._state.columns, f"1L AS {ROWS}")
        return self._merging.merged(nothing, found, self._expired_end).where(f"{SESSION} > 0")

    @property
    def _touched(self) -> str:
        return f"{SESSION} > 0 AND ({ROWS} > 0 OR {_WAITED} > 0)" if self._merging.further else super()._touched

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes due at a watermark, None where there cannot be any; first merges deferred input that may be due."""
        low, high = clamp_watermark(self.context.before.watermark + 2), clamp_watermark(watermark + 1)
        if self._deferred_files and (overlapping(self._deferred_files, MIN_WATERMARK, high) or overlapping(self.tables.files(), low, high)):
            self._merge_deferred()
        return super().emit(watermark, observation)

    def _merge_deferred(self) -> None:
        """Merge deferred input with its sessions; one Spark job, and one that looks the sessions up."""
        deferred_files, before = self._deferred_files, self.context.before.watermark
        deferred = self._state.rows(deferred_files, self._expired_end).selectExpr(*self._state.columns, f"1L AS {ROWS}")
        main = [file for file in self.tables.files() if file.max_time is None or file.max_time > self._expired_end]
        self._merging.further = ()
        merged = self._merging.merged(deferred, super()._stored(main, deferred), MIN_WATERMARK)
        held = Observation()
        written = FrameSteps(merged).where(f"{SESSION} > 0 AND {ROWS} > 0").observe(held, f"sum({HELD}) AS held")
        files = self.tables.write(self._state.written(written, self.context.epoch, before))
        self.tables.drop(deferred_files)
        if self.counts is not None:
            self.tables.added = files
        merged_away = (held.get["held"] or 0) + sum(file.rows for file in deferred_files)
        self._found[OPEN] = self._found.get(OPEN, self._open_before) + sum(file.rows for file in files) - merged_away
        crash_point("state-staged")

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        self._found[_DOUBT] = self._doubt
        self._found[_ADVANCE] = min(self.watermark - self.context.before.watermark, 2**62)
        return super().snapshot()
