"""``tidemark run`` and ``tidemark graph``: run a job in this process, and draw its graph."""

from __future__ import annotations

import json
import logging

import click

from tidemark.cli.jobs.next_command import naming_store
from tidemark.cli.jobs.rename_options import map_options, maps_of
from tidemark.cli.program.console_log import log_to_console
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import json_option, missing_epochs_option, pairs, store_option
from tidemark.control.desired.job_document import job_document
from tidemark.control.desired.job_import import load_job
from tidemark.control.desired.spec_checks import checked_settings
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError
from tidemark.graph.job.environment import require_environment
from tidemark.savepoints.model.restore import Restore
from tidemark.spark.loop.start.before_start import check_before_start, store_of_run
from tidemark.state.log.progress import EpochProgress, MissingEpochs, encode_progress, format_progress


@click.command(
    cls=DocumentedCommand,
    examples=(
        "tidemark run first_job:job",
        "tidemark run rides:job --trigger '10 seconds' --conf spark.ui.enabled=false",
        "tidemark run src/project/defs/rides/defs.yaml",
    ),
)
@click.argument("job", metavar="MODULE:JOB")
@store_option
@click.option("--trigger", default=None, help="Keep running, an epoch at most this often, such as '10 seconds'; without it drain and stop.")
@click.option("--end-of-input", is_flag=True, help="After the drain close all windows: the input has ended for good.")
@click.option("--takeover", is_flag=True, help="Take the job from a driver that is still alive.")
@click.option("--max-epochs", type=click.IntRange(min=1), default=None, help="Stop after this many epochs.")
@click.option("--parallelism", type=click.IntRange(min=1), default=None, help="Shuffle partitions.  [default: the job's]")
@click.option("--restore", "savepoint", default=None, metavar="SAVEPOINT", help="Restore from a savepoint, under a new lineage.")
@click.option("--restore-of", default="", metavar="JOB", help="The job whose savepoint it is.  [default: the same]")
@map_options(only_with="--restore")
@click.option("--claim", is_flag=True, help="With --restore: dispose of the savepoint once the job no longer needs it.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
@missing_epochs_option
@json_option
def run(
    job: str,
    store: str | None,
    trigger: str | None,
    max_epochs: int | None,
    master: str,
    *,
    conf: tuple[str, ...],
    parallelism: int | None,
    savepoint: str | None,
    restore_of: str,
    uids: tuple[str, ...],
    columns: tuple[str, ...],
    allow: bool,
    claim: bool,
    missing_epochs: MissingEpochs | None,
    end_of_input: bool,
    takeover: bool,
    as_json: bool,
) -> None:
    """Run a job in this process: until its sources are drained, or with --trigger until SIGINT or SIGTERM.

    A job in YAML (`TidemarkStreamComponent`) is named by its file, here and wherever else MODULE:JOB is taken.
    """
    if trigger is not None:
        to_ms(trigger, what="trigger")
    settings = checked_settings(pairs("--conf", conf))
    restore = _restore(savepoint, restore_of, uids, columns, allow=allow, claim=claim)
    found = load_job(job)
    # A bad store location fails here, before Spark starts.
    root = store_of_run(found, store)
    # These checks need no JVM; the run itself repeats them.
    with naming_store(root):
        check_before_start(found, root, restore)
    require_environment(found)
    log_to_console()
    # At INFO it logs every call between Python and the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from tidemark.spark.loop.run import run as run_job
    from tidemark.spark.loop.start.engine_start import session_and_engine

    def report(progress: EpochProgress) -> None:
        if as_json:
            click.echo(json.dumps(encode_progress(progress)))

    with naming_store(root):
        result = run_job(
            found,
            store=root.uri,
            trigger=trigger,
            end_of_input=end_of_input,
            takeover=takeover,
            max_epochs=max_epochs,
            spark=session_and_engine(found.name, master, conf=settings),
            on_epoch=report,
            restore=restore,
            parallelism=None if parallelism is None else lambda: parallelism,
            missing_epochs=missing_epochs,
        )
    if not as_json:
        head = result.head
        click.echo(f"{result.job}: {result.epochs_run} epochs, {result.rows_in} rows read")
        if head is not None:
            click.echo(format_progress(head))


@click.command(
    cls=DocumentedCommand,
    examples=("tidemark graph first_job:job", "tidemark graph first_job:job --format mermaid", "tidemark graph first_job:job --json"),
)
@click.argument("job", metavar="MODULE:JOB")
@click.option(
    "--format", "form", type=click.Choice(["text", "mermaid"]), default="text", show_default=True, help="Text, or a chart for Mermaid."
)
@click.option("--schedule", is_flag=True, help="Print the passes of an epoch, in order.")
@json_option
def graph(job: str, form: str, *, schedule: bool, as_json: bool) -> None:
    """Draw a job's graph. Starts no JVM."""
    if schedule and form != "text":
        raise DefinitionError("a schedule has no --format mermaid", fix="leave out --schedule, or --format")
    if as_json:
        if schedule or form != "text":
            raise DefinitionError("--json describes the whole job: it has no --schedule and no --format", fix="leave these out, or --json")
        click.echo(job_document(job))
        return
    found = load_job(job)
    if not schedule:
        click.echo(found.explain("mermaid" if form == "mermaid" else "text"))
        return
    from tidemark.spark.epoch.schedule import build_schedule
    from tidemark.spark.epoch.topology import build_topology

    click.echo(build_schedule(build_topology(found.outputs)).describe())


def _restore(
    savepoint: str | None, job: str, uids: tuple[str, ...], columns: tuple[str, ...], *, allow: bool, claim: bool
) -> Restore | None:
    if savepoint is None:
        if job or uids or columns or allow or claim:
            raise DefinitionError(
                "--restore-of, --map, --column, --allow-non-restored-state and --claim require --restore", fix="name the savepoint"
            )
        return None
    maps = maps_of(uids, columns, allow=allow)
    return Restore(
        savepoint,
        uids=maps.uids,
        allow_non_restored_state=maps.allow_non_restored_state,
        mode="claim" if claim else "no-claim",
        job=job,
        columns=maps.columns,
    )
