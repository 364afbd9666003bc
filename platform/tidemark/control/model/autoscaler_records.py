"""What the autoscaler of a job measured and decided: numbered records in the job's folder, each created once; the newest counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidemark.control.model.paths import AUTOSCALER, number_in, numbered
from tidemark.state.store.documents import create_document, read_intact_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "autoscaler"
KEPT_DECISIONS: Final = 50
_KEPT_RECORDS: Final = 3

ScalingKind = Literal["advised", "scaled"]
"""Whether a decision was a recommendation only, or was written into the job's spec."""


@dataclass(frozen=True)
class LoadSample:
    """The counters of a job's driver at one moment; two samples of a driver give the rates between them.

    Args:
        at: when they were read, milliseconds.
        driver: which driver's they are; they start from 0 with each.
        epochs: epochs that it has run.
        busy_ms: how long these took.
        rows: rows that it has read.
        parallelism: of its last epoch.
        intake: the share of its usual bounds that an epoch may read.
        backlog_rows: rows that wait to be read, estimated where the source counts files or bytes; None if unknown.
    """

    at: int
    driver: str
    epochs: int
    busy_ms: int
    rows: int
    parallelism: int
    intake: float
    backlog_rows: int | None


@dataclass(frozen=True)
class ScalingDecision:
    """A decision to change parallelism, intake, or both.

    Args:
        at: when it was made, milliseconds.
        kind: whether it was only a recommendation.
        parallelism_before: what the driver had.
        parallelism: what it should have.
        intake_before: the same of the intake.
        intake: what it should have.
        reason: why, in words.
        processing_rate: rows per busy second before it; None if unknown.
        rows_per_epoch: read by an epoch before it; None if unknown.
        generation: the generation of the spec that it was made for.
        gain: by which share the processing rate then was greater, measured when the load was high again; None until then.
    """

    at: int
    kind: ScalingKind
    parallelism_before: int
    parallelism: int
    intake_before: float
    intake: float
    reason: str
    processing_rate: float | None = None
    rows_per_epoch: float | None = None
    generation: int = 0
    gain: float | None = None

    @property
    def scales_up(self) -> bool:
        """Whether it raises the parallelism."""
        return self.parallelism > self.parallelism_before

    def is_ineffective(self, threshold: float) -> bool:
        """Return whether it raised the parallelism, and the processing rate by less than a share of what was expected."""
        return self.scales_up and self.gain is not None and self.gain < threshold * (self.parallelism / self.parallelism_before - 1)

    @property
    def text(self) -> str:
        """What it changes.

        >>> ScalingDecision(0, "scaled", 2, 4, 1.0, 1.0, "why").text
        'parallelism 2 -> 4'
        """
        return changes_text(self.parallelism_before, self.parallelism, self.intake_before, self.intake)


@dataclass(frozen=True)
class ScalingEvaluation:
    """What the policy found at one moment; rates are rows per second.

    Args:
        at: when, milliseconds.
        parallelism: what the driver has.
        recommended_parallelism: what it should have; the same if nothing should change.
        intake: the share of its usual bounds that an epoch may read.
        recommended_intake: what it should be.
        reason: why, in words.
        held: why a recommended change is not made now; empty if it is, or there is none.
        utilization: the share of what the driver can process that the input needs, including to read its backlog in time.
        input_rate: rows that arrive.
        processing_rate: rows that the driver processes while an epoch runs (Flink: true processing rate).
        backlog_rows: rows that wait to be read.
    """

    at: int
    parallelism: int
    recommended_parallelism: int
    intake: float
    recommended_intake: float
    reason: str
    held: str = ""
    utilization: float | None = None
    input_rate: float | None = None
    processing_rate: float | None = None
    backlog_rows: int | None = None

    @property
    def has_advice(self) -> bool:
        """Whether something should change."""
        return (self.parallelism, self.intake) != (self.recommended_parallelism, self.recommended_intake)

    @property
    def text(self) -> str:
        """What should change, empty for nothing."""
        return changes_text(self.parallelism, self.recommended_parallelism, self.intake, self.recommended_intake)


@dataclass(frozen=True)
class AutoscalerRecord:
    """The state of a job's autoscaler.

    Args:
        job: the job's name.
        at: when it was written, milliseconds.
        samples: of the load, oldest first.
        evaluation: the last one; None before the first.
        decisions: the newest, oldest first.
        totals: decisions since the first one, by kind.
    """

    job: str
    at: int = 0
    samples: tuple[LoadSample, ...] = ()
    evaluation: ScalingEvaluation | None = None
    decisions: tuple[ScalingDecision, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)


def read_record(root: JobStore, job: str, number: int) -> AutoscalerRecord | None:
    """Return a record; None if there is none, or it is damaged: the autoscaler then begins again.

    Raises:
        FormatError: a newer release wrote it.
    """
    return read_intact_document(root.at(job_folder(job)), numbered(AUTOSCALER, number), kind=KIND, form=AutoscalerRecord)


def read_newest_record(root: JobStore, job: str) -> AutoscalerRecord | None:
    """Return a job's newest record; None if there is none, or it is damaged.

    Raises:
        FormatError: a newer release wrote it.
    """
    files = root.at(job_folder(job)).list(AUTOSCALER)
    number = max((number for file in files if (number := number_in(AUTOSCALER, file.path)) is not None), default=0)
    return read_record(root, job, number) if number else None


def create_record(root: JobStore, record: AutoscalerRecord, number: int) -> bool:
    """Create a record, and delete old ones; False if another process has created one of this number."""
    folder = root.at(job_folder(record.job))
    if not create_document(folder, numbered(AUTOSCALER, number), kind=KIND, value=record):
        return False
    if number > _KEPT_RECORDS:
        folder.delete([numbered(AUTOSCALER, number - _KEPT_RECORDS)])
    return True


def changes_text(parallelism_before: int, parallelism: int, intake_before: float, intake: float) -> str:
    """Return a change as text, empty for none."""
    parts = [f"parallelism {parallelism_before} -> {parallelism}"] if parallelism != parallelism_before else []
    parts += [f"intake {intake_before:.3g} -> {intake:.3g}"] if intake != intake_before else []
    return ", ".join(parts)
