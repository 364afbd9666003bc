"""A job over input without rows: which columns and types come to each window operator and output, as Spark tells them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from tidemark.errors import TidemarkError, UserCodeError
from tidemark.graph.checks.propagation import schema_of
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import ElementsSpec, FilesSpec, RateSpec, SourceNode, UnionNode, WindowNode
from tidemark.graph.windows.native_windows import is_native
from tidemark.semantics.windows.assigners import DynamicSession
from tidemark.spark.columns.aggregate_functions import register_functions
from tidemark.spark.columns.expressions import CORRUPT, POSITION, TIME, struct_of, visible_of
from tidemark.spark.columns.replaced_sessions import REPLACED_TYPE
from tidemark.spark.epoch.rows import EpochRows
from tidemark.spark.epoch.topology import build_topology
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.process.layout import layout_of_rows
from tidemark.spark.sinks.sinks import nullable
from tidemark.spark.sources.intake import BLOCK, PATH, ROW, take_in
from tidemark.spark.sources.sources import MARKS_CORRUPT, open_source
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tidemark")

_POSITION = T.StructType().add("origin", "string").add("block", "long").add("row", "long")


@dataclass(frozen=True)
class EmptyInput:
    """The input of one window operator: no rows, but the columns that they would have, the engine's among them."""

    node: WindowNode
    rows: DataFrame

    @property
    def columns(self) -> T.StructType:
        """What its state has of keys, and of partials or elements, every one nullable."""
        partials = Partials(self.node)
        if is_native(self.node):
            made = self.rows.groupBy(*partials.key_columns).agg(*partials.creations).schema
            return nullable(made)
        names = {name: column for (name, _), column in zip(self.node.keys, partials.keys, strict=True)}
        key_types = self.rows.select(*partials.key_columns).schema
        gaps = isinstance(self.node.assigner, DynamicSession)
        layout = layout_of_rows(self.node, names, self.rows.schema, key_types, has_gap=gaps)
        return T.StructType([layout.fields[name] for name in (*layout.keys.values(), *layout.elements.values())])

    @property
    def types(self) -> dict[str, object]:
        """The same as Spark's JSON of each type."""
        return {field.name: field.dataType.jsonValue() for field in self.columns}

    def neutral(self) -> DataFrame:
        """Return one row with the partials of no elements at all: merged with others, these stay as they are."""
        return self.rows.agg(*Partials(self.node).creations)


@dataclass(frozen=True)
class EmptyJob:
    """What comes to each window operator, by uid, and to each output, by name; outputs whose code fails without rows are left out."""

    inputs: Mapping[str, EmptyInput]
    outputs: Mapping[str, T.StructType]


def empty_inputs(spark: SparkSession, job: Job, elements: JobStore) -> Mapping[str, EmptyInput]:
    """Return the input of each window operator of a job, by uid, as ``empty_job`` does."""
    return empty_job(spark, job, elements).inputs


def make_ready(spark: SparkSession, job: Job, elements: JobStore) -> None:
    """Make a job's Python functions known to a session, and look at unions whose columns only Spark knows.

    An epoch sees only those of a union's streams that have rows in it.

    Args:
        spark: as of ``empty_job``.
        job: as of ``empty_job``.
        elements: as of ``empty_job``.

    Raises:
        UserCodeError: streams of a union have other columns, or of other types.
    """
    topology = build_topology(job.outputs)
    register_functions(spark, topology.windows)
    unsure = {topology.name(node) for node in topology.nodes if isinstance(node, UnionNode) and not _is_sure(node)}
    if not unsure:
        return
    try:
        empty_job(spark, job, elements)
    except (TidemarkError, PySparkException) as error:
        if isinstance(error, UserCodeError) and error.uid in unsure:
            raise
        # What is wrong with the job's code shows in the first epoch, as an error of that epoch.
        logger.info("unions are not looked at, since the job's code fails without rows: %s", error)


def _is_sure(node: UnionNode) -> bool:
    schemas = [schema_of(child) for child in node.inputs]
    return all(schema is not None and all(column.type for column in schema.columns) for schema in schemas)


def empty_job(spark: SparkSession, job: Job, elements: JobStore) -> EmptyJob:
    """Return the columns that a job has at its window operators and outputs. Plans are made and none is run.

    Args:
        spark: the session that the job is to run in.
        job: the job; its transforms are called with frames without rows, as they are in every epoch.
        elements: where elements given in the program would be kept; nothing is written there.

    Raises:
        TidemarkError: a source cannot be opened, or the user's code fails, as it would in an epoch.
        PySparkException: an expression does not fit its columns.
    """
    topology = build_topology(job.outputs)
    register_functions(spark, topology.windows)
    intakes = {}
    for source in topology.sources:
        ordered = id(source) in topology.ordered
        batch = _without_rows(spark, source, elements, ordered=ordered)
        intakes[source.name] = take_in(source, batch, 0, ordered=ordered, strict=False)
    rows = EpochRows(topology, intakes, {}, lambda _, frame: frame.where("false"), {})
    found = {}
    try:
        for node in topology.windows:
            given = rows.rows(node.input)
            schema = given.schema
            found[topology.name(node)] = EmptyInput(node, spark.createDataFrame([], schema))
            rows.set_results(node, spark.createDataFrame([], _results(node, found[topology.name(node)].rows)))
        return EmptyJob(found, _outputs(job, rows))
    finally:
        rows.release()


def _outputs(job: Job, rows: EpochRows) -> dict[str, T.StructType]:
    """Return the columns of outputs, as they are staged."""
    found = {}
    for name, output in job.outputs.items():
        # What fails here fails in an epoch, as an error of that epoch.
        with suppress(TidemarkError, PySparkException):
            columns = rows.rows(output.node).schema
            visible = set(visible_of(columns.names))
            found[name] = nullable(T.StructType([field for field in columns if field.name in visible]))
    return found


def _without_rows(spark: SparkSession, node: SourceNode, elements: JobStore, *, ordered: bool) -> DataFrame:
    """Return a batch of a source as ``open_source`` and ``read_files_of_epoch`` give it, without rows."""
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
            schema = open_source(spark, node, elements, ordered=ordered, read=0).schema
    return spark.createDataFrame([], schema)


def _results(node: WindowNode, rows: DataFrame) -> T.StructType:
    """Return the columns of a window operator's results, the engine's among them."""
    partials = Partials(node)
    keyed = rows.select(*partials.key_columns).selectExpr(*partials.key_results).schema if node.keys else T.StructType()
    if node.function is not None:
        made = struct_of(node.function.returns)
    else:
        groups = rows.groupBy(*partials.key_columns).agg(*partials.creations).schema
        # As state is read from files: what merges some partials fails where they cannot be null.
        stored = rows.sparkSession.createDataFrame([], nullable(groups))
        made = partials.grouped(stored).selectExpr(*partials.results).schema
    bounds = T.StructType().add("window_start", "timestamp").add("window_end", "timestamp")
    pane = T.StructType().add("pane_timing", "string").add("pane_index", "integer")
    if node.assigner.merging:
        pane = pane.add("replaces", REPLACED_TYPE)
    return T.StructType([*keyed, *bounds, *made, *pane]).add(TIME, "long").add(POSITION, _POSITION)
