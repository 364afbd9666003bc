"""``tidemark fork``, ``diff`` and ``discard``: run other code beside a job, and compare the results."""

from __future__ import annotations

import click

from tidemark.cli.jobs.rename_options import map_options, maps_of
from tidemark.cli.jobs.start_stop import echo_generation, wait_for, wait_options
from tidemark.cli.program.check_exit import EXIT_NO, YesNoCommand
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import absolute_path, echo_json, existing_store, json_option, pairs, request_options, store_option
from tidemark.control.desired.job_import import job_code
from tidemark.control.forks import forks
from tidemark.control.forks.discarding import discard as discard_fork
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.view.job_views import views


@click.command(cls=DocumentedCommand, examples=("tidemark fork fares --from before --as fares-new --code new_fares:job",))
@click.argument("job")
@store_option
@click.option("--from", "savepoint", required=True, metavar="SAVEPOINT", help="A savepoint of the job.")
@click.option("--as", "name", required=True, metavar="NAME", help="The fork's name.")
@click.option("--code", default=None, metavar="MODULE:JOB", help="The changed code.  [default: the job's own]")
@click.option("--version", default="", help="A label of the changed code.")
@click.option("--code-path", "code_paths", multiple=True, metavar="PATH", help="Folder, zip or wheel with it.  [default: the job's own]")
@click.option("--folder", default=None, help="Working directory of its driver.  [default: the job's own]")
@click.option("--env", "variables", multiple=True, metavar="KEY=VALUE", help="A parameter: a variable for its driver; no secrets.")
@click.option("--outputs", default=None, metavar="ROOT", help="Folder of the fork's tables.  [default: in the fork's own folder]")
@map_options()
@click.option("--suspended", is_flag=True, help="Do not start it yet.")
@wait_options
@request_options
@json_option
def fork(
    *,
    job: str,
    store: str | None,
    savepoint: str,
    name: str,
    code: str | None,
    version: str,
    code_paths: tuple[str, ...],
    folder: str | None,
    variables: tuple[str, ...],
    outputs: str | None,
    uids: tuple[str, ...],
    columns: tuple[str, ...],
    allow: bool,
    suspended: bool,
    wait: bool,
    timeout: int,
    by: str,
    why: str,
    as_json: bool,
) -> None:
    """Start a variant of a job from a savepoint: same input, other code or parameters, separate tables. JOB is a job's name.

    The code is checked against the savepoint first, as `tidemark check` does; if it is incompatible, nothing is started.
    """
    root, maps = existing_store(store), maps_of(uids, columns, allow=allow)
    changed = job_code(code) if code is not None else None
    made = forks.fork(
        root,
        job,
        savepoint,
        name=name,
        code=changed.code if changed is not None else None,
        definition=changed.definition if changed is not None else None,
        version=version,
        code_paths=tuple(map(absolute_path, code_paths)) or None,
        folder=absolute_path(folder) if folder is not None else None,
        variables=pairs("--env", variables),
        outputs=outputs,
        maps=maps,
        start=not suspended,
        by=by,
        why=why,
    )
    if suspended or not wait:
        echo_generation(made, as_json=as_json)
    else:
        wait_for(root, made, "working", timeout_ms=timeout, as_json=as_json, launchers=launchers_here())


@click.command(cls=YesNoCommand, examples=("tidemark diff fares fares-new --output hourly",))
@click.argument("job")
@click.argument("other")
@store_option
@click.option("--output", required=True, help="The output, by its name in both jobs.")
@click.option("--key", "keys", multiple=True, metavar="COLUMN", help="A key column of the rows.  [default: from its windows]")
@click.option("--samples", type=click.IntRange(min=0), default=10, show_default=True, help="Show rows of this many keys.")
@json_option
def diff(job: str, other: str, store: str | None, *, output: str, keys: tuple[str, ...], samples: int, as_json: bool) -> None:
    """Compare an output's rows in two jobs' tables: added, removed, changed. Exit code 1 if they differ, 2 for an error."""
    root = existing_store(store)
    for name in (job, other):
        views(root, name)
    found = forks.diff_output(root, job, other, output, keys=keys, samples=samples)
    if as_json:
        echo_json(found.document())
    else:
        click.echo(found.text())
    if not found.equal:
        click.get_current_context().exit(EXIT_NO)


@click.command(cls=DocumentedCommand, examples=("tidemark discard fares-new",))
@click.argument("job")
@store_option
@json_option
def discard(job: str, store: str | None, *, as_json: bool) -> None:
    """Delete a stopped fork, with its tables. JOB is the fork's name."""
    gone = discard_fork(existing_store(store), job)
    if as_json:
        echo_json({"job": job, "deleted": list(gone)})
    else:
        click.echo("\n".join(f"deleted {place}" for place in gone))
