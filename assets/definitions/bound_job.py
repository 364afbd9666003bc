"""Binds an asset to its job and output, through all transformations that Dagster makes to its spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import dagster as dg

from tidemark.assets.checks.check import OutputCheck
from tidemark.assets.streams.job_streams import StreamData, output_streams, source_streams
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.errors import DefinitionError
from tidemark.graph import Job

JOB_KEY = "tidemark/job"
OUTPUT_KEY = "tidemark/output"


class JobLabel(str):
    """A job's name that carries the job, its translator and its checks.

    Specs are copied when definitions are merged or mapped, and their metadata is copied unchanged; so a metadata value is the one place
    from which a running asset finds its job.
    """

    __slots__ = ("checks", "job", "translator")

    job: Job
    translator: TidemarkTranslator
    checks: tuple[OutputCheck, ...]

    def __new__(cls, job: Job, translator: TidemarkTranslator, checks: tuple[OutputCheck, ...]) -> Self:
        """Return the job's name with its job, translator and checks."""
        label = super().__new__(cls, job.name)
        label.job = job
        label.translator = translator
        label.checks = checks
        return label


@dataclass(frozen=True)
class BoundJob:
    """The job of a set of assets, with the asset keys of its streams in the code location and their time partitions."""

    job: Job
    translator: TidemarkTranslator
    checks: tuple[OutputCheck, ...]
    keys: Mapping[str, dg.AssetKey]
    partitions: Mapping[str, dg.TimeWindowPartitionsDefinition] = field(default_factory=dict)

    @property
    def streams(self) -> tuple[StreamData, ...]:
        """The job's outputs."""
        return output_streams(self.job)

    @property
    def upstream(self) -> dict[str, dg.AssetKey]:
        """Asset keys of the job's sources by name."""
        return {stream.name: self.translator.get_asset_spec(stream).key for stream in source_streams(self.job)}


def bind(spec: dg.AssetSpec, stream: StreamData, translator: TidemarkTranslator, checks: tuple[OutputCheck, ...] = ()) -> dg.AssetSpec:
    """Return the spec with the metadata from which a running asset finds its job, its output and its checks."""
    return spec.merge_attributes(metadata={JOB_KEY: JobLabel(stream.job, translator, checks), OUTPUT_KEY: stream.name})


def bound_job(specs: Iterable[dg.AssetSpec]) -> BoundJob:
    """Return the job of a set of assets.

    Raises:
        DefinitionError: the assets were not made by ``streaming_assets``, or their metadata was removed.
    """
    found = {str(spec.metadata[OUTPUT_KEY]): spec for spec in specs if isinstance(spec.metadata.get(JOB_KEY), JobLabel)}
    if not found:
        raise DefinitionError(
            "these assets have no streaming job",
            fix="declare them with @streaming_assets(job=...) and keep the metadata 'tidemark/job' and 'tidemark/output'",
        )
    label = next(iter(found.values())).metadata[JOB_KEY]
    keys = {name: spec.key for name, spec in found.items()}
    partitions = {name: each for name, spec in found.items() if isinstance(each := spec.partitions_def, dg.TimeWindowPartitionsDefinition)}
    return BoundJob(job=label.job, translator=label.translator, checks=label.checks, keys=keys, partitions=partitions)
