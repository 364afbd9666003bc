"""Waits until a job reaches an operation's goal, logging each change, and shows its state; a job that does not reach it fails the run."""

from __future__ import annotations

import dagster as dg

from tidemark.assets.values.instants import instant_or_none
from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.clock import format_ms
from tidemark.control import Goal, JobView, SpecGeneration, Waiting, shortfall
from tidemark.durations import short_duration
from tidemark.state import redacted


def wait_for_goal(context: dg.OpExecutionContext, waiting: Waiting, made: SpecGeneration, goal: Goal, *, timeout_ms: int) -> JobView:
    """Reconcile a job to a generation of its spec and wait for the goal; returns the job's view then.

    Raises:
        NotReachedError: the timeout expired; the request stays in effect.
        TidemarkError: the job's files cannot be read.
    """

    def on_progress(view: JobView) -> None:
        context.log.info("%s", status_line(view))

    view = waiting.until(made.spec.job, goal, generation=made.generation, timeout_ms=timeout_ms, on_progress=on_progress)
    on_progress(view)
    return view


def require_reached(view: JobView, goal: Goal, metadata: MetadataValues) -> None:
    """Fail the run unless the job has reached its goal.

    Raises:
        dagster.Failure: it failed, or does not run although it should.
    """
    text = shortfall(view, goal)
    if text is not None:
        raise dg.Failure(text, metadata=dict(metadata), allow_retries=False)


def status_line(view: JobView) -> str:
    """Return the job's state as a log line."""
    epoch = f", epoch {view.epoch}" if view.epoch is not None else ""
    return f"{view.job}: {view.state}{epoch}{f' ({redacted(view.reason)})' if view.reason else ''}"


def view_metadata(view: JobView) -> dict[str, MetadataItem]:
    """Return a job's state as metadata of a run; what is unknown is left out."""
    metadata: dict[str, MetadataItem] = {
        "tidemark/job": view.job,
        "tidemark/state": view.state,
        "tidemark/lifecycle": view.lifecycle,
        "tidemark/health": view.health,
        "tidemark/generation": view.generation,
    }
    if view.attempt:
        metadata["tidemark/attempt"] = view.attempt
    if view.epoch is not None:
        metadata |= {"tidemark/epoch": view.epoch, "tidemark/lineage": view.lineage}
    watermark = instant_or_none(view.watermark)
    if watermark is not None:
        metadata["tidemark/watermark"] = dg.MetadataValue.timestamp(watermark / 1000)
    if view.lag_ms is not None:
        metadata["tidemark/watermark_lag"] = short_duration(view.lag_ms)
    if view.process is not None and view.process.log is not None:
        metadata["tidemark/log"] = dg.MetadataValue.path(view.process.log)
    if view.standby is not None:
        metadata["tidemark/standby"] = str(view.standby)
    if view.next_start_at is not None:
        metadata["tidemark/next_start"] = format_ms(view.next_start_at)
    error = f"{view.error.code} {view.error.message}" if view.error is not None else ""
    texts = {"reason": view.reason, "advice": view.advice, "error": error}
    return metadata | {f"tidemark/{key}": redacted(text) for key, text in texts.items() if text}
