"""The newest row of each key in the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.graph.model.nodes import StatefulNode, walk
from tidemark.graph.operators.latest.node import INCOMPLETE, OUTDATED, LatestNode
from tidemark.graph.operators.registry import keeps_state, kind_of
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.changelog.pairs import PairsEpoch, PairsRuntime
from tidemark.spark.operators.latest.frames import INCOMPLETE_ROWS, LatestFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LatestRuntime(PairsRuntime):
    """An operator of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: LatestNode) -> None:
        self.latest = frames_of(node)
        super().__init__(
            node, self.latest, OUTDATED if node.sequence is not None else None, {INCOMPLETE: INCOMPLETE_ROWS} if node.unchanged else None
        )

    def begin(self, context: OperatorContext) -> LatestEpoch:
        """Return the operator at work on an epoch."""
        return LatestEpoch(self, context)


class LatestEpoch(PairsEpoch):
    """An operator in one epoch."""

    runtime: LatestRuntime

    def __init__(self, runtime: LatestRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._files_before = self._tables.files()

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return outdated or incomplete rows; they follow from the input and the state before the epoch."""
        if counter not in {OUTDATED, INCOMPLETE}:
            raise ValueError(counter)
        (rows,) = inputs.values()
        frames = self.runtime.latest
        contents = self._contents(frames.columns(rows))
        stored = self._with_expired(contents.current(of=self._files_before)) if self._files_before else None
        return frames.outdated(rows, stored) if counter == OUTDATED else frames.incomplete(rows, stored)


def frames_of(node: LatestNode) -> LatestFrames:
    """Return an operator's frames: rows that come from sources alone are in the order of their positions."""
    makers = (found for found in walk(node.inputs) if isinstance(found, StatefulNode))
    return LatestFrames(node, by_position=not any(keeps_state(found) and not kind_of(found).chooses_rows for found in makers))
