"""Waits for what an operation asked of a job, with a line of the log for each change; a job that does not get there fails the run."""

from __future__ import annotations

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.control import Goal, JobView, SpecGeneration, Waiting, shortfall


def wait_for_goal(context: dg.OpExecutionContext, waiting: Waiting, made: SpecGeneration, goal: Goal, *, timeout_ms: int) -> JobView:
    """See to what a generation of a job's spec wants, and wait for it; returns how the job is then.

    Raises:
        NotReachedError: it took too long; the wish stands.
        TidemarkError: the job's files cannot be read.
    """

    def on_progress(view: JobView) -> None:
        context.log.info("%s", status_line(view))

    view = waiting.until(made.spec.job, goal, generation=made.generation, timeout_ms=timeout_ms, on_progress=on_progress)
    on_progress(view)
    return view


def require_reached(view: JobView, goal: Goal, metadata: MetadataValues) -> None:
    """Make sure that a job that was waited for is where it was to be.

    Raises:
        dagster.Failure: it failed, or does not run though it was to.
    """
    text = shortfall(view, goal)
    if text is not None:
        raise dg.Failure(text, metadata=dict(metadata), allow_retries=False)


def status_line(view: JobView) -> str:
    """Return where the job is, as a line of the log."""
    epoch = f", epoch {view.epoch}" if view.epoch is not None else ""
    return f"{view.job}: {view.state}{epoch}{f' ({view.reason})' if view.reason else ''}"
