"""Asset checks of a job: their specs at definition, their findings on the context of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import dagster as dg

from tidemark.assets.checks.check_context import CheckContext
from tidemark.assets.streams.job_streams import StreamData, output_streams
from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.errors import DefinitionError
from tidemark.graph import Job


@dataclass(frozen=True)
class Finding:
    """The result of one check: ``severity`` counts only if it did not pass; ``metadata`` has values that Dagster accepts."""

    check_name: str
    passed: bool
    description: str
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    metadata: MetadataValues = field(default_factory=dict)


@dataclass(frozen=True)
class CheckDeclaration:
    """One check by name, for Dagster's UI and scheduling; ``blocking`` keeps downstream assets from running when it fails."""

    name: str
    description: str
    blocking: bool = False
    metadata: MetadataValues = field(default_factory=dict)


@runtime_checkable
class OutputCheck(Protocol):
    """One or more checks on an output of a job.

    ``output`` is the name of the output; None stands for the job's first main output, for checks that concern the job as a whole.
    ``compares_runs`` means that ``evaluate`` needs to know which files this run added.
    """

    @property
    def output(self) -> str | None:
        """Name of the output."""
        ...

    @property
    def compares_runs(self) -> bool:
        """Whether the output's files must be listed before the run."""
        ...

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the checks by name; called once, when definitions load, and must not read any data.

        Raises:
            DefinitionError: the check does not apply to this output.
        """
        ...

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Return a finding for every declared name; called after the run, or without a run on the job's last state."""
        ...


def stream_of(job: Job, check: OutputCheck) -> StreamData:
    """Return the output that a check is about.

    Raises:
        DefinitionError: the job has no such output.
    """
    streams = output_streams(job)
    if check.output is None:
        return next((stream for stream in streams if stream.kind == "main"), streams[0])
    for stream in streams:
        if stream.name == check.output:
            return stream
    raise DefinitionError(
        f"a {type(check).__name__} names output {check.output!r}, which the job does not have",
        fix=f"use one of {', '.join(job.outputs)}",
        job=job.name,
    )


def require_checks(job: Job, given: object) -> None:
    """Make sure that a job's checks are a list of checks.

    Raises:
        DefinitionError: they are not.
    """
    if not isinstance(given, Sequence) or not all(isinstance(check, OutputCheck) for check in given):
        raise DefinitionError(f"{given!r} is no list of checks", fix="write [Conservation(), ...]", job=job.name)


def check_specs(job: Job, checks: Sequence[OutputCheck], keys: Mapping[str, dg.AssetKey]) -> list[dg.AssetCheckSpec]:
    """Return the specs of all checks.

    Args:
        job: the job.
        checks: its checks.
        keys: asset keys by output.

    Raises:
        DefinitionError: they are no list of checks, a check does not apply to its output, or two checks of one asset have one name.
    """
    require_checks(job, checks)
    specs: dict[tuple[str, str], dg.AssetCheckSpec] = {}
    for check in checks:
        stream = stream_of(job, check)
        for declaration in check.declare(stream):
            place = (stream.name, declaration.name)
            if place in specs:
                raise DefinitionError(
                    f"output {stream.name!r} has two checks named {declaration.name!r}",
                    fix="give one of them another name=...",
                    job=job.name,
                )
            specs[place] = dg.AssetCheckSpec(
                declaration.name,
                asset=keys[stream.name],
                description=declaration.description,
                blocking=declaration.blocking,
                metadata=dict(declaration.metadata),
            )
    return list(specs.values())


def evaluate_checks(
    checks: Sequence[OutputCheck],
    context: CheckContext,
    *,
    keys: Mapping[str, dg.AssetKey],
    selected: Collection[dg.AssetCheckKey],
) -> Iterator[dg.AssetCheckResult]:
    """Evaluate the checks of which at least one name is selected, and yield the results of the selected names."""
    for check in checks:
        stream = stream_of(context.job, check)
        if stream.name not in keys:
            continue
        key = keys[stream.name]
        wanted = {found.name for found in selected if found.asset_key == key}
        if not wanted.intersection(declaration.name for declaration in check.declare(stream)):
            continue
        for finding in check.evaluate(stream, context):
            if finding.check_name in wanted:
                yield dg.AssetCheckResult(
                    passed=finding.passed,
                    asset_key=key,
                    check_name=finding.check_name,
                    severity=finding.severity,
                    description=finding.description,
                    metadata=dict(finding.metadata),
                )
