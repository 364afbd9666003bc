"""``tidemark savepoint``: trigger, list, show, export, import, dispose, diff. No JVM is started, and the job may run."""

from __future__ import annotations

import sys
from typing import Final

import click

from tidemark.cli.jobs.savepoint_text import difference_text, savepoint_table, savepoint_text
from tidemark.cli.program.command_groups import LazyGroup, Sections, entries
from tidemark.cli.program.options import echo_json, existing_store, json_option, open_store, pairs, store_option
from tidemark.control.client.savepoint_client import SavepointClient
from tidemark.control.view.job_views import require_known
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.core.savepoint_document import savepoint_document
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.export_format import CopyProgress, OnCopy
from tidemark.state.encoding.codec import to_jsonable

_SECTIONS: Final[Sections] = {
    "Savepoints": entries(
        ("trigger", "savepoints.savepointing:trigger", "Take a savepoint of a job, whether it runs or not."),
        ("list", "savepoints.savepointing:list_savepoints", "List the savepoints of a job, oldest first."),
        ("show", "savepoints.savepointing:show", "Show a savepoint's details."),
        ("diff", "savepoints.savepointing:diff", "Show what changed from one savepoint to another; `tidemark diff` compares tables."),
        ("export", "savepoints.savepointing:export", "Copy a savepoint with all its files into a folder."),
        ("import", "savepoints.savepointing:import_command", "Import an exported savepoint into a job."),
        ("dispose", "savepoints.savepointing:dispose", "Dispose of savepoints."),
    ),
    "Rewind and fork (also without `savepoint`)": entries(
        ("rewind", "savepoints.rewinding:rewind", "Rewind a job to a savepoint, with its Delta tables."),
        ("fork", "savepoints.forking:fork", "Start a variant of a job from a savepoint, with separate tables."),
        ("discard", "savepoints.forking:discard", "Delete a stopped fork, with its tables."),
        ("promote", "jobs.upgrading:promote", "Upgrade a job to the code of its fork."),
    ),
}


_EXAMPLES: Final = ("tidemark savepoint trigger fares --name before", "tidemark savepoint rewind fares --to before --stop")


@click.group(cls=LazyGroup, sections=_SECTIONS, examples=_EXAMPLES)
def savepoint() -> None:
    """Name epochs that a job can be rewound to; each costs one small file."""


@savepoint.command(examples=("tidemark savepoint trigger fares --name before --note 'before the new tariff'",))
@click.argument("job")
@store_option
@click.option("--name", default=None, help="Its name.  [default: sp-EPOCH-TIME]")
@click.option("--epoch", type=click.IntRange(min=0), default=None, help="A retained epoch.  [default: the newest]")
@click.option("--lineage", default=None, help="The epoch's lineage.  [default: the newest that has it]")
@click.option("--note", default="", help="A comment.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--by", default="", help="Who takes it.  [default: user@host]")
@json_option
def trigger(
    *,
    job: str,
    store: str | None,
    name: str | None,
    epoch: int | None,
    lineage: str | None,
    note: str,
    labels: tuple[str, ...],
    by: str,
    as_json: bool,
) -> None:
    """Take a savepoint of a job, whether it runs or not. JOB is a job's name."""
    client = _client(store, job, by)
    taken = client.take(name, epoch=epoch, lineage=lineage, note=note, labels=pairs("--label", labels))
    if as_json:
        echo_json(savepoint_document(taken, client.savepoints.restorable(taken)[0]))
    else:
        click.echo(str(taken))


@savepoint.command("list", examples=("tidemark savepoint list fares",))
@click.argument("job")
@store_option
@json_option
def list_savepoints(job: str, store: str | None, *, as_json: bool) -> None:
    """List the savepoints of a job, oldest first. JOB is a job's name."""
    savepoints = _savepoints(store, job)
    found = savepoints.list()
    restorable = savepoints.restorable(*found)
    if as_json:
        for item, limits in zip(found, restorable, strict=True):
            echo_json(savepoint_document(item, limits))
    else:
        click.echo(savepoint_table(found, restorable) if found else f"{job} has no savepoints")


