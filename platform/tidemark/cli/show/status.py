"""``tidemark list``, ``status``, ``history`` and ``logs``: they read small files of the job store and start no JVM."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import click

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import UNHEALTHY_EXIT, echo_json, existing_store, json_option, store_option
from tidemark.cli.show.tables import changes_text, history_table, progress_lines, status_text
from tidemark.cli.show.view_text import alert_lines, list_table, view_text
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.launch.log_follower import follow_log
from tidemark.control.model.view import UNHEALTHY, JobView
from tidemark.control.observed.observe import Observation
from tidemark.control.view.change_log import changes_of
from tidemark.control.view.job_views import status_document, views
from tidemark.state.log.progress import encode_progress
from tidemark.state.status.history import read_history


@click.command("list", cls=DocumentedCommand, examples=("tidemark list",))
@store_option
@json_option
def list_jobs(store: str | None, *, as_json: bool) -> None:
    """List the jobs of a store, one line each."""
    root = existing_store(store)
    found = [view for _, view in views(root)]
    if as_json:
        for view in found:
            echo_json(view)
    else:
        click.echo(list_table(found) if found else f"no jobs in {root.uri}")


@click.command(cls=DocumentedCommand, examples=("tidemark status", "tidemark status rides --check"))
@click.argument("job", required=False)
@store_option
@click.option("--check", is_flag=True, help=f"Exit with {UNHEALTHY_EXIT} if a job is unhealthy, for monitoring.")
@json_option
def status(job: str | None, store: str | None, *, check: bool, as_json: bool) -> None:
    """Show the state and health of a job, or of all jobs of the store. JOB is a job's name."""
    root = existing_store(store)
    found = views(root, job)
    if not found and not as_json:
        click.echo(f"no jobs in {root.uri}")
    for seen, view in found:
        click.echo(json.dumps(status_document(seen, view)) if as_json else _text(seen, view))
    if check and any(view.health in UNHEALTHY for _, view in found):
        click.get_current_context().exit(UNHEALTHY_EXIT)


@click.command(cls=DocumentedCommand, examples=("tidemark history rides --limit 5", "tidemark history rides --changes"))
@click.argument("job")
@store_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many epochs, or changes.")
@click.option("--changes", is_flag=True, help="Show spec changes (who, what, why), driver starts and failures instead of epochs.")
@json_option
def history(job: str, store: str | None, limit: int, *, changes: bool, as_json: bool) -> None:
    """Show the newest epochs of a job, newest last. JOB is a job's name."""
    root = existing_store(store)
    if changes:
        views(root, job)
        events = changes_of(root, job, limit)
        for event in events if as_json else ():
            echo_json(event)
        if not as_json:
            click.echo(changes_text(events) if events else f"{job} has no changes: it was never submitted")
        return
    epochs = read_history(root, job, limit)
    if not epochs:
        views(root, job)
    if as_json:
        for epoch in epochs:
            click.echo(json.dumps(encode_progress(epoch)))
    else:
        click.echo(history_table(epochs))


@click.command(cls=DocumentedCommand, examples=("tidemark logs rides --follow",))
@click.argument("job")
@store_option
@click.option("--lines", "-n", type=click.IntRange(min=1), default=100, show_default=True, help="How many of the newest lines.")
@click.option("--follow", "-f", is_flag=True, help="Follow the log, also of later drivers, until Ctrl-C.")
def logs(job: str, store: str | None, lines: int, *, follow: bool) -> None:
    """Show the log of a job's driver that runs or ran on this machine. JOB is a job's name."""
    root = existing_store(store)
    [(seen, view)] = views(root, job)
    if seen.handle is None and view.state == "damaged" and view.error is not None:
        raise click.ClickException(view.error.message)
    handle = seen.handle
    if handle is None:
        raise click.ClickException(f"{job} has no driver log: it was not started yet, or was started with `tidemark run`")
    if follow and handle.log is not None and handle.host == socket.gethostname():
        with contextlib.suppress(KeyboardInterrupt):
            for line in follow_log(Path(handle.log), lines):
                click.echo(line)
        return
    launcher = launchers_here().get(handle.launcher)
    found = launcher.logs(handle, lines) if launcher is not None else ()
    if not found:
        place = f"{handle.log or 'an unknown path'} on host {handle.host!r}"
        if handle.application is not None:
            place = f"the cluster, as application {handle.application!r}"
        raise click.ClickException(f"the log cannot be read from here, or is empty; it is at {place}")
    for line in found:
        click.echo(line)


def _text(seen: Observation, view: JobView) -> str:
    driver = seen.driver
    if seen.generation is None and view.state != "damaged":
        said = status_text(view, driver) if driver is not None else f"{view.job}: started, nothing committed yet"
        return "\n".join([said, *(f"  {line}" for line in alert_lines(view)), *([f"  warning: {view.warning}"] if view.warning else [])])
    return "\n".join([view_text(view), *(progress_lines(driver) if driver is not None else [])])
