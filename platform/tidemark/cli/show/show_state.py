"""``tidemark state show``: a job's state, as a list of operators or as the table of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from tidemark.cli.program.command_groups import SuggestingGroup
from tidemark.cli.program.options import echo_json, existing_store, json_option, store_option
from tidemark.clock import format_ms
from tidemark.control.view.job_views import views
from tidemark.graph.operators.window.recorded_rules import describe_recorded_windows
from tidemark.savepoints.compatibility.checking import HEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemark.spark.state_api.state_processor import StoredState
    from tidemark.spark.state_api.stored_operators import StoredOperator

_WIDEST = 60
_COLUMNS = ("operator", "keeps", "windows", "keys", "aggregates, states", "rows", "bytes", "files", "watermark")


@click.group(cls=SuggestingGroup, examples=("tidemark state show rides", "tidemark state show rides counts"))
def state() -> None:
    """Inspect a job's stored state: its windows and keys."""


@state.command(examples=("tidemark state show rides", "tidemark state show rides counts --where 'n > 10' --limit 5"))
@click.argument("job")
@click.argument("uid", required=False)
@store_option
@click.option("--savepoint", "name", default=HEAD, show_default=True, help="A savepoint, or 'head' for the newest epoch.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many rows.")
@click.option("--where", default=None, metavar="SQL", help="A condition over the columns shown.")
@click.option("--key", "keys", multiple=True, metavar="NAME=VALUE", help="Only this value of a key's column; may be repeated.")
@click.option("--elements", is_flag=True, help="Show the elements in windows instead of the windows.")
@click.option("--keyed", is_flag=True, help="Show keyed state instead of the windows.")
@click.option("--timers", is_flag=True, help="Show timers with the times when they are due.")
@click.option("--broadcast", is_flag=True, help="Show the map that a broadcast stream wrote.")
@click.option("--table", "named", default=None, metavar="NAME", help="Another table of the operator, such as a join's right side.")
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
    keys: Sequence[str],
    elements: bool,
    keyed: bool,
    timers: bool,
    broadcast: bool,
    named: str | None,
    master: str,
    as_json: bool,
) -> None:
    """Show a job's stateful operators; with UID, the main table of one of them.

    For windows it has the open ones, one row per key and window; for process functions one row per key, with a column per state. Without
    UID no JVM is started.
    """
    from tidemark.spark.state_api.state_processor import savepoint

    root = existing_store(store)
    if "/" not in job:
        views(root, job)
    found = savepoint(job, name, store=root)
    given = {"elements": elements, "keyed": keyed, "timers": timers, "broadcast": broadcast, "table": named is not None}
    chosen = [name for name, wanted in given.items() if wanted]
    if uid is None:
        _require_no_options([*chosen, *(["where"] if where else []), *(["key"] if keys else [])], job, list(found.operators))
        _show_operators(found, as_json=as_json)
        return
    operator = found.operator(uid)
    if operator.keeps == "nothing":
        raise click.ClickException(f"{uid!r} of {job} keeps no state: its kind is {operator.kind}")
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} are two tables; give one")
    if not operator.windows and (elements or keyed):
        raise click.UsageError(f"--{chosen[0]}: {uid!r}, of kind {operator.kind}, has no windows; leave it out")
    _require_table(operator, named or next((name for name in ("timers", "broadcast") if given[name]), None))
    condition = " AND ".join([*([f"({where})"] if where else []), *(_is_key(each, operator.keys) for each in keys)]) or None
    rows = _rows(found, uid, kind=chosen[0] if chosen else None, named=named, where=condition, limit=limit, master=master)
    if as_json:
        for row in rows:
            click.echo(json.dumps(_plain(row)))
        return
    click.echo(table(list(rows[0]), [[_cell(value) for value in row.values()] for row in rows]) if rows else "no rows")
    if len(rows) == limit:
        click.echo(f"the first {limit}; --limit shows more", err=True)


def _require_no_options(given: Sequence[str], job: str, uids: Sequence[str]) -> None:
    """Refuse options that choose rows of an operator where none is named."""
    if given:
        raise click.UsageError(f"--{given[0]} shows rows of one operator: name it, as in `tidemark state show {job} {(*uids, 'UID')[0]}`")


def _require_table(operator: StoredOperator, name: str | None) -> None:
    """Refuse a table that an operator does not have, before Spark starts."""
    if name is None or not operator.tables or name in operator.tables:
        return
    why = (
        ": its windows fire by rules over their bounds"
        if name == "timers" and operator.tables[0] == "windows"
        else f": its kind is {operator.kind}"
    )
    raise click.UsageError(f"{operator.uid} has no {name} table{why}; it has: {', '.join(operator.tables)}")


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows with aligned columns under their names."""
    cut = [[cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 1]}…" for cell in row] for row in (names, *rows)]
    widths = [max(len(row[column]) for row in cut) for column in range(len(names))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut)


def _rows(
    found: StoredState, uid: str, *, kind: str | None, named: str | None, where: str | None, limit: int, master: str
) -> list[dict[str, object]]:
    from tidemark.spark.env.session import build_session
    from tidemark.spark.state_api.state_processor import first_rows

    operator = found.operators[uid]
    click.echo(f"reading {operator.rows:,} rows in {operator.files} files of {uid}, epoch {found.epoch}", err=True)
    spark = build_session(master, app_name=f"tidemark state {found.job}")
    # Spark's default is 200 partitions; a job's state has no more keys than this machine can sort.
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    read = {"elements": found.read_elements, "keyed": found.read_keyed, "timers": found.timers}
    rows = read[kind](uid, spark) if kind in read else _table(found.tables(uid, spark), uid, named or kind)
    return first_rows(rows, where=where, limit=limit)


def _table(tables: Mapping[str, DataFrame], uid: str, name: str | None) -> DataFrame:
    """Return a table of an operator, the main one without a name."""
    main, *others = tables
    if name is not None and name not in tables:
        raise click.ClickException(f"{uid} has no {name} table; it has: {', '.join(tables)}")
    if name is None and others:
        click.echo(f"this is the table {main!r}; --table shows others: {', '.join(others)}", err=True)
    return tables[name or main]


def _is_key(given: str, keys: Sequence[str]) -> str:
    """Return the condition that a key has a value.

    Raises:
        UsageError: it is not a name with a value, or the operator has no such key.
    """
    name, equals, value = given.partition("=")
    if not equals or name not in keys:
        raise click.UsageError(f"--key {given}: give NAME=VALUE with one of the keys: {', '.join(keys) or 'it has none'}")
    text, column = value.replace("\\", "\\\\").replace("'", "\\'"), name.replace("`", "``")
    return f"CAST(`{column}` AS STRING) = '{text}'"


def _show_operators(found: StoredState, *, as_json: bool) -> None:
    if as_json:
        for operator in found.operators.values():
            echo_json(operator)
        return
    click.echo(f"{found.job}: epoch {found.epoch} of lineage {found.lineage}")
    rows = [
        [
            each.uid,
            "states" if each.states else each.keeps,
            describe_recorded_windows(each.windows) if each.windows else each.kind,
            ", ".join(each.keys) or "-",
            ", ".join((*each.aggregates, *each.states)) or "-",
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
            return {_as_name(_plain(name)): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value


def _as_name(key: object) -> str:
    """Return the key of a map as the name of a JSON field."""
    return key if isinstance(key, str) else json.dumps(key, ensure_ascii=False)