@savepoint.command(examples=("tidemark savepoint show fares before",))
@click.argument("job")
@click.argument("name")
@store_option
@json_option
def show(job: str, name: str, store: str | None, *, as_json: bool) -> None:
    """Show a savepoint's details. JOB is a job's name, NAME the savepoint's."""
    found = _savepoints(store, job)
    item, holds = found.get(name), found.file_references(name)
    (restorable,) = found.restorable(item)
    if as_json:
        echo_json(savepoint_document(item, restorable, holds))
    else:
        click.echo(savepoint_text(item, holds, restorable))


@savepoint.command(examples=("tidemark savepoint export fares before /backup/fares-before",))
@click.argument("job")
@click.argument("name")
@click.argument("to")
@store_option
@json_option
def export(job: str, name: str, to: str, store: str | None, *, as_json: bool) -> None:
    """Copy a savepoint with all its files into the folder TO; given again, it resumes where it stopped."""
    index = _client(store, job).export(name, to, on_copy=_progress(as_json=as_json))
    if as_json:
        echo_json({"job": job, "name": name, "to": to, "files": len(index.files), "bytes": index.bytes})
    else:
        click.echo(f"{name}: {len(index.files)} files, {index.bytes} bytes at {to}")


@savepoint.command("import", examples=("tidemark savepoint import fares /backup/fares-before",))
@click.argument("job")
@click.argument("source")
@store_option
@click.option("--name", default=None, help="Its name here.  [default: the one it had]")
@click.option("--by", default="", help="Who imports it.  [default: user@host]")
@json_option
def import_command(job: str, source: str, store: str | None, name: str | None, *, by: str, as_json: bool) -> None:
    """Import an exported savepoint from the folder SOURCE into a job; the job need not have run yet."""
    client = SavepointClient(open_store(store), job, by)
    taken = client.take_in(source, name, on_copy=_progress(as_json=as_json))
    if as_json:
        echo_json(savepoint_document(taken, client.savepoints.restorable(taken)[0]))
    else:
        click.echo(str(taken))


@savepoint.command(examples=("tidemark savepoint dispose fares before", "tidemark savepoint dispose fares --retire --keep 5"))
@click.argument("job")
@click.argument("names", nargs=-1)
@store_option
@click.option("--retire", is_flag=True, help="Dispose of automatic savepoints that retention no longer keeps, instead of named ones.")
@click.option("--keep", type=click.IntRange(min=0), default=10, show_default=True, help="With --retire: how many are kept.")
@click.option("--age", default="7 days", show_default=True, help="With --retire: how long they are kept.")
@json_option
def dispose(job: str, names: tuple[str, ...], store: str | None, *, retire: bool, keep: int, age: str, as_json: bool) -> None:
    """Dispose of savepoints; a later sweep deletes the files that only they kept. JOB is a job's name, NAMES are the savepoints'."""
    if bool(names) == retire:
        raise DefinitionError("dispose takes either names or --retire", fix=f"write `tidemark savepoint dispose {job} NAME`, or --retire")
    client = _client(store, job)
    gone = client.retire(SavepointRetention(keep, to_ms(age, what="age"))) if retire else client.dispose(names)
    for item in gone:
        if as_json:
            echo_json({"job": job, "name": item.name, "disposed": True})
        else:
            click.echo(f"{item.name}: disposed")


@savepoint.command(examples=("tidemark savepoint diff fares before after",))
@click.argument("job")
@click.argument("name")
@click.argument("other")
@store_option
@json_option
def diff(job: str, name: str, other: str, store: str | None, *, as_json: bool) -> None:
    """Show what changed from one savepoint of a job to another."""
    found = _savepoints(store, job).diff(name, other)
    if as_json:
        echo_json(to_jsonable(found))
    else:
        click.echo(difference_text(found))


def _client(store: str | None, job: str, by: str = "") -> SavepointClient:
    root = existing_store(store)
    require_known(root, job)
    return SavepointClient(root, job, by)


def _savepoints(store: str | None, job: str) -> SavepointStore:
    return _client(store, job).savepoints


def _progress(*, as_json: bool) -> OnCopy | None:
    """Return the callback that shows a copy's progress, on a terminal only."""
    if as_json or not sys.stderr.isatty():
        return None

    def show(progress: CopyProgress) -> None:
        share = 100 * progress.bytes // max(progress.of_bytes, 1)
        ended = progress.files == progress.of_files
        click.echo(f"\r{progress.files}/{progress.of_files} files, {share} %", err=True, nl=ended)

    return show
