"""The best rows of each group in the engine: over a stream that is only added to by pairs of rows, over a changelog from all its rows.

Over a changelog the changes are staged by one Spark job and written into the state by another; the results are computed where they are
read, from the changes and the stored rows of their groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.checks.changelogs import expires, is_declared
from tidemark.graph.operators.state_names import element_column
from tidemark.graph.operators.top_n.node import TopNode
from tidemark.spark.columns.changes import WEIGHT
from tidemark.spark.columns.expressions import CHANGE, POSITION, START, TIME, quoted, visible_of
from tidemark.spark.columns.few_rows import FEW_ROWS, in_one_task
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.operators.base.contract import InputCounts, Observed, OperatorContext, OperatorEpoch, OperatorRuntime, PortInput
from tidemark.spark.operators.base.staged_rows import StagedRows
from tidemark.spark.operators.base.tables import MAIN, StateTables
from tidemark.spark.operators.changelog.contents import ENGINE_FIELDS, EPOCH, GONE, HASH, Contents, changed_hashes, lookup_hash
from tidemark.spark.operators.changelog.lifetimes import EXPIRED, Lifetime, drop_expired, stored_columns, with_expired
from tidemark.spark.operators.changelog.pairs import PairsRuntime
from tidemark.spark.operators.latest.sequenced import with_position
from tidemark.spark.operators.top_n.frames import TopFrames
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def top_runtime(node: TopNode) -> OperatorRuntime:
    """Return an operator of a run."""
    return TopOfChangelog(node) if node.changelog is not None else PairsRuntime(node, TopFrames(node))


class TopOfChangelog(OperatorRuntime):
    """An operator of a run, over a changelog.

    Args:
        node: its declaration.
    """

    def __init__(self, node: TopNode) -> None:
        super().__init__(node)
        self.frames = TopFrames(node)
        # Where rows expire, a change may be of a row that is there no more, or not yet gone.
        self.come_again = node.ttl is not None or any(map(expires, node.inputs))
        # A declared changelog may begin with changes of rows that never came, so that its changes do not say how many rows there are.
        self.counts_rows = self.come_again or any(map(is_declared, node.inputs))

    def begin(self, context: OperatorContext) -> TopOfChangelogEpoch:
        """Return the operator at work on an epoch."""
        return TopOfChangelogEpoch(self, context)

    def next_timer(self, state: OperatorState) -> None:
        """Return None: a change counts in the epoch that reads it."""
        del state


class TopOfChangelogEpoch(OperatorEpoch):
    """An operator in one epoch."""

    runtime: TopOfChangelog

    def __init__(self, runtime: TopOfChangelog, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._staged: StagedRows | None = None
        self._results: DataFrame | None = None
        self._stored: DataFrame | None = None
        self._living = context.before.counters.get("keys", 0)
        self._lifetime = Lifetime(runtime.frames.ttl, context)
        self._expired = 0

    def _contents(self, columns: T.StructType) -> Contents:
        frames = self.runtime.frames
        return Contents(self._tables, MAIN, columns, frames.identity, frames.lookup)

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Stage the changes, and write them into the state; two Spark jobs. With a lifetime of event time they are written by ``emit``."""
        (given,) = inputs.values()
        frames, context, rows = self.runtime.frames, self.context, with_position(given.rows)
        columns = frames.columns(rows)
        self._tables.adopt(T.StructType([*columns, *ENGINE_FIELDS, T.StructField(START, T.LongType())]))
        named = (F.col(quoted(name)).alias(element_column(name)) for name in visible_of(rows.columns))
        observation = Observation()
        weighed = rows.select(*named, TIME, POSITION, CHANGE).observe(observation, F.expr(f"coalesce(sum({WEIGHT}), 0) AS added"))
        self._staged = staged = StagedRows(context, self._tables, weighed)
        if not staged.count:
            return
        contents = self._contents(columns)
        stored = self._stored_rows(contents, staged)
        few = staged.few and contents.stored_rows <= FEW_ROWS
        changes = frames.ordered_stored(staged.rows)
        together = in_one_task(changes) if few and stored is None else changes
        self._results = frames.changes(stored, together, again=self.runtime.come_again)
        if not self.runtime.counts_rows:
            self._tables.added = contents.write(staged.rows, context.epoch)
            self._living += observation.get["added"]
        elif not self._lifetime.waits:
            self._write_counted(staged)
        crash_point("state-staged")

    def _stored_rows(self, contents: Contents, staged: StagedRows) -> DataFrame | None:
        """Return the live rows of the changes' groups, and perhaps of others, with the values of the order."""
        frames = self.runtime.frames
        if not contents.files:
            return None
        hashes = changed_hashes(staged.rows, frames.lookup)
        stored = contents.current(hashes, keys=staged.count)
        if self.runtime.counts_rows:
            groups = stored.join(F.broadcast(hashes), HASH, "left_semi")
            marked = with_expired(groups, self._lifetime.expired(self._lifetime.now_before), frames.together)
            self._stored = marked.drop(HASH)
            return frames.ordered_stored(self._stored.where(f"NOT {EXPIRED}").drop(EXPIRED))
        return frames.ordered_stored(stored.drop(HASH))

    def _write_counted(self, staged: StagedRows) -> None:
        """Write the changes, and marks for the expired rows of their groups, and count both; one Spark job."""
        frames, observation = self.runtime.frames, Observation()
        contents = self._contents(self._stored_columns)
        rows = self._lifetime.renewed(frames.written(self._stored, staged.rows, observation), self.watermark)
        hashed = rows.withColumn(EPOCH, F.lit(self.context.epoch).cast("bigint")).withColumn(HASH, F.expr(lookup_hash(frames.lookup)))
        self._tables.added = contents.add(hashed.select(*map(quoted, contents.columns.names), GONE, EPOCH, HASH))
        self._living += observation.get["opened"]
        self._expired += observation.get["expired"]

    def _sweep(self) -> None:
        """Drop the rows of groups that have expired; one Spark job, now and then."""
        now = self._lifetime.now(self.watermark)
        if self._tables.files() and self._lifetime.sweeps(now):
            contents, together = self._contents(self._stored_columns), self.runtime.frames.together
            dropped = drop_expired(contents, self._lifetime.expired(now), together, self.context.epoch)
            self._living -= dropped
            self._expired += dropped

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The number of rows, all of which are accepted."""
        return None if self._staged is None else {port.name: InputCounts(self._staged.count, {}) for port in self.node.ports}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Never called: there are no side outputs."""
        raise ValueError(f"{counter} of {list(inputs)}")

    def emit(self, watermark: int, observation: Observation) -> DataFrame | None:
        """Return the changes, which are computed where they are read; before, drop what has expired."""
        self.watermark = watermark
        if self._lifetime.waits and self._staged is not None and self._staged.count:
            self._write_counted(self._staged)
        self._sweep()
        return None if self._results is None else self._results.observe(observation, F.count(F.lit(1)).alias("emitted"))

    def emitted(self, observation: Observed) -> int:
        """Return the number of changes."""
        return int(observation.get["emitted"])

    @property
    def _stored_columns(self) -> T.StructType:
        return stored_columns(self._tables, self.runtime.frames.ttl)

    def compact(self) -> Callable[[], None] | None:
        """Return the work that merges files and drops outdated rows, None where there is nothing to merge."""
        # Changes of rows that never were make the number wrong, also in stored state: it is no reason to drop files.
        return None if self._tables.empty else self._contents(self._stored_columns).compact(max(1, self._living))

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``rows``: all rows of the changelog."""
        frames = self.runtime.frames
        if self._tables.empty:
            return {"rows": no_rows(self.context.spark, T.StructType([T.StructField(name, T.StringType()) for name in frames.names]))}
        stored = self._contents(self._stored_columns).current()
        live = with_expired(stored, self._lifetime.expired(self._lifetime.now_before), frames.together).where(f"NOT {EXPIRED}")
        return {"rows": frames.shown(live.drop(EXPIRED))}

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the number of rows that it keeps, and how many expired."""
        return dataclasses.replace(common, keys=max(0, self._living), keys_expired=self._expired, state_expired=self._expired)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        if self._staged is not None:
            self._staged.delete()
        return self._tables.snapshot(self.watermark, {"keys": self._living, **self._lifetime.counters(self.watermark)})
