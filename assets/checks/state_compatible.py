"""The compatibility verdict as an asset check: whether this code location's code is compatible with the job's stored state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from tidemark.assets.checks.check import CheckDeclaration, Finding
from tidemark.assets.checks.check_context import CheckContext
from tidemark.assets.streams.job_streams import StreamData
from tidemark.assets.values.markdown import as_plain
from tidemark.assets.values.metadata_values import MetadataItem
from tidemark.errors import DefinitionError, UnknownJobError, UnknownSavepointError

if TYPE_CHECKING:
    from tidemark.savepoints import Finding as Difference
    from tidemark.savepoints import Verdict

HEAD = "head"
"""The newest epoch, as on the command line."""


@dataclass(frozen=True)
class _Part:
    """An operator, a source or an output of a verdict."""

    kind: str
    name: str
    status: str
    findings: tuple[Difference, ...]


@dataclass(frozen=True)
class StateFits:
    """This code location's job is compatible with the job's stored state: the verdict of ``tidemark check`` in Dagster's UI.

    It reads small files, starts no JVM and changes nothing. "Execute checks" evaluates it before a run of changed code or an upgrade;
    in a run it is evaluated afterwards, when the newest epoch is the run's own. It passes if nothing is stored yet.

    Args:
        output: output whose asset shows the check; the job's first main output by default.
        against: ``head`` for the newest epoch, or the name of a savepoint.
        uids: operators whose uid was changed: new uid by old uid.
        columns: keys, aggregates and columns that were renamed: by the operator's new uid, new name by old name; None for an aggregate
            whose state is dropped.
        allow_non_restored_state: drop state that nothing in the job claims.
        blocking: keep downstream assets from running when it fails.
    """

    output: str | None = None
    against: str = HEAD
    uids: Mapping[str, str | None] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    allow_non_restored_state: bool = False
    blocking: bool = False
    name: str = "state_fits"

    @property
    def compares_runs(self) -> bool:
        """False: it reads stored state only."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the check."""
        stored = "the newest epoch" if self.against == HEAD else f"the savepoint `{self.against}`"
        text = f"The code of `{stream.job.name}` is compatible with {stored}: operator state, source offsets, result tables."
        return (CheckDeclaration(self.name, text, self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding, with the whole verdict."""
        try:
            found = self._verdict(context)
        except (UnknownJobError, UnknownSavepointError, DefinitionError) as error:
            # A job without an epoch passes; a missing savepoint, or a map that names an unknown operator, is shown as a failure.
            begins = isinstance(error, UnknownJobError) and self.against == HEAD
            said = f"nothing is stored of {stream.job.name} yet" if begins else str(error)
            yield Finding(self.name, passed=begins, description=said, metadata=self._stored())
            return
        severity, remark = _severity(context)
        metadata: dict[str, MetadataItem] = {
            **self._stored(),
            "tidemark/verdict": found.status,
            "tidemark/epoch": found.epoch,
            "tidemark/lineage": found.lineage,
            "tidemark/findings": dg.MetadataValue.md(findings_table(found)),
        }
        yield Finding(self.name, passed=found.fits, description=_summary(found) + remark, severity=severity, metadata=metadata)

    def _verdict(self, context: CheckContext) -> Verdict:
        from tidemark.savepoints import check  # its import loads the Delta library

        return check(
            context.job,
            self.against,
            store=context.store,
            uids=self.uids,
            columns=self.columns,
            allow_non_restored_state=self.allow_non_restored_state,
        )

    def _stored(self) -> dict[str, MetadataItem]:
        return {"tidemark/against": self.against}


def findings_table(found: Verdict) -> str:
    """Return a verdict as a Markdown table: a row for each finding, and one for each part without findings."""
    lines = ["| | | verdict | finding |", "|---|---|---|---|"]
    for part in _parts(found):
        said = [as_plain(finding.text()) for finding in part.findings] or [""]
        lines += [f"| {part.kind} | {as_plain(part.name)} | {part.status} | {text} |" for text in said]
    return "\n".join(lines)


def _parts(found: Verdict) -> list[_Part]:
    parts = [_Part("operator", each.uid, each.status, each.findings) for each in found.operators]
    parts += [_Part("source", each.name, each.status, each.findings) for each in found.sources]
    return parts + [_Part("output", each.name, each.status, each.findings) for each in found.outputs]


def _summary(found: Verdict) -> str:
    """Return the verdict in a line, with the incompatible findings."""
    against = [f"{part.name}: {finding.text()}" for part in _parts(found) for finding in part.findings if finding.fit == "incompatible"]
    said = f"{found.status} with epoch {found.epoch} of lineage {found.lineage}"
    return f"{said}: {'; '.join(against)}" if not found.fits else said


def _severity(context: CheckContext) -> tuple[dg.AssetCheckSeverity, str]:
    """Return the severity and a remark: while an upgrade is under way, one of the two codes is incompatible on purpose."""
    from tidemark.control import newest_step
    from tidemark.state import JobStore

    step = newest_step(JobStore.open(context.store), context.job.name)
    if step is None or step.ended:
        return dg.AssetCheckSeverity.ERROR, ""
    # An error reported during the upgrade would roll it back.
    return dg.AssetCheckSeverity.WARN, f". An upgrade is under way: {step}"
