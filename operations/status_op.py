"""The operation ``status``: shows a job's state, what it waits for, and its savepoints; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import dagster as dg
from pydantic import Field, create_model

from tidemark.assets.report.output_metadata import chart_metadata
from tidemark.assets.report.watermark_chart import MAX_POINTS
from tidemark.assets.values.markdown import as_plain
from tidemark.clock import Clock, format_ms
from tidemark.control import UNHEALTHY, Launcher, observe, view_of
from tidemark.operations.launchpad import Operation
from tidemark.operations.wait import status_line, view_metadata
from tidemark.sensors.store_sensor import open_root
from tidemark.state import JobStore, read_history

_SAVEPOINTS = 50


class StatusForm(dg.Config):
    """Config of ``status``."""

    job: str = Field(description="Name of the job.")
    check: bool = Field(default=False, description="Fail the run if the job is unhealthy.")


def status_operation(
    job: str | None, *, store: str | dg.EnvVar, launchers: Callable[[], Mapping[str, Launcher]], clock: Clock
) -> Operation:
    """Return the operation.

    Args:
        job: the job's name, if it is known.
        store: folder or bucket of the job stores.
        launchers: returns launchers of drivers, by name; called in a run.
        clock: processing time.
    """
    form = StatusForm if job is None else create_model("StatusForm", __base__=StatusForm, job=(str, Field(default=job)))
    text = "Shows whether {job} runs, where it is, and its savepoints; changes nothing."
    return Operation("status", form, text, partial(_show, store, launchers, clock))


def _show(
    store: str | dg.EnvVar,
    launchers: Callable[[], Mapping[str, Launcher]],
    clock: Clock,
    context: dg.OpExecutionContext,
    form: StatusForm,
) -> None:
    root = open_root(store)
    view = view_of(observe(root, form.job, launchers()), clock.now_ms())
    context.log.info("%s", status_line(view))
    chart = chart_metadata(read_history(root, form.job, MAX_POINTS))
    metadata = {**chart, **view_metadata(view), "tidemark/savepoints": dg.MetadataValue.md(_savepoints(root, form.job, clock))}
    if form.check and view.health in UNHEALTHY:
        raise dg.Failure(status_line(view), metadata=dict(metadata), allow_retries=False)
    context.add_output_metadata(metadata)


def _savepoints(root: JobStore, job: str, clock: Clock) -> str:
    from tidemark.savepoints import SavepointStore  # its import loads the Delta library

    found = SavepointStore(root, job, clock).list()
    if not found:
        return "none"
    rows = [
        f"| `{each.name}` | {each.info.kind} | {each.record.epoch} | {format_ms(each.taken_at)} | {as_plain(each.info.note)} |"
        for each in reversed(found[-_SAVEPOINTS:])
    ]
    return "\n".join(("| savepoint | kind | epoch | taken | why |", "|---|---|---|---|---|", *rows))
