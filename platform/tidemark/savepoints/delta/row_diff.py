"""The rows in which two tables differ: added, removed, changed. Starts no JVM.

Rows are compared with their multiplicity. The comparison goes over the tables part by part, each part holding the rows of some keys, so
that memory is bounded by a part and not by the tables.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tidemark.errors import DefinitionError, SinkError
from tidemark.locations import Location
from tidemark.savepoints.delta.table_versions import open_table
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.redaction import redacted, without_secrets

ROWS_PER_PART: Final = 1_000_000
_PARTS: Final = 256
_SAMPLED: Final = 200
_SHOWN: Final = 20
"""Rows of one key that are read for a sample, and of these, that are shown."""


@dataclass(frozen=True)
class RowSample:
    """Rows of one key that differ: those that only the first table has, and those that only the second has."""

    key: Mapping[str, object]
    before: tuple[Mapping[str, object], ...]
    after: tuple[Mapping[str, object], ...]


@dataclass(frozen=True)
class Earlier:
    """Rows that one of two tables had before the other one began without them: the comparison leaves them out.

    Args:
        version: the table's version at which it had these rows and no others.
        upserted: whether rows replace others. A row that both tables have then counts as the same: the second may have rewritten it.
            Of a table that is only appended to, all of them are left out.
        of_second: whether the second table has them.
    """

    version: int
    upserted: bool = False
    of_second: bool = False


@dataclass(frozen=True)
class RowDiff:
    """The differences from one table to another.

    Args:
        keys: columns that identify a row.
        same: rows that both have.
        added: rows of keys that only the second has, or has more often.
        removed: rows of keys that only the first has, or has more often.
        changed: rows whose key both have and whose other columns differ.
        samples: some of the differences.
        left_out: rows that were not compared, since a table had them before the other one began.
    """

    keys: tuple[str, ...]
    same: int
    added: int
    removed: int
    changed: int
    samples: tuple[RowSample, ...]
    left_out: int = 0

    @property
    def equal(self) -> bool:
        """Whether the tables hold the same rows."""
        return not (self.added or self.removed or self.changed)

    def document(self) -> dict[str, object]:
        """Return it as plain JSON; values that JSON has no form for, such as times and NaN, are texts."""
        plain: dict[str, object] = json.loads(json.dumps(to_jsonable(self), default=str), parse_constant=str)
        return plain

    def text(self) -> str:
        """Return the counts for a terminal, then the samples: with a minus what only the first table has, with a plus the second's."""
        lines = [f"{self.same} rows the same, {self.added} added, {self.removed} removed, {self.changed} changed"]
        if self.left_out:
            lines.append(f"  left out: {self.left_out} rows from before the savepoint that the fork began with")
        for sample in self.samples:
            lines.append("  " + ", ".join(f"{name}={value}" for name, value in sample.key.items()))
            lines += [f"    - {self._rest(row)}" for row in sample.before]
            lines += [f"    + {self._rest(row)}" for row in sample.after]
        return "\n".join(lines)

    def _rest(self, row: Mapping[str, object]) -> str:
        return ", ".join(f"{name}={value}" for name, value in row.items() if name not in self.keys) or "the row"


