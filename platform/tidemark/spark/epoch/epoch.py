"""One epoch: from a batch's rows to the record that commits them. Stages everything, decides nothing for good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Observation

from tidemark.clock import Clock
from tidemark.crashpoints import crash_point
from tidemark.graph.model.nodes import Node, SideOutputNode, SourceNode, WindowNode, walk
from tidemark.semantics.watermarks.watermarks import (
    SourceEnd,
    SourceState,
    SplitObservation,
    advance,
    end_of_input,
    operator_watermark,
)
from tidemark.spark.columns.epoch_plan import EpochPlan
from tidemark.spark.columns.tallies import observe_splits
from tidemark.spark.epoch.balance import Balance
from tidemark.spark.epoch.beside import Beside, thread_pool
from tidemark.spark.epoch.rows import EpochRows
from tidemark.spark.epoch.topology import Topology, late_windows, result_windows
from tidemark.spark.operators.base.contract import EpochSetting, WindowStep
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.spark.sources.intake import take_in
from tidemark.state.log.records import OperatorState, OutputRecord
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Machinery:
    """What all epochs of a run share.

    ``store`` is the job's folder; ``steps`` are by ``id(node)``, ``definitions`` by uid as they are recorded, ``sinks`` by output name.
    ``varies`` says which nodes could give other rows when they are read again; filled in as epochs ask. ``expected`` are the side outputs
    that had rows in the epoch before. ``pool`` are the threads for work beside the epoch's own.
    """

    store: JobStore
    topology: Topology
    steps: Mapping[int, WindowStep]
    definitions: Mapping[str, Mapping[str, object]]
    sinks: Mapping[str, BoundSink]
    clock: Clock
    varies: dict[int, bool] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    pool: ThreadPoolExecutor = field(default_factory=thread_pool)


class EpochRun:
    """Runs one epoch's operators and stages its outputs.

    Args:
        machinery: of the run.
        spark: session that the batches belong to.
        plan: of the epoch.
    """

    def __init__(self, machinery: Machinery, spark: SparkSession, plan: EpochPlan) -> None:
        self.plan = plan
        self.topology = machinery.topology
        self.stages: dict[str, int] = {}
        self.outputs: dict[str, OutputRecord] = {}
        self.sources: dict[str, SourceState] = {}
        self.observed: dict[str, dict[str, SplitObservation]] = {}
        self._machinery = machinery
        self._spark = spark
        self._beside = Beside(machinery.pool, spark)
        self._timing = threading.Lock()
        self._begin(plan.strict)

    def _begin(self, strict: frozenset[str]) -> None:
        """Start the epoch, or start it again: what was staged until now is nobody's, and swept one day."""
        plan, topology = self.plan, self.topology
        self._beside.give_up()
        self.outputs.clear()
        self.early: dict[str, SideOutputNode] = {}
        self.observed.clear()
        self._staged: set[str] = set()
        self._fired_or_not: set[int] = set()
        self._absorbing: set[int] = set()
        self.operators = {id(node): self._machinery.steps[id(node)].begin(self._setting(topology.name(node))) for node in topology.windows}
        self.intakes = {
            source.name: take_in(
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
        self.rows = EpochRows(
            topology,
            self.intakes,
            {name: tuple(split for split in state.splits if split) for name, state in plan.before.sources.items()},
            lambda node, rows: self.operators[id(node)].late_rows(rows),
            self._machinery.varies,
            run=self._count_rows,
        )
        self.balance = Balance(topology, self.rows)

    def _setting(self, uid: str) -> EpochSetting:
        definition = self._machinery.definitions[uid]
        return EpochSetting(
            spark=self._spark,
            store=self._machinery.store,
            uid=uid,
            before=self.plan.before.operators.get(uid, OperatorState(definition)),
            definition=definition,
            epoch=self.plan.epoch,
            processing_time=self.plan.processing_time,
            ends=self.plan.end_of_input,
        )

    def execute(self) -> None:
        """Run the operators in order, stage all outputs, and hold the counts against each other.

        Raises:
            ConservationError: rows were lost or made.
        """
        try:
            self._take_in()
            with self._stage("watermarks"):
                self._advance_sources()
            self._stage_side_outputs()
            for node in self.topology.windows:
                self._run_window(node)
            # Those of windows that follow other windows are known only now. They are counted here, not beside: what is asked for their
            # counts would wait for ever for a pass that failed.
            self._count(self._undriven())
            self._stage_side_outputs()
            self._beside.finish()
            self._settle_early()
            for name, sink in self._machinery.sinks.items():
                self.outputs.setdefault(name, sink.nothing())
            crash_point("outputs-staged")
            self.balance.staged = {name: record for name, record in self.outputs.items() if record.files}
            self.balance.unstaged = self._gates_passed_by()
            with self._stage("check"):
                self.balance.check()
                if self.balance.recounted:
                    # What is said of splits came of the same counts.
                    self.observed.clear()
                    self._advance_sources()
        finally:
            self._beside.wait()
            self.rows.release()

    def _take_in(self) -> None:
        """Read the input; once more, strictly, where rows too far ahead of processing time are found, or may have made it fail."""
        try:
            self._read_input()
        except PySparkException:
            ahead = frozenset(name for name, intake in self.intakes.items() if not intake.strict and intake.bounded)
            if not ahead:
                raise
        else:
            ahead = self._ahead()
        if ahead:
            self.rows.release()
            self._begin(self.plan.strict | ahead)
            self._read_input()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begun = self._machinery.clock.monotonic()
        try:
            yield
        finally:
            with self._timing:
                self.stages[name] = self.stages.get(name, 0) + round((self._machinery.clock.monotonic() - begun) * 1000)

    def _ahead(self) -> frozenset[str]:
        """Return the sources that took in rows too far ahead of processing time."""
        return frozenset(
            name
            for name, intake in self.intakes.items()
            if not intake.strict
            and any((seen.max_event_time or intake.latest) > intake.latest for seen in self._observe(intake.node).values())
        )

    def _read_input(self) -> None:
        """Make the passes that read the sources: each is tallied by the first of them."""
        self._stage_expected()
        for node in self.topology.windows:
            if self._settled(node.inputs[0]) and self.rows.available(node.inputs[0]):
                self._absorb(node)
        self._stage_outputs()
        # What only waits in a union for a window's results would be counted too late.
        unread = [source for source in self.topology.sources if source.name in self.plan.batches and source.name not in self.rows.ends]
        self._count(unread)
        self._count(self._undriven())

    def _count(self, emitters: Iterable[Node]) -> None:
        """Tally the rows of sources and filters that no pass has read yet."""
        for emitter in emitters:
            gate = self.topology.gate(emitter)
            empty = gate is not None and self.balance.side_rows(gate) == 0
            if self.rows.available(emitter) and self._settled(emitter) and id(emitter) not in self.rows.tallies and not empty:
                self._count_rows(self.rows.rows(emitter))

    def _count_rows(self, rows: DataFrame) -> None:
        """Make a pass over rows that only tallies them."""
        with self._stage("count"):
            rows.write.format("noop").mode("overwrite").save()

    def _undriven(self) -> list[Node]:
        """Return sources and filters that nothing reads in every epoch, though someone wants to know what they put aside."""
        wanted = [output.node for output in self.topology.outputs.values() if self.topology.gate(output.node) is None]
        driven = {id(found) for node in (*wanted, *self.topology.windows) for found in walk([node])}
        emitters: dict[int, Node] = {}
        for node in self.topology.nodes:
            emitter = node.inputs[0] if isinstance(node, SideOutputNode) else None
            if emitter is not None and not isinstance(emitter, WindowNode) and id(emitter) not in driven:
                emitters[id(emitter)] = emitter
        return list(emitters.values())

    def _absorb(self, node: WindowNode) -> None:
        with self._stage(f"absorb {self.topology.name(node)}"):
            run = self.operators[id(node)]
            found = self.rows.with_dead(node.inputs[0]) if run.step.plain else None
            rows, tally = found or (self.rows.rows(node.inputs[0]), None)
            self._absorbing.add(id(node))
            run.absorb(rows, tally)
            self._judged(node)

    def _judged(self, node: WindowNode) -> None:
        """Take over what became of a window's input, as soon as it is known."""
        absorbed = self.operators[id(node)].absorbed
        if absorbed is not None:
            self.balance.absorbed[id(node)] = absorbed

    def _run_window(self, node: WindowNode) -> None:
        run = self.operators[id(node)]
        if id(node) not in self._absorbing and self.rows.available(node.inputs[0]):
            self._absorb(node)
        inputs = [self.sources[source.name] for source in self.topology.upstream_sources(node)]
        observation = Observation()
        event_time = operator_watermark(run.setting.before.watermark, inputs)
        with self._stage(f"fire {self.topology.name(node)}"):
            results = run.fire(run.watermark_of(event_time), observation)
        self._judged(node)
        self._fired_or_not.add(id(node))
        if results is not None and self.topology.consumers.get(id(node)):
            self.rows.set_results(node, results)
            with self._stage(f"fire {self.topology.name(node)}"):
                self._use_results(node)
                self.balance.fired[id(node)] = run.fired(observation)
        else:
            self._stage_outputs()
        upkeep = run.upkeep()
        if upkeep is not None:
            self._beside.begin(partial(self._keep_up, upkeep))

    def _keep_up(self, upkeep: Callable[[], None]) -> None:
        with self._stage("upkeep"):
            upkeep()

    def _use_results(self, node: WindowNode) -> None:
        """Write what follows a window's results; a window that follows them absorbs them now, so that the pass has run."""
        before = set(self._staged)
        self._stage_outputs()
        readers = [self.topology.outputs[name].node for name in self._staged - before]
        for other in self.topology.windows:
            follows = any(found is node for found in result_windows(other.inputs[0]))
            if follows and self._settled(other.inputs[0]) and id(other) not in self._absorbing:
                self._absorb(other)
                readers.append(other.inputs[0])
        # What waits for another window's results as well has not read these yet.
        if not any(found is node for reader in readers for found in result_windows(reader)):
            self.rows.rows(node).write.format("noop").mode("overwrite").save()

    def _settled(self, node: Node) -> bool:
        """Whether all windows whose results become rows of a node have had their turn in this epoch; late ones, if that tells them."""
        windows = (*result_windows(node), *(late for late in late_windows(node) if self.operators[id(late)].step.judges_when_it_fires))
        return all(id(window) in self._fired_or_not for window in windows)

    def _stage_outputs(self) -> None:
        """Stage the outputs that have rows in every epoch, as far as these rows are there."""
        for name, output in self.topology.outputs.items():
            if self.topology.gate(output.node) is None and self._ready(name, output.node):
                self._stage_rows(name, self._rows_of(name, output.node))

    def _stage_side_outputs(self) -> None:
        """Stage late, rejected and malformed rows where there are any, beside what goes on."""
        for name, output in self.topology.outputs.items():
            gate = self.topology.gate(output.node)
            if gate is not None and self._ready(name, output.node) and self.balance.side_rows(gate):
                self._beside.begin(partial(self._stage_rows, name, self._rows_of(name, output.node)))

    def _stage_expected(self) -> None:
        """Stage side outputs that had rows in the epoch before, before it is known whether they have some: beside the pass that tells.

        Only what that pass does not keep for them: they would read the input again anyway.
        """
        for name, output in self.topology.outputs.items():
            gate = self.topology.gate(output.node)
            if gate is not None and name in self._machinery.expected and self._told_by_input(gate) and self._ready(name, output.node):
                self.early[name] = gate
                self._beside.begin(partial(self._stage_rows, name, self._rows_of(name, output.node)))

    def _told_by_input(self, gate: SideOutputNode) -> bool:
        """Whether a side output's rows follow from the input and the state before the epoch, and are looked up in sources' files."""
        emitter = gate.inputs[0]
        if not isinstance(emitter, WindowNode):
            return self.rows.reads_input_alone(emitter)
        return not self.operators[id(emitter)].step.judges_when_it_fires and self.rows.reads_input_alone(emitter.inputs[0])

    def _settle_early(self) -> None:
        """Let go of what was staged though nothing was there, and remember which side outputs had rows."""
        for name, gate in self.early.items():
            # Rows that no count knows of stay for the balance to find.
            if not self.balance.side_rows(gate) and not self.outputs[name].rows:
                self._staged.discard(name)
                del self.outputs[name]
        self._machinery.expected.clear()
        self._machinery.expected.update(name for name in self._staged if self.topology.gate(self.topology.outputs[name].node) is not None)

    def _gates_passed_by(self) -> list[SideOutputNode]:
        """Return the side outputs of which nothing was staged, since their count said that they have no rows."""
        gates = (self.topology.gate(output.node) for name, output in self.topology.outputs.items() if name not in self._staged)
        return [gate for gate in gates if gate is not None]

    def _ready(self, name: str, node: Node) -> bool:
        return name not in self._staged and self._settled(node) and self.rows.available(node)

    def _rows_of(self, name: str, node: Node) -> DataFrame:
        self._staged.add(name)
        return self.rows.rows(node)

    def _stage_rows(self, name: str, rows: DataFrame) -> None:
        with self._stage(f"output {name}"):
            self.outputs[name] = self._machinery.sinks[name].stage(rows, self.plan.lineage, self.plan.epoch)
        crash_point("output-staged")

    def _advance_sources(self) -> None:
        for source in self.topology.sources:
            before = self.plan.before.sources.get(source.name, SourceState())
            end = self.plan.ends.get(source.name, SourceEnd())
            after = advance(
                source.watermarks,
                before,
                end.tell(self._observe(source), before),
                processing_time=self.plan.processing_time,
                caught_up=end.caught_up,
                looked_at=end.looked_at,
            )
            self.sources[source.name] = end_of_input(after) if self.plan.end_of_input else after

    def _observe(self, source: SourceNode) -> Mapping[str, SplitObservation]:
        """Return what the epoch showed of a source's splits; looked up once, for it may take a Spark job."""
        if source.name not in self.observed:
            self.observed[source.name] = self._look_at_splits(source)
        return self.observed[source.name]

    def _look_at_splits(self, source: SourceNode) -> dict[str, SplitObservation]:
        end = self.rows.ends.get(source.name)
        if end is None:
            return {}
        tally = self.rows.tallies[id(end)]
        figures = tally.figures()
        if figures.unknown_splits or tally.by_group:
            return observe_splits(self.intakes[source.name].rows, source)
        return {name: seen for name, seen in figures.splits.items() if seen.rows}
