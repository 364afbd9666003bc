"""Runs Spark's analysis of a job over input without rows: the columns and types at each stateful operator and output."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.graph.checks.output_columns import added_columns
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import SourceNode, StatefulNode, UnionNode
from tidemark.graph.model.source_specs import ElementsSpec, FilesSpec, RateSpec
from tidemark.spark.columns.aggregate_functions import register_functions
from tidemark.spark.columns.expressions import CORRUPT, visible_of
from tidemark.spark.columns.schemas import no_rows, nullable, struct_of
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.epoch.topology import build_topology
from tidemark.spark.operators.base.contract import OperatorRuntime
from tidemark.spark.operators.base.schemas import OperatorSchemas
from tidemark.spark.operators.registry.schemas import schemas_of
from tidemark.spark.sources.intake import BLOCK, PATH, ROW, SourceRows, prepare_batch
from tidemark.spark.sources.kafka.decoding import decoded_schema
from tidemark.spark.sources.sources import MARKS_CORRUPT, open_source
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tidemark")


@dataclass(frozen=True)
class InputSchema:
    """The inputs of one stateful operator, by port: no rows, but the columns that they would have, the engine's among them."""

    node: StatefulNode
    rows: Mapping[str, DataFrame]

    @property
    def schemas(self) -> OperatorSchemas:
        """The columns of its state and results."""
        return schemas_of(self.node, self.rows)

    @property
    def columns(self) -> T.StructType:
        """The columns of its state: keys, and partials or elements; all nullable."""
        return self.schemas.state()

    @property
    def types(self) -> dict[str, object]:
        """The same as Spark's JSON of each type."""
        return {field.name: field.dataType.jsonValue() for field in self.columns}


@dataclass(frozen=True)
class JobSchemas:
    """The schemas at each stateful operator, by uid, and output, by name; outputs whose code fails without rows are left out."""

    inputs: Mapping[str, InputSchema]
    outputs: Mapping[str, T.StructType]


def probe_inputs(spark: SparkSession, job: Job, elements: JobStore) -> Mapping[str, InputSchema]:
    """Return the input of each stateful operator of a job, by uid, as ``probe_job`` does."""
    return probe_job(spark, job, elements).inputs


def port_types(spark: SparkSession, job: Job, elements: JobStore) -> dict[str, dict[str, T.StructType]]:
    """Return the columns of each stateful operator's inputs, by its name and port, as ``probe_job`` does."""
    found = probe_job(spark, job, elements).inputs
    return {name: {port: rows.schema for port, rows in given.rows.items()} for name, given in found.items()}


def prepare_session(
    spark: SparkSession, job: Job, elements: JobStore, runtimes: Mapping[int, OperatorRuntime] = MappingProxyType({})
) -> None:
    """Register a job's Python functions with a session, and check unions whose columns only Spark knows.

    An epoch checks only those of a union's streams that have rows in it.

    Args:
        spark: as of ``probe_job``.
        job: as of ``probe_job``.
        elements: as of ``probe_job``.
        runtimes: of the job's operators, by ``id(node)``; those that lack types of their inputs get them.

    Raises:
        UserCodeError: the streams of a union differ in columns or types.
    """
    topology = build_topology(job.outputs)
    register_functions(spark, topology.operators)
    untyped = {topology.name(node) for node in topology.nodes if isinstance(node, UnionNode) and not _is_sure(node)}
    lacking = {topology.name(node): found for node in topology.operators if (found := runtimes.get(id(node))) and found.lacks_types}
    if not untyped and not lacking:
        return
    try:
        inputs = probe_job(spark, job, elements).inputs
    except (TidemarkError, PySparkException) as error:
        if isinstance(error, UserCodeError) and error.uid in untyped:
            raise
        # The first epoch raises this error as its own.
        logger.info("unions are not checked, since the job's code fails without rows: %s", error)
    else:
        for name, runtime in lacking.items():
            runtime.set_types(inputs[name].rows)


def _is_sure(node: UnionNode) -> bool:
    schemas = [schema_of(child) for child in node.inputs]
    return all(schema is not None and all(column.type for column in schema.columns) for schema in schemas)


def probe_job(spark: SparkSession, job: Job, elements: JobStore) -> JobSchemas:
    """Return the columns that a job has at its stateful operators and outputs. Makes plans and runs none.

    Args:
        spark: the session that the job is to run in.
        job: the job; its transforms are called with frames without rows, as they are in every epoch.
        elements: the store of elements given in the program; nothing is written there.

    Raises:
        TidemarkError: a source cannot be opened, or the user's code fails, as they would in an epoch.
        PySparkException: an expression does not fit its columns.
    """
    topology = build_topology(job.outputs)
    register_functions(spark, topology.operators)
    intakes = {}
    for source in topology.sources:
        ordered = id(source) in topology.ordered
        batch = SourceRows(partial(_without_rows, spark, source, elements, ordered=ordered))
        intakes[source.name] = prepare_batch(source, batch, 0, ordered=ordered, strict=False)
    found: dict[str, InputSchema] = {}

    def no_side_rows(node: StatefulNode, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        own = found[topology.name(node)].schemas.side_output(counter)
        return no_rows(spark, own) if own is not None else next(iter(inputs.values())).where("false")

    rows = StatelessPlan(topology, intakes, {}, no_side_rows, {}, run=lambda _: None)
    try:
        for node in topology.operators:
            given = {port.name: no_rows(spark, rows.rows(port.node).schema) for port in node.ports}
            found[topology.name(node)] = InputSchema(node, given)
            results = no_rows(spark, found[topology.name(node)].schemas.results())
            rows.set_results(node, partial(_same, results))
            rows.set_side_outputs(node, (*node.side_tags, *node.emitted_tags))
        return JobSchemas(found, _outputs(job, rows))
    finally:
        rows.release()


def _same(rows: DataFrame) -> DataFrame:
    return rows


def _outputs(job: Job, rows: StatelessPlan) -> dict[str, T.StructType]:
    """Return the columns of outputs, as they are staged."""
    found = {}
    for name, output in job.outputs.items():
        # An epoch raises this error as its own.
        with suppress(TidemarkError, PySparkException):
            columns = rows.rows(output.node).schema
            visible = set(visible_of(columns.names))
            added = [struct_of(f"{column.name} {column.type}")[0] for column in added_columns(output.node, output.sink)]
            found[name] = nullable(T.StructType([*(field for field in columns if field.name in visible), *added]))
    return found


def _without_rows(spark: SparkSession, node: SourceNode, elements: JobStore, *, ordered: bool) -> DataFrame:
    """Return a batch of a source as ``open_source`` and ``read_files_of_epoch`` return it, without rows."""
    match node.spec:
        case ElementsSpec(schema=ddl):
            schema = struct_of(ddl).add(ROW, "long")
        case FilesSpec(format=kind, schema=ddl):
            schema = struct_of(ddl)
            if kind in MARKS_CORRUPT:
                schema = schema.add(CORRUPT, "string")
            if ordered:
                schema = schema.add(PATH, "string").add(BLOCK, "long")
        case RateSpec():
            schema = T.StructType().add("timestamp", "timestamp").add("value", "long")
        case _:
            schema = decoded_schema(open_source(spark, node, elements, ordered=ordered, read=0).schema, node)
    return no_rows(spark, schema)
