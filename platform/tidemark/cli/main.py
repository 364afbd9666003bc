"""The ``tidemark`` command: run a job, see how it is, what it did, and how it is built.

``status`` and ``history`` read small files of the job store and start no JVM.
"""

from __future__ import annotations

import json
import logging
import sys

import click

from tidemark.cli.loading import load_job
from tidemark.cli.tables import history_table, status_text
from tidemark.clock import SYSTEM_CLOCK
from tidemark.durations import to_ms
from tidemark.errors import TidemarkError, UnknownJobError
from tidemark.state.codec import to_plain
from tidemark.state.heartbeat import read_heartbeat, silent_since
from tidemark.state.history import read_history
from tidemark.state.joblog import DEFAULT_LEASE_MS
from tidemark.state.layout import job_folder
from tidemark.state.progress import EpochProgress, encode_progress, format_progress
from tidemark.state.status import JobStatus, list_jobs, read_status
from tidemark.state.store import JobStore

_store = click.option(
    "--store", envvar="TIDEMARK_STORE", default=None, help="Root of the job store.  [default: the job's own, else .tidemark/jobs]"
)
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document per line, for scripts.")


class _Group(click.Group):
    """Turns Tidemark's errors into one line on standard error and exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            click.echo(f"tidemark: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark")
def main() -> None:
    """Event-time streams on Spark, with Flink's semantics."""


@main.command()
@click.argument("job", metavar="MODULE:JOB")
@_store
@click.option("--trigger", default=None, help="Run on, an epoch at most this often, such as '10 seconds'; without it drain and stop.")
@click.option("--end-of-input", is_flag=True, help="After the drain close all windows: no more will ever come.")
@click.option("--takeover", is_flag=True, help="Take the job from a driver that is still alive.")
@click.option("--max-epochs", type=click.IntRange(min=1), default=None, help="Stop after so many epochs.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@_json
def run(
    job: str,
    store: str | None,
    trigger: str | None,
    max_epochs: int | None,
    master: str,
    *,
    end_of_input: bool,
    takeover: bool,
    as_json: bool,
) -> None:
    """Run a job: until its sources are drained, or with --trigger until SIGINT or SIGTERM."""
    if trigger is not None:
        to_ms(trigger, what="trigger")
    found = load_job(job)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    # It tells of every call between Python and the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from tidemark.spark.run import run as run_job
    from tidemark.spark.session import build_session

    def report(progress: EpochProgress) -> None:
        if as_json:
            click.echo(json.dumps(encode_progress(progress)))

    result = run_job(
        found,
        store=store,
        trigger=trigger,
        end_of_input=end_of_input,
        takeover=takeover,
        max_epochs=max_epochs,
        spark=build_session(master, app_name=f"tidemark {found.name}"),
        on_epoch=report,
    )
    if not as_json:
        head = result.head
        click.echo(f"{result.job}: {len(result.epochs)} epochs, {result.rows_in} rows read")
        if head is not None:
            click.echo(format_progress(head))


@main.command()
@click.argument("job", required=False)
@_store
@_json
def status(job: str | None, store: str | None, *, as_json: bool) -> None:
    """Show what a job is doing, or all jobs of the store. JOB is a job's name."""
    root = _open(store)
    names = [job] if job else list_jobs(root)
    if not names:
        click.echo(f"no jobs in {root.uri}")
    for name in names:
        found = read_status(root, name)
        if found is None:
            raise _unknown(name, root)
        click.echo(json.dumps(to_plain(found)) if as_json else _status_text(found, root))


@main.command()
@click.argument("job")
@_store
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many epochs.")
@_json
def history(job: str, store: str | None, limit: int, *, as_json: bool) -> None:
    """Show the newest epochs of a job, newest last. JOB is a job's name."""
    root = _open(store)
    epochs = read_history(root, job, limit)
    if not epochs and read_status(root, job) is None:
        raise _unknown(job, root)
    if as_json:
        for epoch in epochs:
            click.echo(json.dumps(encode_progress(epoch)))
    else:
        click.echo(history_table(epochs))


@main.command()
@click.argument("job", metavar="MODULE:JOB")
@click.option("--format", "form", type=click.Choice(["text", "mermaid"]), default="text", show_default=True)
def graph(job: str, form: str) -> None:
    """Draw a job's graph. Starts no JVM."""
    click.echo(load_job(job).explain("mermaid" if form == "mermaid" else "text"))


def _status_text(status: JobStatus, root: JobStore) -> str:
    beat = read_heartbeat(root.at(job_folder(status.job)))
    silent = silent_since(beat, status.heartbeat_at, now_ms=SYSTEM_CLOCK.now_ms(), lease_ms=DEFAULT_LEASE_MS)
    last = status.heartbeat_at if beat is None else max(status.heartbeat_at, beat.at)
    return status_text(status, heartbeat=last, silent=silent is not None)


def _open(store: str | None) -> JobStore:
    return JobStore.open(store or ".tidemark/jobs")


def _unknown(name: str, root: JobStore) -> UnknownJobError:
    known = ", ".join(list_jobs(root)) or "none"
    return UnknownJobError(
        f"there is no job {name!r} in {root.uri}", fix=f"name one of those there are ({known}), or give --store", job=name
    )
