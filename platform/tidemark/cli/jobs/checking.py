"""``tidemark check``: whether changed code is compatible with stored state, for continuous integration. Starts no JVM."""

from __future__ import annotations

import click

from tidemark.cli.jobs.rename_options import map_options, maps_of
from tidemark.cli.program.check_exit import EXIT_NO, YesNoCommand
from tidemark.cli.program.options import echo_json, existing_store, json_option, store_option
from tidemark.control.desired.job_import import load_job
from tidemark.graph.job.environment import unset_variables
from tidemark.savepoints.compatibility.checking import HEAD, check
from tidemark.savepoints.model.verdict import Verdict
from tidemark.state.encoding.codec import to_jsonable


@click.command(
    "check",
    cls=YesNoCommand,
    examples=("tidemark check new_fares:job", "tidemark check new_fares:job --against before --map old-uid=new-uid"),
)
@click.argument("job", metavar="MODULE:JOB")
@store_option
@click.option("--against", default=HEAD, show_default=True, metavar="SAVEPOINT", help="A savepoint, or 'head' for the newest epoch.")
@click.option("--of", default=None, metavar="JOB", help="The job whose state it is.  [default: the same]")
@map_options()
@json_option
def check_job(
    *,
    job: str,
    store: str | None,
    against: str,
    of: str | None,
    uids: tuple[str, ...],
    columns: tuple[str, ...],
    allow: bool,
    as_json: bool,
) -> None:
    """Check changed code against stored state: exit code 0 if it is compatible, 1 if not, with every finding; 2 for an error."""
    changed = load_job(job)
    maps = maps_of(uids, columns, allow=allow)
    found = check(
        changed,
        against,
        store=existing_store(store or changed.store),
        of=of,
        uids=maps.uids,
        columns=maps.columns,
        allow_non_restored_state=maps.allow_non_restored_state,
    )
    for needed in unset_variables(changed):
        # The machine that checks code need not be one that may open its places.
        click.echo(f"note: the environment variable {needed.name}, which holds {needed.holds}, is not set here; a run needs it", err=True)
    if as_json:
        echo_json(plain_verdict(found))
    else:
        click.echo(found.text())
    if not found.fits:
        click.get_current_context().exit(EXIT_NO)


def plain_verdict(found: Verdict) -> dict[str, object]:
    """Return a verdict as plain JSON, with its status and whether the code is compatible (``fits``)."""
    return {"status": found.status, "fits": found.fits, **to_jsonable(found)}
