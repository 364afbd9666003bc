"""The metrics of a job: their names by Prometheus's conventions, their labels, and how they are read from a view. Pure.

Labels come from definitions (jobs, sources, filters, operators, outputs), except splits, which come from data: a source exports a
bounded number of them, always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal

from tidemark.control.metrics.metric_types import JobMetric, Sample, job_metric
from tidemark.control.model.autoscaler_records import ScalingEvaluation
from tidemark.control.model.driver_starts import sorted_stages
from tidemark.control.model.sanitizing import safe_label
from tidemark.control.model.view import UNHEALTHY, JobView, KeyedView, SourceView
from tidemark.graph.operators.emitting import FAILED
from tidemark.state.log.totals import late_by_operator

MAX_SPLITS: Final = 32
"""Splits of a source that are exported, the first by name."""

_LAST_INSTANT: Final = 253_402_300_799_999


def exported_splits(source: SourceView) -> tuple[str, ...]:
    """Return the splits that are exported: always the same, unless new ones sort before them."""
    return tuple(sorted(source.splits)[:MAX_SPLITS])


def _one(value: float | None) -> Iterable[Sample]:
    return () if value is None else (((), value),)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None or abs(milliseconds) > _LAST_INSTANT else milliseconds / 1000


def _by_source(view: JobView, read: Callable[[SourceView], float | None]) -> Iterator[Sample]:
    for name, source in view.sources.items():
        value = read(source)
        if value is not None:
            yield (name,), value


def _totals(counts: Mapping[str, Mapping[str, int]], count: str) -> Iterator[Sample]:
    for name, item in counts.items():
        yield (name,), item.get(count, 0)


def _late(view: JobView) -> Iterator[Sample]:
    for name, rows in late_by_operator(view.totals).items():
        yield (name,), rows


def _late_within(view: JobView) -> Iterator[Sample]:
    for name, by_counter in view.totals.get("shortfalls", {}).items():
        for counter, found in by_counter.items():
            for step, rows in zip(found.steps_ms, found.kept, strict=True):
                yield (name, counter, f"{step / 1000:g}"), rows


def _splits(view: JobView) -> Iterator[Sample]:
    for name, source in view.sources.items():
        for split in exported_splits(source):
            lag = _seconds(source.splits[split].lag_ms)
            if lag is not None:
                yield (name, safe_label(split)), lag


def _keyed(view: JobView, read: Callable[[KeyedView], int]) -> Iterator[Sample]:
    for uid, item in view.keyed.items():
        yield (uid,), read(item)


def _scaling(view: JobView, read: Callable[[ScalingEvaluation], float | None]) -> Iterable[Sample]:
    found = view.autoscaler.evaluation if view.autoscaler is not None else None
    return () if found is None else _one(read(found))


def _waiting(view: JobView, what: Literal["files", "bytes", "rows"]) -> Iterator[Sample]:
    for name, waiting in view.pressure.waiting.items():
        value: int | None = getattr(waiting, what)
        if value is not None:
            yield (name,), value


def _waiting_splits(view: JobView) -> Iterator[Sample]:
    for name, waiting in view.pressure.waiting.items():
        for split in sorted(waiting.splits)[:MAX_SPLITS]:
            yield (name, safe_label(split)), waiting.splits[split]


JOB_METRICS: Final[tuple[JobMetric, ...]] = (
    job_metric(
        "job_state",
        "",
        "1 for the job's current state, lifecycle and health.",
        "Jobs",
        lambda view: (((view.state, view.lifecycle, view.health), 1),),
        "state",
        "lifecycle",
        "health",
    ),
    job_metric(
        "job_healthy",
        "",
        "1 if the job is healthy, or stopped as requested.",
        "Jobs",
        lambda view: _one(float(view.health not in UNHEALTHY)),
    ),
    job_metric("restarts", "", "Restarts after failures.", "Jobs", lambda view: _one(view.restarts_done), kind="counter"),
    job_metric("spec_generation", "", "The newest generation of the spec, 0 without one.", "Jobs", lambda view: _one(view.generation)),
    job_metric("spec_generation_seen", "", "The generation that was acted on last.", "Jobs", lambda view: _one(view.generation_seen)),
    job_metric(
        "heartbeat_timestamp",
        "seconds",
        "Time of the driver's last heartbeat.",
        "Jobs",
        lambda view: _one(_seconds(view.heartbeat_at)),
    ),
    job_metric("driver_start_timestamp", "seconds", "When the driver started.", "Jobs", lambda view: _one(_seconds(view.started_at))),
    job_metric(
        "driver_start_stage",
        "seconds",
        "How long a stage of the newest driver's start took; Spark's stages run in parallel to others.",
        "Jobs",
        lambda view: () if view.start is None else [((stage,), ms / 1000) for stage, ms in sorted_stages(view.start.took)],
        "stage",
    ),
    job_metric(
        "watermark_lag",
        "seconds",
        "Processing time minus the source's watermark.",
        "Time",
        lambda view: _by_source(view, lambda source: _seconds(source.lag_ms)),
        "source",
    ),
    job_metric(
        "watermark_timestamp",
        "seconds",
        "The source's watermark.",
        "Time",
        lambda view: _by_source(view, lambda source: _seconds(source.watermark)),
        "source",
    ),
    job_metric(
        "split_watermark_lag",
        "seconds",
        f"Processing time minus the split's watermark; of the first {MAX_SPLITS} splits of a source by name.",
        "Time",
        _splits,
        "source",
        "split",
    ),
    job_metric(
        "source_splits", "", "Splits of the source.", "Time", lambda view: _by_source(view, lambda source: len(source.splits)), "source"
    ),
    job_metric(
        "source_idle_splits",
        "",
        "Splits of the source that are idle and do not hold its watermark back.",
        "Time",
        lambda view: _by_source(view, lambda source: sum(split.idle for split in source.splits.values())),
        "source",
    ),
    job_metric("source", "rows", "Rows read.", "Rows", lambda view: _totals(view.totals["sources"], "read"), "source", kind="counter"),
    job_metric(
        "source_malformed",
        "rows",
        "Rows without a valid event time, or that could not be parsed.",
        "Rows",
        lambda view: _totals(view.totals["sources"], "malformed"),
        "source",
        kind="counter",
    ),
    job_metric(
        "filter_rejected",
        "rows",
        "Rows that a filter rejected.",
        "Rows",
        lambda view: _totals(view.totals["filters"], "rejected"),
        "filter",
        kind="counter",
    ),
    job_metric("operator", "rows", "Rows in.", "Rows", lambda view: _totals(view.totals["operators"], "in"), "operator", kind="counter"),
    job_metric(
        "operator_late",
        "rows",
        "Late rows, which no operator accepted.",
        "Rows",
        _late,
        "operator",
        kind="counter",
    ),
    job_metric(
        "operator_failed",
        "rows",
        "Elements for which the user's function raised an exception, of operators with an output for these.",
        "Rows",
        lambda view: (((uid,), counts[FAILED]) for uid, counts in view.totals["operators"].items() if FAILED in counts),
        "operator",
        kind="counter",
    ),
    job_metric(
        "operator_late_within",
        "rows",
        "Late rows that so many more seconds of allowed lateness would have kept; begins again when that is changed.",
        "Rows",
        _late_within,
        "operator",
        "counter",
        "seconds",
        kind="counter",
    ),
    job_metric(
        "output",
        "rows",
        "Rows written.",
        "Rows",
        lambda view: (((name,), rows) for name, rows in view.totals["outputs"].items()),
        "output",
        kind="counter",
    ),
    job_metric(
        "epochs",
        "",
        "Epochs committed in the lineage.",
        "Epochs",
        lambda view: _one(None if view.epoch is None else view.epoch + 1),
        kind="counter",
    ),
    job_metric("epoch_timestamp", "seconds", "Processing time of the last epoch.", "Epochs", lambda view: _one(_seconds(view.epoch_at))),
    job_metric("epoch_duration", "seconds", "How long the last epoch took.", "Epochs", lambda view: _one(_seconds(view.epoch_ms))),
    job_metric(
        "epoch_at_hand",
        "seconds",
        "How long the current epoch has been running; 0 between epochs.",
        "Epochs",
        lambda view: _one(0 if view.pressure.busy_since is None else max(0.0, (view.at - view.pressure.busy_since) / 1000)),
    ),
    job_metric("busy", "ratio", "Share of the time in which an epoch runs.", "Epochs", lambda view: _one(view.pressure.busy_share)),
    job_metric(
        "catch_up",
        "seconds",
        "Time until a backlog is read, at this pace.",
        "Epochs",
        lambda view: _one(_seconds(view.pressure.catch_up_ms)),
    ),
    job_metric(
        "autoscaler_parallelism",
        "",
        "The parallelism of the last epoch, as the autoscaler knows it.",
        "Epochs",
        lambda view: _scaling(view, lambda found: found.parallelism),
    ),
    job_metric(
        "autoscaler_recommended_parallelism",
        "",
        "The parallelism that the autoscaler recommends.",
        "Epochs",
        lambda view: _scaling(view, lambda found: found.recommended_parallelism),
    ),
    job_metric(
        "autoscaler_intake",
        "ratio",
        "The share of its usual bounds that an epoch may read.",
        "Epochs",
        lambda view: _scaling(view, lambda found: found.intake),
    ),
    job_metric(
        "autoscaler_recommended_intake",
        "ratio",
        "The share that the autoscaler recommends.",
        "Epochs",
        lambda view: _scaling(view, lambda found: found.recommended_intake),
    ),
    job_metric(
        "autoscaler_utilization",
        "ratio",
        "The share of what the job can process that its input needs, including to read its backlog in time; may be above 1.",
        "Epochs",
        lambda view: _scaling(view, lambda found: found.utilization),
    ),
    job_metric(
        "autoscaler_decisions",
        "",
        "Decisions of the autoscaler: advised, or scaled.",
        "Epochs",
        lambda view: () if view.autoscaler is None else [((kind,), view.autoscaler.totals.get(kind, 0)) for kind in ("advised", "scaled")],
        "kind",
        kind="counter",
    ),
    job_metric("waiting", "files", "Files that wait to be read.", "Epochs", lambda view: _waiting(view, "files"), "source"),
    job_metric("waiting", "bytes", "Bytes that wait to be read.", "Epochs", lambda view: _waiting(view, "bytes"), "source"),
    job_metric("waiting", "rows", "Rows that wait to be read.", "Epochs", lambda view: _waiting(view, "rows"), "source"),
    job_metric(
        "split_waiting",
        "rows",
        "Rows of a split that wait to be read: the consumer lag of a partition of Kafka; of the first 32 splits of a source by name.",
        "Epochs",
        _waiting_splits,
        "source",
        "split",
    ),
    job_metric("state", "rows", "Rows of state, in all operators.", "State", lambda view: _one(view.state_rows)),
    job_metric("state", "bytes", "Bytes of state, in all operators.", "State", lambda view: _one(view.state_bytes)),
    job_metric("state", "files", "Files of state, in all operators.", "State", lambda view: _one(view.state_files)),
    job_metric(
        "operator_keys",
        "",
        "Keys that a process function keeps.",
        "State",
        lambda view: _keyed(view, lambda item: item.keys),
        "operator",
    ),
    job_metric(
        "operator_timers",
        "",
        "Timers of a process function that wait.",
        "State",
        lambda view: _keyed(view, lambda item: item.timers),
        "operator",
    ),
    job_metric(
        "operator_timers_fired",
        "",
        "Timers of a process function that fired in the last epoch.",
        "State",
        lambda view: _keyed(view, lambda item: item.timers_fired),
        "operator",
    ),
    job_metric(
        "operator_state_expired",
        "",
        "Values, and entries of lists and maps, of a process function that expired in the last epoch.",
        "State",
        lambda view: _keyed(view, lambda item: item.state_expired),
        "operator",
    ),
)
