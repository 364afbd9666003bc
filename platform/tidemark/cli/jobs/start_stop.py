"""``tidemark start``, ``stop``, ``cancel``, ``restart``, ``suspend``, ``resume``: change a submitted job's desired state.

``suspend`` and ``resume`` only write the desired state, which a supervisor or Dagster reconciles; the others reconcile it and wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import click

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import (
    DURATION,
    UNHEALTHY_EXIT,
    echo_json,
    existing_store,
    json_option,
    missing_epochs_option,
    request_options,
    store_option,
)
from tidemark.control.client.job_client import JobClient
from tidemark.control.client.waiting import Goal, Waiting, shortfall
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.view import JobView
from tidemark.control.view.view_line import view_line
from tidemark.errors import DefinitionError
from tidemark.state.log.progress import MissingEpochs
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from tidemark.control.model.launcher import Launcher

F = TypeVar("F", bound=Callable[..., object])


def wait_options(command: F) -> F:
    """Add ``--wait/--no-wait`` and ``--timeout``."""
    command = click.option("--timeout", type=DURATION, default="10 minutes", show_default=True, help="How long to wait.")(command)
    return click.option("--wait/--no-wait", default=True, show_default=True, help="Reconcile and wait; else a supervisor does.")(command)


def _control_options(command: F) -> F:
    """Add the argument and options that all commands here take."""
    for add in (json_option, request_options, wait_options, store_option, click.argument("job")):
        command = add(command)
    return command


@click.command(cls=DocumentedCommand, examples=("tidemark start rides",))
@_control_options
@missing_epochs_option
def start(
    job: str, store: str | None, *, missing_epochs: MissingEpochs | None, wait: bool, timeout: int, by: str, why: str, as_json: bool
) -> None:
    """Start a stopped or failed job, and wait until it works. JOB is a job's name.

    It works once its driver has published an epoch, or has polled its sources and found no input.
    """
    root = existing_store(store)
    _ask(root, JobClient(root, by).start(job, why, missing_epochs=missing_epochs), "working", wait=wait, timeout=timeout, as_json=as_json)


@click.command(cls=DocumentedCommand, examples=("tidemark stop rides --why 'new disks'", "tidemark stop rides --drain --savepoint last"))
@_control_options
@click.option("--drain", is_flag=True, help="First read all input and close all windows: the input has ended for good.")
@click.option("--savepoint", is_flag=False, flag_value="", default=None, metavar="[NAME]", help="Take a savepoint after it has stopped.")
def stop(
    job: str, store: str | None, *, drain: bool, savepoint: str | None, wait: bool, timeout: int, by: str, why: str, as_json: bool
) -> None:
    """Stop a job after the current epoch, and wait until it has ended. JOB is a job's name."""
    root = existing_store(store)
    if savepoint is not None and not wait:
        raise DefinitionError(
            "--savepoint is taken after the job has ended, and --no-wait does not wait for that", fix="leave one of them out"
        )
    if savepoint:
        from tidemark.savepoints.core.savepoint_store import SavepointStore

        SavepointStore(root, job).require_free(savepoint)
    made = JobClient(root, by).stop(job, "drain" if drain else "finish", why)
    _ask(root, made, "ended", wait=wait, timeout=timeout, as_json=as_json)
    if savepoint is not None:
        from tidemark.control.client.savepoint_client import SavepointClient
        from tidemark.savepoints.core.savepoint_document import savepoint_document

        client = SavepointClient(root, job, by)
        taken = client.take(savepoint or None, kind="stop", note=why)
        click.echo(str(taken)) if not as_json else echo_json(savepoint_document(taken, client.savepoints.restorable(taken)[0]))


@click.command(cls=DocumentedCommand, examples=("tidemark cancel rides --why 'it hangs'",))
@_control_options
def cancel(job: str, store: str | None, *, wait: bool, timeout: int, by: str, why: str, as_json: bool) -> None:
    """End a job's driver at once; the next driver runs the current epoch again. JOB is a job's name."""
    root = existing_store(store)
    _ask(root, JobClient(root, by).stop(job, "now", why), "ended", wait=wait, timeout=timeout, as_json=as_json)


@click.command(cls=DocumentedCommand, examples=("tidemark restart rides --why 'new driver'",))
@_control_options
def restart(job: str, store: str | None, *, wait: bool, timeout: int, by: str, why: str, as_json: bool) -> None:
    """Restart a job's driver after the current epoch, and wait until it runs. JOB is a job's name."""
    root = existing_store(store)
    _ask(root, JobClient(root, by).restart(job, why), "working", wait=wait, timeout=timeout, as_json=as_json)


@click.command(cls=DocumentedCommand, examples=("tidemark suspend rides --why maintenance",))
@click.argument("job")
@store_option
@request_options
@json_option
def suspend(job: str, store: str | None, *, by: str, why: str, as_json: bool) -> None:
    """Request that a job stops after the current epoch; a supervisor stops it. JOB is a job's name."""
    root = existing_store(store)
    echo_generation(JobClient(root, by).stop(job, "finish", why or "suspend"), as_json=as_json)


@click.command(cls=DocumentedCommand, examples=("tidemark resume rides",))
@click.argument("job")
@store_option
@request_options
@json_option
def resume(job: str, store: str | None, *, by: str, why: str, as_json: bool) -> None:
    """Request that a suspended job runs again; a supervisor starts it. JOB is a job's name."""
    root = existing_store(store)
    echo_generation(JobClient(root, by).start(job, why or "resume"), as_json=as_json)


def wait_for(
    root: JobStore, made: SpecGeneration, goal: Goal, *, timeout_ms: int, as_json: bool, launchers: Mapping[str, Launcher]
) -> None:
    """Wait for a generation's goal, with a line on standard error for each change; a failed job ends the command with an exit code.

    Raises:
        NotReachedError: the timeout expired.
    """
    waiting = Waiting(root, launchers)

    def on_progress(view: JobView) -> None:
        echo_view(view, err=True)

    view = waiting.until(
        made.spec.job, goal, generation=made.generation, timeout_ms=timeout_ms, on_progress=None if as_json else on_progress
    )
    if as_json:
        echo_json(view)
    else:
        echo_view(view)
    require_reached(view, goal)


def require_reached(view: JobView, goal: Goal) -> None:
    """End the command with an exit code if the job failed, or does not run although it should."""
    said = shortfall(view, goal)
    if said is not None:
        click.echo(f"tidemark: {said}", err=True)
        click.get_current_context().exit(UNHEALTHY_EXIT)


def _ask(root: JobStore, made: SpecGeneration, goal: Goal, *, wait: bool, timeout: int, as_json: bool) -> None:
    if wait:
        wait_for(root, made, goal, timeout_ms=timeout, as_json=as_json, launchers=launchers_here())
    else:
        echo_generation(made, as_json=as_json)


def echo_view(view: JobView, *, err: bool = False) -> None:
    """Print a job's state in one line; for a failing or dead job with the error that ended its driver."""
    click.echo(view_line(view), err=err)


def echo_generation(made: SpecGeneration, *, as_json: bool) -> None:
    """Print the new generation."""
    if as_json:
        echo_json(made)
    else:
        click.echo(f"{made.spec.job}: generation {made.generation}, wanted {made.spec.wanted}")
