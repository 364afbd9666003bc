"""``tidemark check``: whether changed code could go on from what is stored, for continuous integration. Starts no JVM."""

from __future__ import annotations

import click

from tidemark.cli.answering import NO, AnsweringCommand
from tidemark.cli.options import echo_json, existing_store, json_option, pair, store_option, uid_pairs
from tidemark.control.loading import load_job
from tidemark.errors import DefinitionError
from tidemark.savepoints.checking import HEAD, check
from tidemark.savepoints.verdict import Verdict
from tidemark.state.codec import to_plain


@click.command("check", cls=AnsweringCommand)
@click.argument("job", metavar="MODULE:JOB")
@store_option
@click.option("--against", default=HEAD, show_default=True, metavar="SAVEPOINT", help="A savepoint, or 'head', the newest epoch.")
@click.option("--of", default=None, metavar="JOB", help="The job whose state it is.  [default: the same]")
@click.option("--map", "uids", multiple=True, metavar="OLD=NEW", help="An operator has another uid now; may be repeated.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="UID:OLD=NEW",
    help="A key, aggregate or column has another name now; no NEW: left behind.",
)
@click.option("--allow-non-restored-state", "allow", is_flag=True, help="Leave behind what belongs to nothing in the job.")
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
    """Check changed code against stored state: exit code 0 if the job could go on, 1 if not, with every finding; 2 for an error."""
    changed = load_job(job)
    found = check(
        changed,
        against,
        store=existing_store(store or changed.store),
        of=of,
        uids=uid_pairs(uids),
        columns=column_names(columns),
        allow_non_restored_state=allow,
    )
    if as_json:
        echo_json(plain_verdict(found))
    else:
        click.echo(found.text())
    if not found.fits:
        click.get_current_context().exit(NO)


def plain_verdict(found: Verdict) -> dict[str, object]:
    """Return a verdict as plain JSON, with what follows from it."""
    return {"status": found.status, "fits": found.fits, **to_plain(found)}


def column_names(texts: tuple[str, ...]) -> dict[str, dict[str, str | None]]:
    """Return what ``--column UID:OLD=NEW`` options say: new names by old ones, by uid; None where there is no new one.

    Raises:
        DefinitionError: one cannot be read.
    """
    found: dict[str, dict[str, str | None]] = {}
    for text in texts:
        place, new = pair("--column", text, "UID:OLD=NEW")
        uid, colon, old = place.partition(":")
        if not (uid and colon and old):
            raise DefinitionError(f"--column {text!r} names no operator's column", fix="write --column UID:OLD=NEW")
        found.setdefault(uid, {})[old] = new or None
    return found
