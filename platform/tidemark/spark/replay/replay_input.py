"""The elements that a process function had in a past epoch, read again from the job's sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, FormatSpec
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.epoch.port_input import port_input
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.epoch.topology import Topology, build_topology
from tidemark.spark.operators.base.contract import OperatorRuntime, PortInput
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.epoch_input import EpochInput, input_of_batch
from tidemark.spark.sources.intake import prepare_batch
from tidemark.spark.sources.kafka.options import resolved
from tidemark.spark.sources.kafka.remade_topics import remade_topics
from tidemark.spark.sources.planning.delta_planner import rows_between
from tidemark.spark.sources.planning.offset_planner import first_offsets
from tidemark.spark.sources.planning.offset_stream import OffsetStream
from tidemark.spark.sources.postgres_changes.captured_files import read_rows
from tidemark.spark.sources.postgres_changes.positions import ChangesPosition
from tidemark.spark.sources.sources import rows_of_epoch
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class PastEpoch:
    """An epoch of a job that is retained: ``record`` is its own, ``before`` that of the epoch before, None before the first.

    ``store`` is at the job's folder; nothing is written there.
    """

    spark: SparkSession
    job: Job
    store: JobStore
    before: EpochRecord | None
    record: EpochRecord

    @contextmanager
    def inputs_of(self, node: KeyedProcessNode, runtime: OperatorRuntime) -> Iterator[Mapping[str, PortInput]]:
        """Yield the rows of each input of an operator with nothing stateful before it; they can be read while the context lasts."""
        topology = build_topology(self.job.outputs)
        names = {source.name for source in topology.sources if id(source) in topology.ordered}
        with ExitStack() as opened:
            taken = self._read(topology, opened)
            batches = rows_of_epoch(self.spark, topology.sources, taken, ordered=names, few_tasks=False)
            now = self.record.processing_time
            intakes = {
                source.name: prepare_batch(source, batches[source.name], now, ordered=id(source) in topology.ordered, strict=True)
                for source in topology.sources
                if source.name in batches
            }
            plan = StatelessPlan(topology, intakes, {}, _no_side_rows, {}, run=_not_run)
            opened.callback(plan.release)
            yield {port.name: port_input(plan, port.node, runtime) for port in node.ports if plan.available(port.node)}

    def _read(self, topology: Topology, opened: ExitStack) -> EpochInput:
        """Return what the epoch read of each source."""
        checkpoint = SparkCheckpoint(self.store, term=0)
        opened.callback(checkpoint.close)
        checkpoint.seed(self.record)
        earlier = "" if self.before is None else self.before.offsets
        taken = input_of_batch(checkpoint, topology.sources, offsets=self.record.offsets, before=earlier, polled_at=None)
        reads = {
            source.name: self._rows(source, taken, checkpoint, opened)
            for source in topology.sources
            if isinstance(source.spec, FormatSpec | DeltaTableSpec | PostgresChangesSpec) and taken.has_new_data(source.name)
        }
        return replace(taken, reads=reads)

    def _rows(self, source: SourceNode, taken: EpochInput, checkpoint: SparkCheckpoint, opened: ExitStack) -> Callable[[], DataFrame]:
        """Return what reads the rows that the epoch read of a source."""
        position = taken.now[source.name]
        if isinstance(source.spec, PostgresChangesSpec):
            read = ChangesPosition.parse(position)
            return partial(read_rows, self.spark, self.store, source.spec, () if read is None else read.files)
        known = {} if self.before is None else self.before.topics.get(source.name, {})
        remade = remade_topics(known, self.record.topics.get(source.name, {}), taken.before.get(source.name))
        folder = f"{checkpoint.path}/offsets-{source.name}"
        return _between(self.spark, source, taken, remade=remade, folder=folder, opened=opened)


def _between(
    spark: SparkSession, source: SourceNode, taken: EpochInput, *, remade: Collection[str], folder: str, opened: ExitStack
) -> Callable[[], DataFrame]:
    """Return what reads the rows of a source between the positions before and after the epoch; some topics were made again in it."""
    spec = source.spec
    if isinstance(spec, DeltaTableSpec):
        return partial(rows_between, spark, source, spec, taken.before.get(source.name), taken.now[source.name])
    if not isinstance(spec, FormatSpec):
        raise TypeError(type(spec).__name__)
    whole = resolved(source, spec)
    stream = OffsetStream(spark, whole.format, whole.options, folder)
    opened.callback(stream.close)
    before, end = taken.before.get(source.name), json.dumps(taken.now[source.name])
    start = stream.initial() if before is None else json.dumps(before)
    return partial(stream.rows, first_offsets(spark, whole, start, end, folder=folder, remade=remade), end)


def _no_side_rows(*_: object) -> DataFrame:
    raise ValueError("there is no operator before it")


def _not_run(rows: DataFrame) -> None:
    """Nothing is counted."""