def diff_tables(
    before: str,
    after: str,
    *,
    keys: Sequence[str] = (),
    samples: int = 10,
    rows_per_part: int = ROWS_PER_PART,
    earlier: Earlier | None = None,
) -> RowDiff:
    """Compare two Delta tables at their newest versions.

    Args:
        before: the first one's path.
        after: the second one's.
        keys: columns that identify a row, such as a window's key, start and pane; all by default: a changed row then counts as
            removed and added.
        samples: how many keys to show rows of, at most.
        rows_per_part: about how many rows of a table are compared at once.
        earlier: rows of one of the tables to leave out.

    Raises:
        SinkError: a table is missing, or cannot be read; or not at the version of the rows to leave out.
        DefinitionError: the tables have other columns, or a key is none of them.
    """
    one, two = _require(before), _require(after)
    columns = _columns(one, two, before, after)
    chosen = tuple(keys) or tuple(columns)
    unknown = [name for name in chosen if name not in columns]
    if unknown:
        raise DefinitionError(
            f"the tables have no column {', '.join(unknown)} to identify rows by", fix=f"choose among {', '.join(columns)}", place=before
        )
    engine = QueryBuilder().register("one", one).register("two", two)
    old = _at(after if earlier.of_second else before, earlier.version) if earlier is not None else None
    if old is not None:
        engine = engine.register("old", old)
    sides = _Sides(columns, chosen, earlier, {field.name for field in old.schema().fields} if old is not None else ())
    parts = min(_PARTS, 1 + max(_rows(one), _rows(two)) // rows_per_part)
    totals = dict.fromkeys(_NAMES, 0)
    differing: list[str] = []
    for low, high in _ranges(parts):
        query = sides.part(low, high)
        try:
            for row in _results(engine, f"{query} {_COUNTS}"):
                totals = {name: total + int(str(row[name] or 0)) for name, total in totals.items()}
            if len(differing) < samples:
                found = _results(engine, f"{query} select distinct key from surplus order by key limit {samples - len(differing)}")
                differing += [str(row["key"]) for row in found]
        except (DeltaError, OSError) as error:
            raise _unreadable(before, error) from without_secrets(error)
    shown = tuple(_sample(engine, sides, key) for key in differing)
    return RowDiff(chosen, samples=shown, **totals)


_NAMES: Final = ("same", "added", "removed", "changed", "left_out")
_COUNTS: Final = """
select
  (select sum(least(of_one, of_two)) from joined) as same,
  (select sum(left_out) from joined) as left_out,
  sum(greatest(of_two - of_one, 0)) as added,
  sum(greatest(of_one - of_two, 0)) as removed,
  sum(least(of_one, of_two)) as changed
from (select key, sum(greatest(of_one - of_two, 0)) as of_one, sum(greatest(of_two - of_one, 0)) as of_two from surplus group by key)
"""


@dataclass(frozen=True)
class _Sides:
    """The tables that are compared: ``one`` and ``two``, and ``old``, an older version of one of these, if ``earlier`` is given.

    ``known`` are the columns that it had then; it has null in the others, as the table itself has since.
    """

    columns: Sequence[str]
    keys: Sequence[str]
    earlier: Earlier | None
    known: Collection[str]

    @property
    def old(self) -> str:
        """Where the old rows are, with all columns."""
        listed = (_quoted(name) if name in self.known else f"cast(null as varchar) as {_quoted(name)}" for name in self.columns)
        return f"(select {', '.join(listed)} from old)"

    def part(self, low: int, high: int) -> str:
        """Return the beginning of a query over the rows whose keys fall into a range of parts."""
        key, others = _text(self.keys), [name for name in self.columns if name not in self.keys]
        rest = _text(others) if others else "''"

        def side(table: str) -> str:
            return (
                f"select key, row, count(*) as n from (select {key} as key, {rest} as row from {table}) "
                f"where substr(md5(key), 1, 2) between '{low:02x}' and '{high:02x}' group by key, row"
            )

        of_one, of_two, out, old = "one", "two", "0", "select '' as key, '' as row, 0 as n where false"
        if self.earlier is not None:
            old, mine, other = side(self.old), *(("two", "one") if self.earlier.of_second else ("one", "two"))
            most = f"greatest({mine} - {other}, 0)" if self.earlier.upserted else mine
            out = f"least({most}, coalesce(o.n, 0))"
            of_one, of_two = (f"{name} - {out}" if name == mine else name for name in ("one", "two"))
        return f"""
        with l as ({side("one")}), r as ({side("two")}), o as ({old}),
        pairs as (
          select coalesce(l.key, r.key) as key, coalesce(l.row, r.row) as row, coalesce(l.n, 0) as one, coalesce(r.n, 0) as two
          from l full join r on l.key = r.key and l.row = r.row
        ),
        joined as (
          select pairs.key as key, {of_one} as of_one, {of_two} as of_two, {out} as left_out
          from pairs left join o on o.key = pairs.key and o.row = pairs.row
        ),
        surplus as (select * from joined where of_one <> of_two)
        """


def _text(columns: Sequence[str]) -> str:
    """Return an expression of text that is the same for the same values only: each with its length, nulls apart."""
    casts = [f"cast({_quoted(name)} as varchar)" for name in columns]
    return "concat(" + ", ".join(f"coalesce(concat(cast(length({cast}) as varchar), ':', {cast}), 'n')" for cast in casts) + ")"


def _sample(engine: QueryBuilder, sides: _Sides, key: str) -> RowSample:
    wanted, earlier = key.replace("'", "''"), sides.earlier

    def rows(table: str) -> list[Mapping[str, object]]:
        found = _results(engine, f"select * from {table} where {_text(sides.keys)} = '{wanted}' limit {_SAMPLED}")
        return [{name: row[name] for name in sides.columns} for row in found]

    one, two = rows("one"), rows("two")
    first = (one or two)[0]
    if earlier is not None:
        old, other = rows(sides.old), one if earlier.of_second else two
        gone = _without(old, other) if earlier.upserted else old
        one, two = (one, _without(two, gone)) if earlier.of_second else (_without(one, gone), two)
    before, after = _without(one, two), _without(two, one)
    return RowSample({name: first[name] for name in sides.keys}, tuple(before[:_SHOWN]), tuple(after[:_SHOWN]))


def _without(rows: Sequence[Mapping[str, object]], others: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the rows without those of the others, with multiplicity."""
    left, removed = [], list(others)
    for row in rows:
        if row in removed:
            removed.remove(row)
        else:
            left.append(row)
    return left


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


def _at(path: str, version: int) -> DeltaTable:
    try:
        return DeltaTable(Location.parse(path).uri, version=version)
    except (DeltaError, OSError) as error:
        raise SinkError(
            f"the rows of the table at version {version}, before the other one began, are no longer known: its log was cleaned up",
            fix="compare the rows that came since in SQL, by a column that identifies them",
            place=path,
        ) from without_secrets(error)


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
