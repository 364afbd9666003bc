"""A job as data: what ``tidemark graph JOB --json`` prints, and how it is read back without the job's code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from tidemark.errors import DescriptionError
from tidemark.graph.api.sinks import guarantee
from tidemark.graph.checks.column_lineage import lineage
from tidemark.graph.checks.descriptions import describe_node, describe_sink, describe_timing
from tidemark.graph.checks.output_columns import output_schema
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.job.code_version import code_version
from tidemark.graph.job.described_job import DescribedJob
from tidemark.graph.job.graph_codec import decode_graph, encode_graph
from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import Output, StatefulNode
from tidemark.graph.model.schema import Schema

FORMAT: Final = 1
_SETTINGS: Final = ("name", "store", "parallelism", "retained_epochs", "description", "owners", "tags", "functions")


def describe_job(job: Job, code: str) -> dict[str, object]:
    """Return a job as plain JSON: for readers its sources, operators and outputs, and the whole graph, to be read back.

    Args:
        job: the job.
        code: where it is, ``MODULE:JOB``.
    """
    settings = {name: getattr(job, name) for name in _SETTINGS}
    return {
        "format": FORMAT,
        "code": code,
        "version": code_version(job),
        "job": {**settings, "owners": list(job.owners), "tags": dict(job.tags), "functions": list(job.functions)},
        "sources": {
            name: {"reads": describe_node(source), "time": describe_timing(source), "columns": _columns(schema_of(source))}
            for name, source in job.sources.items()
        },
        "operators": list(_operators(job)),
        "outputs": {name: _output(output) for name, output in job.outputs.items()},
        "graph": encode_graph(job.nodes, job.outputs),
    }


def described_job(description: object) -> DescribedJob:
    """Return the job of a description that ``describe_job`` made.

    Raises:
        DescriptionError: it is none, or one of another release.
    """
    if not isinstance(description, Mapping) or description.get("format") != FORMAT:
        raise DescriptionError("this is no description of a job that this release can read", fix=_FIX)
    try:
        given = cast("Mapping[str, Any]", description)
        settings = {name: given["job"][name] for name in _SETTINGS}
        settings |= {"owners": tuple(settings["owners"]), "functions": tuple(settings["functions"])}
        settings["tags"] = MappingProxyType(dict(settings["tags"]))
        return DescribedJob(str(given["code"]), str(given["version"]), settings, decode_graph(given["graph"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DescriptionError(f"the description of the job is damaged, or of another release: {error!r}", fix=_FIX) from error


_FIX: Final = "describe the job again: `tidemark graph MODULE:JOB --json`; in a project of Dagster's `dg utils refresh-defs-state`"


def _operators(job: Job) -> Iterator[dict[str, object]]:
    for node in job.nodes:
        if isinstance(node, StatefulNode):
            yield {"uid": node.uid, "kind": node.KIND, "does": describe_node(node), "columns": _columns(schema_of(node))}


def _output(output: Output) -> dict[str, object]:
    schema = output_schema(output)
    return {
        "sink": describe_sink(output.sink),
        "guarantee": guarantee(output.sink),
        "columns": _columns(schema),
        "lineage": {
            column.name: [list(origin) for origin in sorted(lineage(output.node, column.name))]
            for column in (schema.columns if schema is not None else ())
        },
    }


def _columns(schema: Schema | None) -> dict[str, str | None] | None:
    """Return the columns with their types; None where only the running source knows them."""
    return None if schema is None else {column.name: column.type for column in schema.columns}
