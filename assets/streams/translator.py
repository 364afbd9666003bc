"""Translates a job's streams to Dagster assets; one method to override."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import dagster as dg

from tidemark.assets.streams.job_streams import StreamData, source_streams, sources_of
from tidemark.assets.streams.spec_metadata import source_metadata, stream_metadata
from tidemark.assets.streams.stream_descriptions import describe_output
from tidemark.graph import (
    ConnectorSpec,
    ConsoleSpec,
    DeltaSpec,
    DeltaTableSpec,
    ElementsSpec,
    FilesSpec,
    FormatSpec,
    Job,
    MemorySpec,
    ParquetSpec,
    PostgresChangesSpec,
    RateSpec,
    SinkSpec,
    code_version,
)

_SINK_KINDS = {DeltaSpec: "delta", ParquetSpec: "parquet", ConsoleSpec: "console", MemorySpec: "memory"}


class TidemarkTranslator:
    """Translates streams to asset specs.

    Override ``get_asset_spec`` and change the result of ``super()``::

        class Ours(TidemarkTranslator):
            def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
                return super().get_asset_spec(data).replace_attributes(key=["lake", data.name], owners=["team:data"])
    """

    def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
        """Return the asset of one stream.

        Called once per source and output when definitions load, and for the sources again to find the outputs'
        upstream assets. It must depend on ``data`` only. The decorator then adds its own metadata
        (``tidemark/job``, ``tidemark/output``).
        """
        return _source_spec(data) if data.source is not None else self._output_spec(data)

    def _output_spec(self, data: StreamData) -> dg.AssetSpec:
        if data.output is None:
            raise TypeError("a stream that is not a source has an output")
        job = data.job
        upstream = {source.name: self.get_asset_spec(_source_data(data, source.name)).key for source in sources_of(data.output.node)}
        return dg.AssetSpec(
            key=dg.AssetKey([job.name, data.name]),
            deps=list(upstream.values()),
            description=describe_output(data),
            metadata=stream_metadata(data, upstream),
            skippable=True,
            group_name=group_of(job.name),
            code_version=code_version(job),
            owners=_owners(job),
            tags=_tags(job),
            kinds={"tidemark", "spark", _sink_kind(data.output.sink)},
        )


def describe_source(job: str, name: str) -> str:
    """Return the description of a source that one job reads."""
    return f"Source `{name}` of the streaming job `{job}`; it is written outside Dagster."


def _sink_kind(sink: SinkSpec) -> str:
    return sink.kind if isinstance(sink, ConnectorSpec) else _SINK_KINDS[type(sink)]


def group_of(job: str) -> str:
    """Return a job's name with the characters that Dagster allows in the names of groups and ops."""
    return re.sub(r"[^A-Za-z0-9_]", "_", job)


def _owners(job: Job) -> list[str]:
    return [owner for owner in job.owners if _accepts(owners=[owner])]


def _tags(job: Job) -> dict[str, str]:
    return {key: value for key, value in job.tags.items() if _accepts(tags={key: value})}


def _accepts(*, owners: Sequence[str] = (), tags: Mapping[str, str] | None = None) -> bool:
    """Return whether Dagster accepts owners and tags: its rules are narrower than a job's, and it would reject the whole asset."""
    try:
        dg.AssetSpec("any", owners=owners, tags=tags)
    except dg.DagsterInvalidDefinitionError:
        return False
    return True


def _source_data(data: StreamData, name: str) -> StreamData:
    return next(stream for stream in source_streams(data.job) if stream.name == name)


def _source_spec(data: StreamData) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=dg.AssetKey([data.name]),
        description=describe_source(data.job.name, data.name),
        metadata=source_metadata(data),
        group_name=group_of(data.job.name),
        owners=_owners(data.job),
        tags=_tags(data.job),
        kinds={_source_kind(data)},
    )


def _source_kind(data: StreamData) -> str:
    match data.source.spec if data.source is not None else None:
        case FilesSpec(format=format):
            return format
        case FormatSpec(format=format):
            return format.lower()
        case DeltaTableSpec():
            return "delta"
        case PostgresChangesSpec():
            return "postgresql"
        case RateSpec():
            return "spark"
        case ElementsSpec() | None:
            return "python"
