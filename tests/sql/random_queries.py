"""Random queries over three tables, made of what SQL over streams covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, Literal

Kind = Literal["number", "text"]
Columns = Sequence[tuple[str, Kind]]
"""The columns that an expression may read, with their kinds."""

TABLES: Final[Mapping[str, Columns]] = {
    "rides": [("id", "number"), ("miles", "number"), ("zone", "text")],
    "fares": [("fid", "number"), ("ride", "number"), ("fare", "number")],
    "zones": [("t", "number"), ("zone", "text"), ("borough", "text")],
}
_JOINS: Final = ("JOIN", "JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_AGGREGATES: Final = ("count(*)", "sum({})", "min({})", "max({})", "count({})", "count(DISTINCT {})", "sum({}) + count(*)")
_DEPTH: Final = 2
"""So many queries are within one another at most, and so many expressions."""


class RandomQueries:
    """Makes queries; names of columns and tables are never used twice."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = 0

    def query(self, depth: int = 0) -> tuple[str, Columns]:
        """Return a query, and the columns of its result."""
        makers: list[Callable[[int], tuple[str, Columns]]] = [
            self._selection,
            self._selection,
            self._groups,
            self._groups,
            self._first_rows,
        ]
        if depth < _DEPTH:
            makers.append(self._named_query)
        return self._random.choice(makers)(depth)

    def _selection(self, depth: int) -> tuple[str, Columns]:
        source, columns = self._source(depth)
        made = [(name, text, kind) for text, kind in columns for name in [self._name("c")]]
        made += [(self._name("c"), self._value(kind, columns), kind) for kind in self._random.choices(("number", "text"), k=2)]
        distinct = "DISTINCT " if self._random.random() < 0.2 else ""
        return f"SELECT {distinct}{_listed(made)} FROM {source}{self._where(columns)}", _named(made)

    def _groups(self, depth: int) -> tuple[str, Columns]:
        source, columns = self._source(depth)
        kinds: list[Kind] = self._random.choices(("number", "text"), k=self._random.randint(1, 2))
        keys = [(self._name("c"), self._value(kind, columns), kind) for kind in kinds]
        aggregates = [self._random.choice(_AGGREGATES).format(self._number(columns)) for _ in range(self._random.randint(1, 3))]
        made: list[tuple[str, str, Kind]] = [*keys, *((self._name("c"), text, "number") for text in aggregates)]
        # A number means a column of the result by its place.
        by = [self._random.choice((name, str(place + 1))) for place, (name, _, _) in enumerate(keys)]
        having = self._random.choice(("", "", f" HAVING {made[-1][0]} * 2 > 3", f" HAVING sum({self._number(columns)}) >= 3"))
        return f"SELECT {_listed(made)} FROM {source}{self._where(columns)} GROUP BY {', '.join(by)}{having}", _named(made)

    def _first_rows(self, depth: int) -> tuple[str, Columns]:
        source, columns = self._source(depth)
        made = [(name, text, kind) for text, kind in columns for name in [self._name("c")]]
        number, rows = self._name("nth"), self._random.randint(1, 3)
        order = ", ".join(f"{text} {self._random.choice(('', 'DESC', 'ASC NULLS LAST'))}" for text, _ in columns)
        part = self._value(self._random.choice(("number", "text")), columns)
        inner = f"SELECT {_listed(made)}, ROW_NUMBER() OVER (PARTITION BY {part} ORDER BY {order}) AS {number} FROM {source}"
        listed = ", ".join(name for name, _, _ in made)
        return f"SELECT {listed} FROM ({inner}{self._where(columns)}) {self._name('r')} WHERE {number} <= {rows}", _named(made)

    def _named_query(self, depth: int) -> tuple[str, Columns]:
        text, columns = self.query(depth + 1)
        name = self._name("w")
        return f"WITH {name} AS ({text}) SELECT * FROM {name}{self._where(columns)}", columns

    def _source(self, depth: int) -> tuple[str, Columns]:
        """Return what stands behind FROM, and the columns that the query may name."""
        text, columns = self._table(depth)
        for _ in range(self._random.choice((0, 0, 1, 1, 2))):
            text, columns = self._joined(text, columns, depth)
        bare = Counter(_bare(name) for name, _ in columns)
        short = {name for name, _ in columns if bare[_bare(name)] == 1 and self._random.random() < 0.5}
        return text, [(_bare(name) if name in short else name, kind) for name, kind in columns]

    def _table(self, depth: int) -> tuple[str, Columns]:
        alias = self._name("t")
        if depth < _DEPTH and self._random.random() < 0.3:
            text, columns = self.query(depth + 1)
            return f"({text}) AS {alias}", [(f"{alias}.{name}", kind) for name, kind in columns]
        table = self._random.choice(list(TABLES))
        return f"{table} {alias}", [(f"{alias}.{name}", kind) for name, kind in TABLES[table]]

    def _joined(self, text: str, columns: Columns, depth: int) -> tuple[str, Columns]:
        other, more = self._table(depth)
        how = self._random.choice(_JOINS)
        left, right = (self._random.choice([name for name, kind in each if kind == "number"] or ["0"]) for each in (columns, more))
        if "0" in (left, right):
            return text, columns
        condition = f"CAST({left} AS BIGINT) = CAST({right} + {self._random.randint(0, 1)} AS BIGINT)"
        if how in ("JOIN", "INNER JOIN") and self._random.random() < 0.3:
            condition += f" AND {self._condition([*columns, *more])}"
        kept = columns if "SEMI" in how or "ANTI" in how else [*columns, *more]
        return f"{text} {how} {other} ON {condition}", kept

    def _where(self, columns: Columns) -> str:
        conditions = [self._condition(columns) for _ in range(self._random.choice((0, 0, 1, 2)))]
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _value(self, kind: Kind, columns: Columns) -> str:
        return self._number(columns) if kind == "number" else self._text(columns)

    def _number(self, columns: Columns, depth: int = 0) -> str:
        names = [name for name, kind in columns if kind == "number"]
        plain = self._random.choice(names) if names else "7"
        if depth > _DEPTH or self._random.random() < 0.4:
            return plain

        def one() -> str:
            return self._number(columns, depth + 1)

        forms: list[Callable[[], str]] = [
            lambda: f"({one()} {self._random.choice('+-*')} {one()})",
            lambda: f"coalesce({one()}, {one()})",
            lambda: f"CASE WHEN {self._condition(columns, depth + 1)} THEN {one()} ELSE {one()} END",
            lambda: f"length({self._text(columns, depth + 1)})",
            lambda: f"abs({one()} % 3)",
        ]
        return self._random.choice(forms)()

    def _text(self, columns: Columns, depth: int = 0) -> str:
        names = [name for name, kind in columns if kind == "text"] or ["'a'"]
        if depth > _DEPTH or self._random.random() < 0.5:
            return self._random.choice(names)
        inner = self._text(columns, depth + 1)
        return self._random.choice((f"upper({inner})", f"concat('x', {inner})", f"{inner} || 'it''s'", "'C'", "'%'"))

    def _condition(self, columns: Columns, depth: int = 0) -> str:
        def number() -> str:
            return self._number(columns, depth + 1)

        def text() -> str:
            return self._text(columns, depth + 1)

        forms: list[Callable[[], str]] = [
            lambda: f"{number()} {self._random.choice(('<', '<=', '>', '>=', '=', '<>', '<=>'))} {number()}",
            lambda: f"{number()} {self._random.choice(('IN', 'NOT IN'))} (1, 2, {self._random.randint(3, 9)})",
            lambda: f"{number()} {self._random.choice(('IS NULL', 'IS NOT NULL', 'BETWEEN 2 AND 5'))}",
            lambda: f"{text()} {self._random.choice(('=', '<>', '<=>', 'LIKE'))} {text()}",
        ]
        if depth <= _DEPTH:
            forms.append(lambda: f"({self._condition(columns, depth + 1)} OR NOT {self._condition(columns, depth + 1)})")
        return self._random.choice(forms)()

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"


def _listed(made: Sequence[tuple[str, str, Kind]]) -> str:
    return ", ".join(f"{text} AS {name}" for name, text, _ in made)


def _named(made: Sequence[tuple[str, str, Kind]]) -> Columns:
    return [(name, kind) for name, _, kind in made]


def _bare(name: str) -> str:
    return name.split(".")[1]
