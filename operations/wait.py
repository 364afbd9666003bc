"""Waits until a job reaches an operation's goal, logging each change; a job that does not reach it fails the run."""

from __future__ import annotations

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.control import Goal, JobView, SpecGeneration, Waiting, shortfall


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
    return f"{view.job}: {view.state}{epoch}{f' ({view.reason})' if view.reason else ''}"
