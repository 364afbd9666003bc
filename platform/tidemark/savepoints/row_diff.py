"""Which rows two tables do not have in common: added, removed, changed. Starts no JVM.

Rows are compared as they are, how often they are there included. The comparison goes over the tables part by part, each part holding the
rows of some keys, so that memory is bounded by a part and not by the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tidemark.errors import DefinitionError, SinkError
from tidemark.savepoints.table_versions import open_table
from tidemark.state.redaction import redacted, without_secrets

ROWS_PER_PART: Final = 1_000_000
_PARTS: Final = 256


@dataclass(frozen=True)
class RowSample:
    """Rows of one key that differ: those that only the first table has, and those that only the second has."""

    key: Mapping[str, object]
    before: tuple[Mapping[str, object], ...]
    after: tuple[Mapping[str, object], ...]


@dataclass(frozen=True)
class RowDiff:
    """What differs from one table to another.

    Args:
        keys: columns by which rows are the same row.
        same: rows that both have.
        added: rows of keys that only the second has, or has more often.
        removed: rows of keys that only the first has, or has more often.
        changed: rows whose key both have and whose other columns differ.
        samples: some of what differs.
    """

    keys: tuple[str, ...]
    same: int
    added: int
    removed: int
    changed: int
    samples: tuple[RowSample, ...]

    @property
    def equal(self) -> bool:
        """Whether the tables hold the same rows."""
        return not (self.added or self.removed or self.changed)


def diff_tables(before: str, after: str, *, keys: Sequence[str] = (), samples: int = 10, rows_per_part: int = ROWS_PER_PART) -> RowDiff:
    """Compare two Delta tables at their newest versions.

    Args:
        before: the first one's path.
        after: the second one's.
        keys: columns by which rows are the same row, such as a window's key, start and pane; all by default: what has changed is then
            removed and added.
        samples: how many keys to show rows of, at most.
        rows_per_part: about how many rows of a table are compared at once.

    Raises:
        SinkError: a table is missing, or cannot be read.
        DefinitionError: the tables have other columns, or a key is none of them.
    """
    one, two = _require(before), _require(after)
    columns = _columns(one, two, before, after)
    chosen = tuple(keys) or tuple(columns)
    unknown = [name for name in chosen if name not in columns]
    if unknown:
        raise DefinitionError(
            f"the tables have no column {', '.join(unknown)} to know rows by", fix=f"choose among {', '.join(columns)}", place=before
        )
    engine = QueryBuilder().register("one", one).register("two", two)
    parts = min(_PARTS, 1 + max(_rows(one), _rows(two)) // rows_per_part)
    totals = dict.fromkeys(_NAMES, 0)
    differing: list[str] = []
    for low, high in _ranges(parts):
        query = _part(columns, chosen, low, high)
        try:
            for row in _results(engine, f"{query} {_COUNTS}"):
                totals = {name: total + int(str(row[name] or 0)) for name, total in totals.items()}
            if len(differing) < samples:
                found = _results(engine, f"{query} select distinct key from surplus order by key limit {samples - len(differing)}")
                differing += [str(row["key"]) for row in found]
        except (DeltaError, OSError) as error:
            raise _unreadable(before, error) from without_secrets(error)
    shown = tuple(_sample(engine, columns, chosen, key) for key in differing)
    return RowDiff(chosen, samples=shown, **totals)


_NAMES: Final = ("same", "added", "removed", "changed")
_COUNTS: Final = """
select
  (select sum(least(of_one, of_two)) from joined) as same,
  sum(greatest(of_two - of_one, 0)) as added,
  sum(greatest(of_one - of_two, 0)) as removed,
  sum(least(of_one, of_two)) as changed
from (select key, sum(greatest(of_one - of_two, 0)) as of_one, sum(greatest(of_two - of_one, 0)) as of_two from surplus group by key)
"""


def _part(columns: Sequence[str], keys: Sequence[str], low: int, high: int) -> str:
    """Return the beginning of a query over the rows whose keys fall into a range of parts."""
    key, rest = _text(keys), _text([name for name in columns if name not in keys]) if len(keys) < len(columns) else "''"
    side = (
        "select key, row, count(*) as n from (select {key} as key, {rest} as row from {table}) "
        "where substr(md5(key), 1, 2) between '{low:02x}' and '{high:02x}' group by key, row"
    )
    one, two = (side.format(key=key, rest=rest, table=table, low=low, high=high) for table in ("one", "two"))
    return f"""
    with l as ({one}), r as ({two}),
    joined as (
      select coalesce(l.key, r.key) as key, coalesce(l.n, 0) as of_one, coalesce(r.n, 0) as of_two
      from l full join r on l.key = r.key and l.row = r.row
    ),
    surplus as (select * from joined where of_one <> of_two)
    """


def _text(columns: Sequence[str]) -> str:
    """Return an expression of text that is the same for the same values only: each with its length, nulls apart."""
    casts = [f"cast({_quoted(name)} as varchar)" for name in columns]
    return "concat(" + ", ".join(f"coalesce(concat(cast(length({cast}) as varchar), ':', {cast}), 'n')" for cast in casts) + ")"


def _sample(engine: QueryBuilder, columns: Sequence[str], keys: Sequence[str], key: str) -> RowSample:
    wanted = key.replace("'", "''")
    one, two = (_results(engine, f"select * from {table} where {_text(keys)} = '{wanted}' limit 20") for table in ("one", "two"))
    rows_one, rows_two = ([{name: row[name] for name in columns} for row in rows] for rows in (one, two))
    first = (rows_one or rows_two)[0]
    before = tuple(row for row in rows_one if row not in rows_two)
    after = tuple(row for row in rows_two if row not in rows_one)
    return RowSample({name: first[name] for name in keys}, before, after)


def _results(engine: QueryBuilder, sql: str) -> list[Mapping[str, object]]:
    import pyarrow as pa

    rows: list[Mapping[str, object]] = pa.table(engine.execute(sql)).to_pylist()
    return rows


def _ranges(parts: int) -> Iterator[tuple[int, int]]:
    bounds = [_PARTS * number // parts for number in range(parts + 1)]
    return ((low, high - 1) for low, high in pairwise(bounds))


def _columns(one: DeltaTable, two: DeltaTable, before: str, after: str) -> list[str]:
    first, second = ({field.name: str(field.type) for field in table.schema().fields} for table in (one, two))
    if first != second:
        differing = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
        raise DefinitionError(
            f"the tables do not have the same columns: {', '.join(differing)}",
            fix="compare tables of one output; one whose columns changed can be compared column by column in SQL",
            place=f"{before} and {after}",
        )
    return list(first)


def _rows(table: DeltaTable) -> int:
    return sum(count or 0 for count in table.get_add_actions()["num_records"].to_pylist())


def _require(path: str) -> DeltaTable:
    table = open_table("", path)
    if table is None:
        raise SinkError("there is no Delta table to compare", fix="name an output whose table was written already", place=path)
    return table


def _unreadable(path: str, error: Exception) -> SinkError:
    text = redacted(str(error)).splitlines()
    return SinkError(
        f"the tables cannot be compared: {text[0] if text else type(error).__name__}",
        fix="columns of lists, maps and structs cannot; compare others, or in SQL",
        place=path,
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
