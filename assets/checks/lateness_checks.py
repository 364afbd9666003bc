"""Checks on event time: how many rows were late, and how far the watermark is behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import dagster as dg

from tidemark.assets.checks.check import CheckDeclaration, Finding
from tidemark.assets.checks.check_context import CheckContext
from tidemark.assets.report.lag import LagReference, lag_thresholds, source_lags
from tidemark.assets.streams.job_streams import StreamData, late_operators_of
from tidemark.assets.values.markdown import as_plain
from tidemark.durations import format_duration
from tidemark.errors import DefinitionError

_SEVERITY = {"ok": dg.AssetCheckSeverity.WARN, "warn": dg.AssetCheckSeverity.WARN, "error": dg.AssetCheckSeverity.ERROR}


@dataclass(frozen=True)
class LateRatio:
    """Few of the rows that reached windows, joins by time and deduplications in this run were late.

    Args:
        output: an output downstream of such operators; the job's first main output by default.
        warn_above: share of late rows above which the check fails as a warning.
        error_above: share above which it fails as an error.
        blocking: keep downstream assets from running when it fails as an error.

    Raises:
        DefinitionError: the shares are not 0 <= warn_above <= error_above <= 1.
    """

    output: str | None = None
    warn_above: float = 0.001
    error_above: float = 0.01
    blocking: bool = False
    name: str = "late_ratio"

    def __post_init__(self) -> None:
        if not 0 <= self.warn_above <= self.error_above <= 1:
            raise DefinitionError(
                f"warn_above={self.warn_above} and error_above={self.error_above} are not valid shares",
                fix="set 0 <= warn_above <= error_above <= 1, such as 0.001 and 0.01",
            )

    @property
    def compares_runs(self) -> bool:
        """False: it reads counts only."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the check.

        Raises:
            DefinitionError: no operator leads to the output to which rows can be late.
        """
        _uids(stream)
        text = f"At most {self.warn_above:.2%} of the rows were late ({self.error_above:.2%} is an error)."
        return (CheckDeclaration(self.name, text, self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding; a run without rows passes."""
        uids = _uids(stream)
        rows = context.report.operator_sum(uids, lambda operator: operator.rows_in)
        late = context.report.operator_sum(uids, lambda operator: operator.late)
        ratio = late / rows if rows else 0.0
        yield Finding(
            self.name,
            passed=ratio <= self.warn_above,
            description=f"{late} of {rows} rows ({ratio:.3%}) were late",
            severity=_SEVERITY["error" if ratio > self.error_above else "warn"],
            metadata={
                "tidemark/late_ratio": ratio,
                "tidemark/late_rows": late,
                "tidemark/rows_in": rows,
                "tidemark/warn_above": self.warn_above,
                "tidemark/error_above": self.error_above,
            },
        )


@dataclass(frozen=True)
class WatermarkFreshness:
    """The watermark is not far behind after the newest epoch.

    Args:
        output: output whose asset shows the check; the job's first main output by default.
        warn_after: lag from which the check fails as a warning; five times the out-of-orderness bound, at least 5 minutes, by default.
        error_after: lag from which it fails as an error; three times that by default.
        reference: compare with the processing time of the epoch, or with the newest event that the job has read
            (for historical data, to find a source or split that holds the watermark back).
        blocking: keep downstream assets from running when it fails as an error.
    """

    output: str | None = None
    warn_after: str | timedelta | None = None
    error_after: str | timedelta | None = None
    reference: LagReference = "processing_time"
    blocking: bool = False
    name: str = "watermark_freshness"

    @property
    def compares_runs(self) -> bool:
        """False: it reads watermarks only."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the check.

        Raises:
            DurationError: a duration cannot be read.
        """
        limits = lag_thresholds(stream.job, warn_after=self.warn_after, error_after=self.error_after)
        compared = "processing time" if self.reference == "processing_time" else "the newest event"
        text = f"The watermark is less than {format_duration(limits.warn_ms)} behind {compared}."
        return (CheckDeclaration(self.name, text, self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding, with the source and split that are farthest behind."""
        limits = lag_thresholds(stream.job, warn_after=self.warn_after, error_after=self.error_after)
        head = context.report.head
        lags = source_lags(head, self.reference) if head is not None else ()
        level = limits.level(lags[0].lag_ms) if lags else "ok"
        yield Finding(
            self.name,
            passed=level == "ok",
            description=as_plain(lags[0].describe()) if lags else "no source has a watermark yet, or all input has ended",
            severity=_SEVERITY[level],
            metadata={
                **{f"tidemark/lag_seconds_{lag.source}": lag.lag_ms / 1000 for lag in lags},
                "tidemark/warn_after_seconds": limits.warn_ms / 1000,
                "tidemark/error_after_seconds": limits.error_ms / 1000,
            },
        )


def _uids(stream: StreamData) -> tuple[str, ...]:
    operators = late_operators_of(stream.output.node) if stream.output is not None else ()
    if not operators:
        raise DefinitionError(
            f"no window, join by time or deduplication leads to output {stream.name!r}, so no row can be late there",
            fix="name an output of one",
            job=stream.job.name,
        )
    return tuple(operator.uid for operator in operators if operator.uid is not None)
