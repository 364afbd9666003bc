"""``tidemark rewind`` and ``tidemark rescale``: rewind a job to a savepoint with its tables; change a job's parallelism."""

from __future__ import annotations

import click

from tidemark.cli.jobs.start_stop import echo_generation, echo_view, require_reached, wait_for, wait_options
from tidemark.cli.program.check_exit import EXIT_NO, YesNoCommand
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import DURATION, echo_json, existing_store, json_option, request_options, store_option
from tidemark.control.client.job_client import JobClient
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.rewind.rewind_job import Rewinder
from tidemark.control.view.job_views import require_known
from tidemark.errors import DefinitionError
from tidemark.savepoints.rewind.rewind_plan import RewindPlan
from tidemark.savepoints.rewind.rewinding import preview_rewind
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.store import JobStore


@click.command(cls=YesNoCommand, examples=("tidemark rewind fares --to before --dry-run", "tidemark rewind fares --to before --stop"))
@click.argument("job")
@store_option
@click.option("--to", "name", default=None, metavar="SAVEPOINT", help="The savepoint.")
@click.option("--abort", is_flag=True, help="Abort an unfinished rewind; only possible while no table was reverted.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the plan and what blocks it; exit code 1 if something blocks it, 2 for an error.",
)
@click.option("--stop", "stop_first", is_flag=True, help="Stop a submitted job first, start it again afterwards, and wait.")
@click.option(
    "--timeout", type=DURATION, default="10 minutes", show_default=True, help="How long to wait for it to stop, and to run again."
)
@request_options
@json_option
def rewind(
    *,
    job: str,
    store: str | None,
    name: str | None,
    abort: bool,
    dry_run: bool,
    stop_first: bool,
    timeout: int,
    by: str,
    why: str,
    as_json: bool,
) -> None:
    """Rewind a job to a savepoint, with its Delta tables. After a crash, give it again to continue. JOB is a job's name."""
    if (name is not None) == abort or (abort and (dry_run or stop_first)):
        raise DefinitionError(
            "rewind takes either --to SAVEPOINT or --abort, and --abort takes no other option", fix="leave one of them out", job=job
        )
    root = existing_store(store)
    require_known(root, job)
    if name is None:
        _abort(root, job, by=by, as_json=as_json)
        return
    if dry_run:
        plan = preview_rewind(root, job, name)
        if as_json:
            echo_json(to_jsonable(plan))
        else:
            click.echo(_plan_text(plan))
        if plan.refusals:
            click.get_current_context().exit(EXIT_NO)
        return
    echo, show = (None, None) if as_json else (click.echo, echo_view)
    done = Rewinder(root, launchers_here(), timeout, by, on_progress=echo, on_status=show).rewind(job, name, stop=stop_first, why=why)
    if as_json:
        echo_json({"job": job, "savepoint": name, "epoch": done.head.epoch, "lineage": done.head.lineage})
    if done.view is not None:
        if as_json:
            echo_json(done.view)
        require_reached(done.view, "running")


@click.command(cls=DocumentedCommand, examples=("tidemark rescale rides 8",))
@click.argument("job")
@click.argument("parallelism", type=click.IntRange(min=1))
@store_option
@wait_options
@request_options
@json_option
def rescale(job: str, parallelism: int, store: str | None, *, wait: bool, timeout: int, by: str, why: str, as_json: bool) -> None:
    """Change a submitted job's parallelism from its driver's next epoch on, without a restart. JOB is a job's name."""
    root = existing_store(store)
    made = JobClient(root, by).rescale(job, parallelism, why)
    if wait and made.spec.wanted == "running":
        wait_for(root, made, "running", timeout_ms=timeout, as_json=as_json, launchers=launchers_here())
    else:
        echo_generation(made, as_json=as_json)


def _abort(root: JobStore, job: str, *, by: str, as_json: bool) -> None:
    journal = Rewinder(root, launchers_here(), timeout_ms=0, by=by, on_progress=None if as_json else click.echo).abort(job)
    if as_json:
        echo_json({"job": job, "savepoint": journal.savepoint, "aborted": True})


def _plan_text(plan: RewindPlan) -> str:
    lines = [f"from epoch {plan.from_epoch} back to epoch {plan.epoch} ({plan.savepoint})"]
    lines += [f"  table of {output}: publishes the committed epoch {plan.from_epoch} first" for output in plan.unpublished]
    for output, table in sorted(plan.tables.items()):
        what = f"back to version {table.version}" if output in plan.changed else f"unchanged, at the content of version {table.version}"
        lines.append(f"  table of {output}: {what}")
    for output, place in sorted(plan.places.items()):
        what = f"rows of epochs after {plan.epoch} are deleted" if output in plan.changed else "unchanged"
        lines.append(f"  {place.location} of {output}: {what}")
    lines += [f"  output {output} is not reverted: {meaning}" for output, meaning in plan.left.items()]
    lines += [f"  refused: {reason}" for reason in plan.refusals]
    return "\n".join(lines)
