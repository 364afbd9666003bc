"""One stateful operator in one epoch: absorb, fire, compact, expire. Decides which files to read; ``windows`` says how."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql.types import StructType

from tidemark.crashpoints import crash_point
from tidemark.errors import StateMismatchError
from tidemark.graph.nodes import WindowNode
from tidemark.semantics.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.expressions import START
from tidemark.spark.state_files import overlapping, read_files, write_folder
from tidemark.spark.tallies import Tally
from tidemark.spark.windows import Absorbed, WindowStep
from tidemark.state.compaction import CompactionPlan, plan_compaction
from tidemark.state.records import OperatorState, StateFile
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STATE_COMPRESSION = "lz4"
_EXPIRED = "expired"
FEW_ROWS = 200_000
"""Up to so many state rows, merging all of them costs less than telling apart which need it."""


@dataclass
class OperatorRun:
    """An operator at work on one epoch.

    Args:
        spark: session to read with.
        store: the job's folder.
        uid: the operator's.
        step: its DataFrames.
        before: its state after the epoch before.
        definition: of the operator as it is now, for the record.
        epoch: the epoch at hand.
    """

    spark: SparkSession
    store: JobStore
    uid: str
    step: WindowStep
    before: OperatorState
    definition: Mapping[str, object]
    epoch: int
    absorbed: Absorbed | None = None
    watermark: int = 0
    _added: list[StateFile] = field(default_factory=list)
    _files: list[StateFile] = field(default_factory=list)
    _schema: StructType | None = None

    def __post_init__(self) -> None:
        """Start from the files and the watermark of the epoch before."""
        self.watermark = self.before.watermark
        self._files = list(self.before.files)
        text = self.before.definition.get("schema")
        self._schema = StructType.fromJson(text) if isinstance(text, dict) else None

    @property
    def node(self) -> WindowNode:
        """The operator's declaration."""
        return self.step.node

    def late(self) -> Column:
        """Return which rows this epoch judges late."""
        return self.step.late(self.expired_before)

    @property
    def expired_before(self) -> int:
        """The start of the last window that was gone before this epoch; greater lateness does not bring it back."""
        return max(self.step.last_expired(self.before.watermark), self.before.counters.get(_EXPIRED, MIN_WATERMARK))

    @property
    def expired(self) -> int:
        """The start of the last window that is gone after this epoch."""
        return max(self.step.last_expired(self.watermark), self.expired_before)

    @property
    def due_before(self) -> int:
        """The start of the last window that had fired before this epoch."""
        return self.step.last_due(self.before.watermark)

    def absorb(self, rows: DataFrame, tally: Tally | None = None) -> Absorbed:
        """Take an epoch's input into state; one Spark job.

        Args:
            rows: living rows; with ``tally`` all of them with their verdicts, to be tallied as well.
            tally: gets its figures from the same pass.
        """
        observation = Observation()
        groups = self.step.absorb(rows, self.expired_before, self.due_before, observation, tally)
        self._require_types(groups.schema)
        self._schema = groups.schema
        written = write_folder(groups, self.store, self._folder(), compression=STATE_COMPRESSION, time_column=START)
        self._added = [file.as_state_file(self.epoch) for file in written]
        self._files += self._added
        self.absorbed = self.step.absorbed(observation)
        crash_point("state-staged")
        return self.absorbed

    def _require_types(self, made: StructType) -> None:
        """Raise StateMismatchError where a state column would change its type: files of both could not be read together."""
        stored = {field.name: field.dataType.simpleString() for field in self._schema} if self._schema else {}
        changed = [field for field in made if field.name in stored and field.dataType.simpleString() != stored[field.name]]
        if changed:
            found = ", ".join(f"{f.name} was {stored[f.name]} and is now {f.dataType.simpleString()}" for f in changed)
            raise StateMismatchError(
                f"the stored state has other column types: {found}",
                fix="cast the aggregate's input to the old type, or give the changed operator a new uid and the job a new name",
                uid=self.uid,
                place=self.node.place,
            )

    def fire(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the panes due at a watermark, None where there cannot be any. Nothing runs yet."""
        self.watermark = watermark
        if self._schema is None:
            return None
        parts: list[DataFrame] = []
        low, high = self.due_before + 1, self.step.last_due(watermark)
        due = overlapping(self._files, low, high) if high >= low else []
        if due:
            parts.append(self._due(due, low, high))
        if self.absorbed and self.absorbed.refired_groups:
            span = self.expired_before + 1, self.due_before
            added = overlapping(self._added, *span)
            older = [file for file in overlapping(self._files, *span) if file not in self._added]
            touched = self.step.touched(self._read(older), self._read(added), self.expired_before, self.due_before)
            parts.append(touched)
        if not parts:
            return None
        merged = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
        return self.step.results(merged, self.due_before, observation)

    def plan_compaction(self) -> CompactionPlan:
        """Return which files to merge into larger ones, and which to forget since they are wholly expired."""
        return plan_compaction(self._files, expired_before=self.expired + 1)

    def compact(self, plan: CompactionPlan) -> None:
        """Carry a plan out; a Spark job for each merge."""
        gone = set(plan.drop)
        for group in plan.merge:
            merged = self.step.merge(self.step.between(self._read(group), self.expired + 1, MAX_WATERMARK))
            written = write_folder(merged.coalesce(1), self.store, self._folder(), compression=STATE_COMPRESSION, time_column=START)
            newest = max(file.epoch for file in group)
            self._files += [replace(file.as_state_file(self.epoch), epoch=newest) for file in written]
            gone |= set(group)
            crash_point("compaction-staged")
        self._files = [file for file in self._files if file not in gone]

    def after(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        definition = dict(self.definition)
        if self._schema is not None:
            definition["schema"] = self._schema.jsonValue()
        return OperatorState(definition, tuple(self._files), self.watermark, {**self.before.counters, _EXPIRED: self.expired})

    def _due(self, files: Sequence[StateFile], low: int, high: int) -> DataFrame:
        """Return due state rows, one per key and window; where there are many, only windows that several stagings share are merged."""
        due = self.step.between(self._read(files), low, high)
        shared = _shared_span(_stagings(files), low, high)
        if shared is None:
            return due
        alone = [file for file in files if overlapping([file], low, shared[0] - 1) or overlapping([file], shared[1] + 1, high)]
        if not alone or sum(file.rows for file in files) < FEW_ROWS:
            return self.step.merge(due)
        together = self.step.merge(self.step.between(self._read(overlapping(files, *shared)), *shared))
        return together.unionByName(self.step.outside(self.step.between(self._read(alone), low, high), *shared))

    def _read(self, files: Sequence[StateFile]) -> DataFrame:
        if self._schema is None:
            raise ValueError("no state was written yet")
        if not files:
            return self.spark.createDataFrame([], self._schema)
        return read_files(self.spark, self.store, files, self._schema)

    def _folder(self) -> str:
        return f"state/{self.uid}/{self.epoch:012d}-{uuid.uuid4().hex[:12]}"


def _stagings(files: Sequence[StateFile]) -> list[tuple[int, int]]:
    """Return the time spans of groups of files that were written by one job, in which a key and window occurs once."""
    spans: dict[str, tuple[int, int]] = {}
    for file in files:
        folder = file.path.rpartition("/")[0]
        low = file.min_time if file.min_time is not None else -(2**63)
        high = file.max_time if file.max_time is not None else 2**63 - 1
        before = spans.get(folder, (low, high))
        spans[folder] = (min(before[0], low), max(before[1], high))
    return list(spans.values())


def _shared_span(spans: Sequence[tuple[int, int]], low: int, high: int) -> tuple[int, int] | None:
    """Return the least span within [low, high] outside of which no time is covered twice; None where no time is."""
    first: int | None = None
    last = reached = None
    for start, end in sorted((max(a, low), min(b, high)) for a, b in spans):
        if start > end:
            continue
        if reached is not None and start <= reached:
            first = start if first is None else first
            last = min(end, reached) if last is None else max(last, min(end, reached))
        reached = end if reached is None else max(reached, end)
    return None if first is None or last is None else (first, last)
