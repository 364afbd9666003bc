"""One epoch: from a batch's rows to the record that commits them. Stages everything, commits nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Observation

from tidemark.crashpoints import crash_point
from tidemark.graph.model.nodes import Node, SideOutputNode, SourceNode, StatefulNode
from tidemark.semantics.watermarks.watermarks import (
    SourceEnd,
    SourceState,
    SplitObservation,
    advance,
    delayed,
    end_of_input,
    held,
    operator_watermark,
)
from tidemark.spark.columns.row_counts import observe_splits
from tidemark.spark.epoch.background_jobs import BackgroundJobs
from tidemark.spark.epoch.conservation import ConservationCheck
from tidemark.spark.epoch.emission import Emission
from tidemark.spark.epoch.epoch_plan import EpochPlan
from tidemark.spark.epoch.port_input import port_input
from tidemark.spark.epoch.runtime_context import RuntimeContext
from tidemark.spark.epoch.schedule import Pass, What
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.prepared.prepared_plan import PassRows
from tidemark.spark.sources.intake import prepare_batch
from tidemark.state.log.records import OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class EpochRun:
    """Runs one epoch's operators and stages its outputs.

    Args:
        context: of the run.
        spark: session that the batches belong to.
        plan: of the epoch.
    """

    def __init__(self, context: RuntimeContext, spark: SparkSession, plan: EpochPlan) -> None:
        self.plan = plan
        self.topology = context.topology
        self.stages: dict[str, int] = {}
        self.outputs: dict[str, OutputRecord] = {}
        self.sources: dict[str, SourceState] = {}
        self.observed: dict[str, dict[str, SplitObservation]] = {}
        self._context = context
        self._spark = spark
        self._background = BackgroundJobs(context.pool, spark)
        self._timing = threading.Lock()
        self._begin(plan.strict)

    def _begin(self, strict: frozenset[str]) -> None:
        """Start the epoch, or start it again: files staged so far are not referenced, and swept later."""
        plan, topology = self.plan, self.topology
        self._background.discard()
        self.outputs.clear()
        self.early: dict[str, SideOutputNode] = {}
        self.observed.clear()
        self._staged: set[str] = set()
        self._emitting: dict[int, Emission] = {}
        names = {id(node): topology.name(node) for node in topology.operators}
        self.operators = {
            key: self._context.runtimes[key].begin(self._context.of_operator(name, self._spark, plan)) for key, name in names.items()
        }
        self.intakes = {
            source.name: prepare_batch(
                source,
                plan.batches[source.name],
                plan.processing_time,
                ordered=id(source) in topology.ordered,
                strict=source.name in strict,
                texts=plan.texts.get(source.name),
            )
            for source in topology.sources
            if source.name in plan.batches
        }
        self.rows = StatelessPlan(
            topology,
            self.intakes,
            {
                **{name: tuple(split for split in state.splits if split) for name, state in plan.before.sources.items()},
                **{name: intake.batch.splits for name, intake in self.intakes.items() if intake.batch.splits},
            },
            lambda node, counter, inputs: self.operators[id(node)].side_rows(counter, inputs),
            self._context.nondeterministic,
            run=self._count_rows,
        )
        self.conservation = ConservationCheck(topology, self.rows)

    def execute(self) -> None:
        """Run the passes of the schedule, and compare the row counts.

        Raises:
            ConservationError: rows were lost or duplicated.
        """
        with self._context.first_epochs.passes(self._spark, self.plan):
            try:
                self._execute()
            finally:
                self._background.wait()
                self.rows.release()

    def _execute(self) -> None:
        self._read_input()
        self._run_passes(self._context.schedule.rest)
        self._background.join()
        self._discard_empty_prestaged()
        for name, sink in self._context.sinks.items():
            self.outputs.setdefault(name, sink.empty_record())
        crash_point("outputs-staged")
        self.conservation.staged = {name: record for name, record in self.outputs.items() if record.files}
        self.conservation.unstaged = self._gates_passed_by()
        with self._stage("check"):
            self.conservation.check()
            if self.conservation.recounted:
                # The observations of splits came from the same counts.
                self.observed.clear()
                self._advance_sources()

    def _read_input(self) -> None:
        """Read the input; again, strictly, where rows too far ahead of processing time are found, or may have made it fail."""
        try:
            self._run_passes(self._context.schedule.input)
        except PySparkException:
            ahead = frozenset(name for name, intake in self.intakes.items() if not intake.strict and intake.bounded)
            if not ahead:
                raise
        else:
            ahead = self._sources_ahead()
        if ahead:
            self.rows.release()
            self._begin(self.plan.strict | ahead)
            self._run_passes(self._context.schedule.input)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begun = self._context.clock.monotonic()
        try:
            yield
        finally:
            self._record_duration(name, begun)

    def _record_duration(self, name: str, begun: float) -> None:
        with self._timing:
            self.stages[name] = self.stages.get(name, 0) + round((self._context.clock.monotonic() - begun) * 1000)

    def _sources_ahead(self) -> frozenset[str]:
        """Return the sources that took in rows too far ahead of processing time."""
        return frozenset(
            name
            for name, intake in self.intakes.items()
            if not intake.strict
            and any((seen.max_event_time or intake.latest) > intake.latest for seen in self._observe(intake.node).values())
        )

    def _run_passes(self, passes: Iterable[Pass]) -> None:
        """Run passes one after the other, each if its condition holds."""
        handlers: dict[What, Callable[[Pass], None]] = {
            "process": self._process,
            "count": self._count,
            "watermarks": self._advance_watermarks,
            "emit": self._emit,
            "output": self._output,
            "side_output": self._side_output,
            "consume": self._consume,
            "compact": self._compact,
        }
        for each in passes:
            handlers[each.what](each)

    def _process(self, planned: Pass) -> None:
        """Process input into an operator's state."""
        node = _operator_of(planned)
        if ports := [port for port in node.ports if self.rows.available(port.node)]:
            with self._stage(f"absorb {planned.subject}"):
                run = self.operators[id(node)]
                run.process_batch({port.name: port_input(self.rows, port.node, run.runtime) for port in ports})
                self._collect_input_counts(node)

    def _collect_input_counts(self, node: StatefulNode) -> None:
        """Store the counts of an operator's input, as soon as they are known."""
        run = self.operators[id(node)]
        if run.input_counts is not None:
            self.conservation.input_counts[id(node)] = run.input_counts
        if run.side_counts is not None:
            self.conservation.side_counts[id(node)] = run.side_counts
            self.rows.set_side_outputs(node, {counter for counter, rows in run.side_counts.items() if rows})

    def _count(self, planned: Pass) -> None:
        """Count the rows of a source or filter that no pass reads, unless an expected side output did."""
        emitter = _node_of(planned)
        empty = planned.gate is not None and self.conservation.side_rows(planned.gate) == 0
        if self.rows.available(emitter) and id(emitter) not in self.rows.row_counters and not empty:
            self._count_rows(self.rows.rows(emitter))

    def _count_rows(self, rows: DataFrame) -> None:
        """Run a pass over rows that only counts them."""
        with self._stage("count"):
            rows.write.format("noop").mode("overwrite").save()

    def _advance_watermarks(self, _: Pass) -> None:
        with self._stage("watermarks"):
            self._advance_sources()

    def _emit(self, planned: Pass) -> None:
        """Have an operator emit the results due at its watermark; these need not have been computed yet."""
        node = _operator_of(planned)
        run = self.operators[id(node)]
        observation = Observation()
        event_time = operator_watermark(run.context.before.watermark, self._delayed_sources(self.topology.source_delays(node)))
        run.advance_ports({port.name: self._delayed_sources(self.topology.source_delays(port.node, results=True)) for port in node.ports})
        with self._stage(f"fire {planned.subject}"):
            results = run.emit(run.watermark_of(event_time), observation)
        self._collect_input_counts(node)
        if results is not None and self.topology.consumers.get(id(node)):
            emission = self._emitting[id(node)] = Emission(node, results, observation, self._context.clock.monotonic())
            self.rows.set_results(node, emission.rows)

    def _delayed_sources(self, delays: Mapping[str, int]) -> list[SourceState]:
        """Return the states of sources after this epoch, each with its watermark later by a delay in milliseconds."""
        return [delayed(self.sources[name], delay) for name, delay in delays.items()]

    def _consume(self, planned: Pass) -> None:
        """Read the counts of written results, and the results themselves where nothing else did and their number is not known."""
        node = _operator_of(planned)
        if id(node) not in self._emitting:
            return
        emission = self._emitting.pop(id(node))
        try:
            if planned.reads and not self.operators[id(node)].knows_emitted:
                self.rows.rows(node).write.format("noop").mode("overwrite").save()
            self.conservation.emitted[id(node)] = self.operators[id(node)].emitted(emission.counts)
        finally:
            self._record_duration(f"fire {planned.subject}", emission.since)

    def _compact(self, planned: Pass) -> None:
        work = self.operators[id(_operator_of(planned))].compact()
        if work is not None:
            self._background.submit(partial(self._timed, "upkeep", work))

    def _timed(self, name: str, work: Callable[[], None]) -> None:
        with self._stage(name):
            work()

    def _output(self, planned: Pass) -> None:
        """Stage an output that has rows in every epoch."""
        if not self.rows.available(node := _node_of(planned)) or self._stage_prepared(planned.subject, node):
            return
        if not self._stage_written(planned.subject, node):
            self._stage_rows(planned.subject, self._rows_of(planned))

    def _stage_prepared(self, name: str, node: Node) -> bool:
        """Stage an output of few results that the driver reads, or that its prepared pass computes; return whether it could be."""
        sink, as_emitted = self._context.sinks[name], self._emitting.get(id(node))
        emission = self._emitting.get(id(self.topology.path_to_operator(node)))
        if (as_emitted is None and emission is None) or not sink.takes_rows:
            return False

        def few_rows() -> PassRows | None:
            found = None if as_emitted is None else as_emitted.read_rows(sink)
            if found is None and emission is not None:
                found = emission.prepared_rows(sink, node, self.rows, self._context.prepared, epoch=self.plan.epoch)
            return found

        return self._stage_few(name, few_rows)

    def _stage_written(self, name: str, node: Node) -> bool:
        """Stage an output of many changes that its prepared pass computes; return whether it could be."""
        sink, emission = self._context.sinks[name], self._emitting.get(id(self.topology.path_to_operator(node)))
        if emission is None or not sink.takes_written:
            return False
        with self._stage(f"output {name}"):
            found = emission.written_rows(sink, node, self.rows, self._context.prepared, epoch=self.plan.epoch)
            record = None if found is None else sink.stage_written(found, self.plan.lineage, self.plan.epoch)
            if found is None or record is None:
                return False
            self.outputs[name] = record
            emission.take_counts(found.observed, sink, node, self.rows)
        self._staged.add(name)
        crash_point("output-staged")
        return True

    def _side_output(self, planned: Pass) -> None:
        """Stage late, rejected or malformed rows in the background: where there are any, or where some are expected."""
        if planned.gate is None or planned.subject in self._staged or not self.rows.available(_node_of(planned)):
            return
        if planned.when == "expected":
            if planned.subject not in self._context.expected or not self._reads_files(planned.gate):
                return
            self.early[planned.subject] = planned.gate
        elif not self.conservation.side_rows(planned.gate):
            return
        if not self._stage_side_rows(planned.subject, _node_of(planned)):
            self._background.submit(partial(self._stage_rows, planned.subject, self._rows_of(planned)))

    def _stage_side_rows(self, name: str, node: Node) -> bool:
        """Stage few rows that an operator emitted to a side output without a Spark job; return whether that could be."""
        sink = self._context.sinks[name]
        if not isinstance(node, SideOutputNode) or not isinstance(node.emitter, StatefulNode) or not sink.takes_rows or sink.changes:
            return False
        counter = node.emitter.counter_of(node.tag)
        return self._stage_few(name, partial(self.operators[id(node.emitter)].read_side_rows, counter))

    def _stage_few(self, name: str, few_rows: Callable[[], PassRows | None]) -> bool:
        """Stage the rows of an output that the driver has, if there are any such; return whether there were."""
        with self._stage(f"output {name}"):
            found = few_rows()
            if found is None:
                return False
            self.outputs[name] = self._context.sinks[name].stage_rows(found, self.plan.lineage, self.plan.epoch)
        self._staged.add(name)
        crash_point("output-staged")
        return True

    def _reads_files(self, gate: SideOutputNode) -> bool:
        """Whether a side output's rows are looked up in sources' files, and a second reading returns the same."""
        emitter = gate.emitter
        looked_up = emitter.inputs if isinstance(emitter, StatefulNode) else (emitter,)
        return all(map(self.rows.reads_input_alone, looked_up))

    def _discard_empty_prestaged(self) -> None:
        """Drop side outputs that were staged and had no rows, and remember which had rows."""
        for name, gate in self.early.items():
            # Rows that no count includes stay, so that the conservation check finds them.
            if not self.conservation.side_rows(gate) and not self.outputs[name].rows:
                self._staged.discard(name)
                del self.outputs[name]
        self._context.expected.clear()
        self._context.expected.update(name for name in self._staged if self.topology.gate(self.topology.outputs[name].node) is not None)

    def _gates_passed_by(self) -> list[SideOutputNode]:
        """Return the side outputs that were not staged, since their count was zero."""
        gates = (self.topology.gate(output.node) for name, output in self.topology.outputs.items() if name not in self._staged)
        return [gate for gate in gates if gate is not None]

    def _rows_of(self, planned: Pass) -> DataFrame:
        self._staged.add(planned.subject)
        return self.rows.rows(_node_of(planned))

    def _stage_rows(self, name: str, rows: DataFrame) -> None:
        with self._stage(f"output {name}"):
            self.outputs[name] = self._context.sinks[name].stage(rows, self.plan.lineage, self.plan.epoch, self.plan.processing_time)
        crash_point("output-staged")

    def _advance_sources(self) -> None:
        for source in self.topology.sources:
            before = self.plan.before.sources.get(source.name, SourceState())
            end = self.plan.ends.get(source.name, SourceEnd())
            after = advance(
                source.watermarks,
                before,
                end.annotate(self._observe(source), before),
                processing_time=self.plan.processing_time,
                caught_up=end.caught_up,
                polled_at=end.polled_at,
            )
            after = held(before, after) if end.holds_watermark else after
            self.sources[source.name] = end_of_input(after) if self.plan.end_of_input else after

    def _observe(self, source: SourceNode) -> Mapping[str, SplitObservation]:
        """Return the epoch's observations of a source's splits; queried once, since it may take a Spark job."""
        if source.name not in self.observed:
            self.observed[source.name] = self._query_splits(source)
        return self.observed[source.name]

    def _query_splits(self, source: SourceNode) -> dict[str, SplitObservation]:
        end = self.rows.ends.get(source.name)
        if end is None:
            return {}
        counter = self.rows.row_counters[id(end)]
        row_counts = counter.counts()
        if row_counts.unknown_splits or counter.by_group:
            return observe_splits(self.intakes[source.name].rows, source)
        return {name: seen for name, seen in row_counts.splits.items() if seen.rows}


def _node_of(planned: Pass) -> Node:
    if planned.node is None:
        raise ValueError(f"a pass without a node: {planned}")
    return planned.node


def _operator_of(planned: Pass) -> StatefulNode:
    node = _node_of(planned)
    if not isinstance(node, StatefulNode):
        raise TypeError(f"no operator: {planned}")
    return node
