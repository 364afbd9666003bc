"""Finds the stored elements that some window still holds, in a task: for merging files of elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemark.semantics.process.window_process import WindowProcess
from tidemark.spark.columns.expressions import START
from tidemark.spark.operators.keyed.columns import ORDER, STORED
from tidemark.spark.operators.keyed.rows import Place
from tidemark.spark.operators.keyed.task import KeyCall, KeyFunction, KeyResult, KeyRun


@dataclass(frozen=True)
class HeldElements(KeyFunction):
    """Keeps the elements that the newest version of their key holds in ``process``."""

    process: WindowProcess
    read_only: ClassVar[bool] = True

    def run(self, call: KeyCall) -> KeyRun:
        """Add the elements to keep."""
        result = KeyResult(call.before)
        if call.before.state is None or not call.rows.has(STORED):
            return result
        epoch = self.process.begin(call.key, call.before.state, call.clock)
        for run in call.rows.of(STORED):
            for number, (time, order) in enumerate(zip(run.values(START), run.values(ORDER), strict=True), start=run.start):
                if epoch.holds(time, order):  # type: ignore[arg-type]
                    call.out.add(STORED, Place(run.batch, number), (time, order))
            yield from call.out.full_batches()
        return result
