"""The context that all epochs of a run share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from tidemark.clock import Clock
from tidemark.graph.checks.node_expressions import node_expressions
from tidemark.graph.expressions.determinism import names_the_time
from tidemark.graph.operators.registry import stored_state
from tidemark.spark.columns.few_rows import runs_python
from tidemark.spark.epoch.background_jobs import run_at_once, thread_pool
from tidemark.spark.epoch.epoch_plan import EpochPlan
from tidemark.spark.epoch.first_epochs import FirstEpochs
from tidemark.spark.epoch.schedule import EpochSchedule, build_schedule
from tidemark.spark.epoch.topology import Topology
from tidemark.spark.operators.base.contract import OperatorContext, OperatorRuntime
from tidemark.spark.prepared.prepared_pass import PreparedPasses
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.state.log.epoch_intent import TableVersion
from tidemark.state.log.records import OperatorState
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

PortTypes = Callable[[], Mapping[str, Mapping[str, "StructType"]]]


@dataclass(frozen=True)
class RuntimeContext:
    """The context that all epochs of a run share.

    ``store`` is the job's folder; ``runtimes`` are by ``id(node)``, ``definitions`` by uid as they are recorded, ``sinks`` by output name.
    ``nondeterministic`` says which nodes could return other rows when read again; filled in as epochs need it. ``expected`` are the side
    outputs that had rows in the epoch before. ``pool`` are the threads for background work.
    ``first_epochs`` says which epochs interpret their expressions.
    ``port_types`` returns the columns of each operator's inputs, by its name and port, the engine's own among them.
    """

    store: JobStore
    topology: Topology
    runtimes: Mapping[int, OperatorRuntime]
    definitions: Mapping[str, Mapping[str, object]]
    sinks: Mapping[str, BoundSink]
    clock: Clock
    nondeterministic: dict[int, bool] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    pool: ThreadPoolExecutor = field(default_factory=thread_pool)
    first_epochs: FirstEpochs = field(default_factory=FirstEpochs)
    port_types: PortTypes = dict

    @cached_property
    def native(self) -> bool:
        """Whether no function of the user's runs in Python workers, so that few rows are processed in one task."""
        return not runs_python(self.topology.nodes)

    @cached_property
    def prepared(self) -> PreparedPasses:
        """The passes whose plans are kept; none where texts are read as the day on which a plan is made."""
        texts = (text for node in self.topology.nodes for _, text in node_expressions(node))
        found = next(filter(None, map(names_the_time, texts)), None)
        return PreparedPasses(None if found is None else f"{found!r} may be another day in each epoch")

    @cached_property
    def schedule(self) -> EpochSchedule:
        """The passes that each epoch makes."""
        return build_schedule(self.topology)

    def of_operator(self, uid: str, spark: SparkSession, plan: EpochPlan) -> OperatorContext:
        """Return the context of an operator in an epoch.

        Args:
            uid: its name.
            spark: the session that the batches belong to.
            plan: of the epoch.
        """
        definition, before = self.definitions[uid], plan.before.operators.get(uid)
        if before is None or (before.definition.get("kind") != definition.get("kind") and not stored_state(before.definition)):
            # What a kind without state left, such as a copy of a table, is nothing to another kind that has its uid now.
            before = OperatorState(definition)
        return OperatorContext(
            spark=spark,
            store=self.store,
            uid=uid,
            before=before,
            definition=definition,
            epoch=plan.epoch,
            processing_time=plan.processing_time,
            ends=plan.end_of_input,
            native=self.native,
            prepared=self.prepared,
            table=plan.tables.get(uid),
            port_types=lambda: self.port_types().get(uid, {}),
            at_once=partial(run_at_once, self.pool, spark),
        )

    def plan_tables(self, spark: SparkSession, plan: EpochPlan) -> dict[str, TableVersion]:
        """Return the versions of the tables that operators read in an epoch, by the operators' names.

        Args:
            spark: the session.
            plan: of the epoch, without its tables.

        Raises:
            SourceError: a table cannot be read.
        """
        uids = {node: self.topology.name(node) for node in self.topology.operators}
        found = {uid: self.runtimes[id(node)].plan_table(self.of_operator(uid, spark, plan)) for node, uid in uids.items()}
        return {uid: table for uid, table in found.items() if table is not None}

    def close(self) -> None:
        """Stop the threads, and release what operators keep in memory."""
        self.pool.shutdown()
        for runtime in self.runtimes.values():
            runtime.close()
