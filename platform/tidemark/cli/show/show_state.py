"""``tidemark state show``: a job's state, as a list of operators or as the table of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from tidemark.cli.program.command_groups import SuggestingGroup
from tidemark.cli.program.options import echo_json, existing_store, json_option, store_option, views
from tidemark.clock import format_ms
from tidemark.graph.operators.window.recorded_rules import describe_recorded_windows
from tidemark.savepoints.compatibility.checking import HEAD

if TYPE_CHECKING:
    from tidemark.spark.state_api.state_processor import StoredState

_WIDEST = 60
_COLUMNS = ("operator", "keeps", "windows", "keys", "aggregates", "rows", "bytes", "files", "watermark")


@click.group(cls=SuggestingGroup)
def state() -> None:
    """Inspect a job's stored state: its windows and keys."""


@state.command()
@click.argument("job")
@click.argument("uid", required=False)
@store_option
@click.option("--savepoint", "name", default=HEAD, show_default=True, help="A savepoint, or 'head' for the newest epoch.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many rows.")
@click.option("--where", default=None, metavar="SQL", help="A condition over the columns shown.")
@click.option("--elements", is_flag=True, help="Show the elements in windows instead of the windows.")
@click.option("--keyed", is_flag=True, help="Show keyed state instead of the windows.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@json_option
def show(
    *,
    job: str,
    uid: str | None,
    store: str | None,
    name: str,
    limit: int,
    where: str | None,
    elements: bool,
    keyed: bool,
    master: str,
    as_json: bool,
) -> None:
    """Show a job's stateful operators; with UID, the main table of one of them: for windows the open ones, one row per key and window.

    Without UID no JVM is started.
    """
    from tidemark.spark.state_api.state_processor import savepoint

    root = existing_store(store)
    if "/" not in job:
        views(root, job)
    found = savepoint(job, name, store=root)
    if uid is None:
        _show_operators(found, as_json=as_json)
        return
    if uid not in found.operators:
        raise click.ClickException(f"{job} has no state of {uid!r}; it has: {', '.join(found.operators) or 'none'}")
    if found.operators[uid].keeps == "nothing":
        raise click.ClickException(f"{uid!r} of {job} keeps no state: its kind is {found.operators[uid].kind}")
    rows = _rows(found, uid, kind="elements" if elements else "keyed" if keyed else "main", where=where, limit=limit, master=master)
    if as_json:
        for row in rows:
            click.echo(json.dumps(_plain(row)))
        return
    click.echo(table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows]) if rows else "no rows")
    if len(rows) == limit:
        click.echo(f"the first {limit}; --limit shows more", err=True)


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows with aligned columns under their names."""
    cut = [[cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 1]}…" for cell in row] for row in (names, *rows)]
    widths = [max(len(row[column]) for row in cut) for column in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut)


def _rows(found: StoredState, uid: str, *, kind: str, where: str | None, limit: int, master: str) -> list[dict[str, object]]:
    from tidemark.spark.env.session import build_session
    from tidemark.spark.state_api.state_processor import first_rows

    operator = found.operators[uid]
    click.echo(f"reading {operator.rows:,} rows in {operator.files} files of {uid}, epoch {found.epoch}", err=True)
    spark = build_session(master, app_name=f"tidemark state {found.job}")
    # Spark's default is 200 partitions; a job's state has no more keys than this machine can sort.
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    read = {"elements": found.read_elements, "keyed": found.read_keyed}
    rows = read[kind](uid, spark) if kind in read else next(iter(found.tables(uid, spark).values()))
    return first_rows(rows, where=where, limit=limit)


def _show_operators(found: StoredState, *, as_json: bool) -> None:
    if as_json:
        for operator in found.operators.values():
            echo_json(operator)
        return
    click.echo(f"{found.job}: epoch {found.epoch} of lineage {found.lineage}")
    rows = [
        [
            each.uid,
            each.keeps,
            describe_recorded_windows(each.windows) if each.windows else each.kind,
            ", ".join(each.keys) or "-",
            ", ".join(each.aggregates) or "-",
            f"{each.rows:,}",
            f"{each.bytes:,}",
            str(each.files),
            format_ms(each.watermark),
        ]
        for each in found.operators.values()
    ]
    click.echo(table(_COLUMNS, rows) if rows else "no state")


def _cell(value: object) -> str:
    plain = _plain(value)
    return "-" if plain is None else plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _plain(value: object) -> object:
    """Return a value as JSON has it; instants as text in UTC."""
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes() | bytearray():
            return f"{len(value)} bytes"
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value
