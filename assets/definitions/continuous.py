"""The outputs of submitted jobs as external assets: Dagster shows, observes and checks them, and does not materialize them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import dagster as dg

from tidemark.assets.checks.check import OutputCheck
from tidemark.assets.definitions.bound_job import bind
from tidemark.assets.report.complete_partitions import has_times
from tidemark.assets.streams.job_streams import StreamData, output_streams
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.errors import DefinitionError
from tidemark.graph import Job

Partitions = dg.TimeWindowPartitionsDefinition | Mapping[str, dg.TimeWindowPartitionsDefinition] | None
"""Time partitions of a job's outputs: of all main ones, or by output name."""


_LIFECYCLE: Final = (
    "Written by a continuous job: its driver is a process outside Dagster, which runs until it is stopped. "
    "Whether it runs now is in the check `job_runs`."
)


def build_output_asset_specs(
    job: Job,
    *,
    partitions: Partitions = None,
    translator: TidemarkTranslator | None = None,
    group_name: str | None = None,
    checks: Sequence[OutputCheck] = (),
) -> list[dg.AssetSpec]:
    """Return one asset spec per output of a job that runs outside Dagster, with the same keys as ``streaming_assets``.

    ``build_progress_sensor`` reports the outputs' progress::

        specs = build_output_asset_specs(job, partitions=dg.HourlyPartitionsDefinition("2026-01-01-00:00"))
        defs = dg.Definitions(assets=[*build_source_asset_specs(job), *specs], sensors=[build_progress_sensor(specs)])

    Args:
        job: the job.
        partitions: time partitions, by event time: a window belongs to the partition that it starts in. One definition applies to all
            main outputs; a mapping names outputs.
        translator: turns streams into asset specs.
        group_name: group of all assets; the translator's by default (the job's name).
        checks: the checks passed to ``build_asset_checks`` for this job, so that they can be found from the specs.

    Raises:
        DefinitionError: the job has no such output, or its rows have no event time.
    """
    chosen = translator or TidemarkTranslator()
    streams = output_streams(job)
    definitions = _by_output(job, streams, partitions)
    specs = []
    for stream in streams:
        spec = bind(chosen.get_asset_spec(stream), stream, chosen, tuple(checks))
        spec = spec.replace_attributes(description=f"{spec.description or ''}\n\n{_LIFECYCLE}".strip())
        spec = spec.replace_attributes(group_name=group_name) if group_name else spec
        partitions_def = definitions.get(stream.name)
        specs.append(spec if partitions_def is None else spec.replace_attributes(partitions_def=partitions_def))
    return specs


def _by_output(job: Job, streams: Sequence[StreamData], partitions: Partitions) -> Mapping[str, dg.TimeWindowPartitionsDefinition]:
    if partitions is None:
        return {}
    if not isinstance(partitions, Mapping):
        return {stream.name: partitions for stream in streams if stream.kind == "main" and has_times(stream)}
    for name in partitions.keys() - job.outputs.keys():
        raise DefinitionError(
            f"partitions are given for output {name!r}, which the job does not have",
            fix=f"use one of {', '.join(job.outputs)}",
            job=job.name,
        )
    for stream in streams:
        if stream.name in partitions and not has_times(stream):
            raise DefinitionError(
                f"output {stream.name!r} has results of count or global windows, which have no time bounds",
                fix="leave its partitions out",
                job=job.name,
            )
    return partitions
