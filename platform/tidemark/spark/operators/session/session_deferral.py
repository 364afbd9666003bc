"""Sessions whose merging can wait: an epoch's input is written as it is, and merged with the sessions it belongs to some epochs later.

Which elements are late depends on what is stored only if they would be late by themselves, and what is due only on sessions that end. So
where many sessions are open, few are touched, no element may be late and no session ends soon, nothing stored has to be read: what an
epoch costs follows from its input alone. What was put off has to be merged before any of it may be due, or anything that it may belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tidemark.crashpoints import crash_point
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.expressions import ROWS, quoted
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.base.contract import OperatorContext, bounded
from tidemark.spark.operators.base.tables import MAIN, stagings
from tidemark.spark.operators.session.session_merging import HELD, SESSION
from tidemark.spark.operators.session.session_run import FEW_TOUCHED, OPEN, TAKEN, SessionRun
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.spark.operators.session.sessions import SessionStep

PUT_OFF = "put_off"
"""The table of what waits; rows as in the main one, but each is only what one epoch adds to a session."""

MANY_OPEN = 5_000
"""Up to so many open sessions, writing all of them anew is as quick."""

MOST_EPOCHS = 16
"""What so many epochs have put off is merged."""

EPOCHS_AHEAD = 4
"""Nothing is put off if a session may end while the watermark goes on as far as in so many epochs like the last."""

EPOCHS_OF_DOUBT = 16
"""For so many epochs nothing is put off after one with an element that might be late."""

_WAITED, _ADVANCE, _DOUBT = "__tm_waited", "advance", "doubt"


class DeferringSessionRun(SessionRun):
    """Sessions that fire at their end, in one epoch."""

    def __init__(self, step: SessionStep, setting: OperatorContext) -> None:
        super().__init__(step, setting)
        self._doubt = max(0, setting.before.counters.get(_DOUBT, 0) - 1)

    @property
    def _waiting(self) -> list[StateFile]:
        return self.tables.files(PUT_OFF)

    @property
    def _open_files(self) -> Sequence[StateFile]:
        return [*self.tables.files(), *self._waiting]

    def _take(self, fresh: DataFrame, older: Sequence[StateFile]) -> None:
        if not self._may_put_off(older):
            super()._take(fresh, older)
        else:
            kept = fresh.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                if self._put_off(kept):
                    return
                self._doubt = EPOCHS_OF_DOUBT
                super()._take(kept, older)
            finally:
                kept.unpersist()
        self.tables.drop(self._waiting)

    def _may_put_off(self, older: Sequence[StateFile]) -> bool:
        before, waiting = self.setting.before, self._waiting
        many = self._open_before > MANY_OPEN and any(file.part == MAIN for file in older)
        few = max(before.counters.get(TAKEN, 0), sum(file.rows for file in waiting)) * FEW_TOUCHED <= self._open_before
        advance, due = before.counters.get(_ADVANCE), self.step.next_timer(before)
        soon = advance is None or (due is not None and due <= before.watermark + EPOCHS_AHEAD * advance)
        simple = not self._remembers and self.node.assigner.domain == "event" and not self.setting.ends and not self._doubt
        return simple and many and few and not soon and len(stagings(waiting)) < MOST_EPOCHS

    def _put_off(self, fresh: DataFrame) -> bool:
        """Write the input by itself; return whether that will do: not if some of it is late unless it joins what is stored."""
        before, observation = self.setting.before.watermark, Observation()
        merged = self._merging.merged(fresh, None, self._gone)
        observed = self._observed(merged, observation, touched=True).where(f"{SESSION} > 0")
        files = self.tables.write(self._state.written(observed, self.setting.epoch, before), PUT_OFF)
        if observation.get["late"]:
            self.tables.drop(files)
            return False
        self.counts = self._counted(observation, files, touched=True)
        return True

    def _stored(self, older: Sequence[StateFile], of: DataFrame | None) -> DataFrame:
        """Return stored sessions, with what waits to be merged into them."""
        waiting = [file for file in older if file.part == PUT_OFF]
        if not waiting:
            return super()._stored(older, of)
        put_off = self._state.rows(waiting, self._gone)
        keys = list(map(quoted, self.step.partials.keys))
        asked = None if of is None else of.select(*keys).union(put_off.select(*keys))
        merged = super()._stored([file for file in older if file.part == MAIN], asked)
        self._merging.further = (f"max({_WAITED}) AS {_WAITED}",)
        waited = self._state.as_of(put_off, self.setting.before.watermark).withColumn(_WAITED, F.lit(1))
        return merged.withColumn(_WAITED, F.lit(0)).unionByName(waited)

    def open_sessions(self) -> DataFrame | None:
        """Return all sessions that are not gone, with what waits merged into them; None where nothing is stored."""
        found = super().open_sessions()
        if found is None or not self._waiting:
            return found
        nothing = found.where("false").selectExpr(*self._state.columns, f"1L AS {ROWS}")
        return self._merging.merged(nothing, found, self._gone).where(f"{SESSION} > 0")

    @property
    def _touched(self) -> str:
        return f"{SESSION} > 0 AND ({ROWS} > 0 OR {_WAITED} > 0)" if self._merging.further else super()._touched

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes due at a watermark, None where there cannot be any; merges before what may be due is put off."""
        low, high = bounded(self.setting.before.watermark + 2), bounded(watermark + 1)
        if self._waiting and (overlapping(self._waiting, MIN_WATERMARK, high) or overlapping(self.tables.files(), low, high)):
            self._settle()
        return super().emit(watermark, observation)

    def _settle(self) -> None:
        """Merge what waits with the sessions it belongs to; one Spark job, and one that looks for them."""
        waiting, before = self._waiting, self.setting.before.watermark
        put_off = self._state.rows(waiting, self._gone).selectExpr(*self._state.columns, f"1L AS {ROWS}")
        main = [file for file in self.tables.files() if file.max_time is None or file.max_time > self._gone]
        self._merging.further = ()
        merged = self._merging.merged(put_off, super()._stored(main, put_off), MIN_WATERMARK)
        held = Observation()
        written = merged.where(f"{SESSION} > 0 AND {ROWS} > 0").observe(held, F.expr(f"sum({HELD}) AS held"))
        files = self.tables.write(self._state.written(written, self.setting.epoch, before))
        self.tables.drop(waiting)
        if self.counts is not None:
            self.tables.added = files
        merged_away = (held.get["held"] or 0) + sum(file.rows for file in waiting)
        self._found[OPEN] = self._found.get(OPEN, self._open_before) + sum(file.rows for file in files) - merged_away
        crash_point("state-staged")

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        self._found[_DOUBT] = self._doubt
        self._found[_ADVANCE] = min(self.watermark - self.setting.before.watermark, 2**62)
        return super().snapshot()
