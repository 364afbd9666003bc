"""Random programs of rows in groups, the content that each is at an epoch's end, and what groups of it have, in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import tidemark as tm

SCHEMA = "at TIMESTAMP, op STRING, id INT, g STRING, h INT, i INT, l BIGINT, d DOUBLE, m DECIMAL(12, 2), s STRING"
START = 1_700_000_000

Row = Mapping[str, Any]
COLUMNS = ("at", "op", "id", "g", "h", "i", "l", "d", "m", "s")


@dataclass
class World:
    """A program of changes, whose rows are identified by ``id``.

    ``epochs`` are the changes, and ``contents`` the rows that are there after each of them, by id, with the number of their arrival.
    """

    chosen: random.Random
    groups: int = 12
    epochs: list[list[tuple[Any, ...]]] = field(default_factory=list)
    contents: list[dict[int, dict[str, Any]]] = field(default_factory=list)
    _now: dict[int, dict[str, Any]] = field(default_factory=dict)
    _arrived: int = 0
    _next_id: int = 0

    def run(self, changes: int, cuts: int, *, only_inserts: bool = False) -> World:
        """Make changes, cut into epochs at random."""
        ends = [*sorted(self.chosen.sample(range(1, changes), cuts - 1)), changes]
        made: list[tuple[Any, ...]] = []
        for number in range(changes):
            made += [self._insert()] if only_inserts else self._change()
            if number + 1 in ends:
                self.epochs.append(made)
                self.contents.append(dict(self._now))
                made = []
        return self

    def _change(self) -> list[tuple[Any, ...]]:
        what = self.chosen.random()
        if not self._now or what < 0.45:
            return [self._insert()]
        old = self._now[self.chosen.choice(list(self._now))]
        if what < 0.72:
            del self._now[old["id"]]
            return [self._given(self._again(old), "delete")]
        return [self._given(self._again(old), "update_before"), self._arrive(self._values(old["id"], old), "update_after")]

    def _insert(self) -> tuple[Any, ...]:
        self._next_id += 1
        return self._arrive(self._values(self._next_id, None), "insert")

    def _arrive(self, row: dict[str, Any], operation: str) -> tuple[Any, ...]:
        self._arrived += 1
        row["at"] = self._time(row["id"])
        row["arrived"] = (row["at"], self._arrived)
        self._now[row["id"]] = row
        return self._given(row, operation)

    def _again(self, old: Row) -> Row:
        """Return the row before a change, at the time of that: changes of one row come in the order of their times."""
        self._arrived += 1
        return {**old, "at": self._time(old["id"])}

    def _time(self, number: int) -> datetime:
        """Return the time of the next change of a row, which may be before changes of other rows that came earlier."""
        return datetime.fromtimestamp(START + self._arrived + number * 37 % 60, UTC)

    @staticmethod
    def _given(row: Row, operation: str) -> tuple[Any, ...]:
        return tuple(operation if name == "op" else row[name] for name in COLUMNS)

    def _values(self, number: int, old: Row | None) -> dict[str, Any]:
        pick = self.chosen
        row = {
            "id": number,
            "g": None if pick.random() < 0.08 else f"g{pick.randrange(self.groups)}",
            "h": pick.randrange(3),
            "i": _or_null(pick, pick.randrange(-4, 4)),
            "l": _or_null(pick, pick.choice([2**62, -(2**62), 5, -1, 2**40 + 3])),
            "d": _or_null(pick, pick.choice(DOUBLES)(pick)),
            "m": _or_null(pick, Decimal(pick.randrange(-(10**6), 10**6)) / 100),
            "s": _or_null(pick, pick.choice("abcde")),
        }
        # Some updates change only what most aggregates do not see, or leave a row in its group.
        if old is not None and pick.random() < 0.4:
            row |= {name: old[name] for name in ("g", "h", "i", "d", "m")}
        return row


DOUBLES: Sequence[Callable[[random.Random], float]] = (
    lambda pick: round(pick.uniform(-50, 50), 2),
    lambda pick: float(pick.randrange(-2, 3)),
    lambda pick: pick.uniform(-1e14, 1e14),
    lambda pick: 1e6 + pick.random(),
    lambda pick: pick.choice([math.nan, math.inf, -math.inf, -0.0, 0.0, 1e300, -1e300, 1e-300]) if pick.random() < 0.3 else 1.5,
)


def _or_null(pick: random.Random, value: Any) -> Any:
    return None if pick.random() < 0.12 else value


def source(world: World, name: str = "changes") -> tm.Stream:
    """Return the changes as a stream."""
    return tm.source(
        name, tm.from_elements(epochs=world.epochs, schema=SCHEMA), watermarks=tm.bounded_out_of_orderness("1 hour", timestamp="at")
    )


def changelog(world: World, name: str = "changes") -> tm.Stream:
    """Return the changes as a changelog."""
    return source(world, name).as_changelog(key=["id"], operation="op")


def grouped(rows: Iterable[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Return rows by the values of columns, in the order of their times and arrivals."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["arrived"]):
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def order(value: Any) -> Any:
    """Return what values are sorted by: NaN comes last."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def one(value: Any) -> Any:
    """Return a value that equals all that Spark takes for the same: NaN is one value, and so are both zeros."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def some(rows: Sequence[Row], name: str) -> list[Any]:
    """Return the values of a column that are not null."""
    return [row[name] for row in rows if row[name] is not None]


def total(values: Sequence[Any]) -> Any:
    """Return the exact sum of values, as a double where they are."""
    if not values:
        return None
    if not isinstance(values[0], float):
        return sum(values[1:], values[0])
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return math.fsum(odd) if not ({math.inf, -math.inf} <= set(odd)) else math.nan
    exact = sum(map(Fraction, values), Fraction())
    return float(exact) if abs(exact) < Fraction(1.7e308) else math.copysign(math.inf, exact)


def deviation(values: Sequence[float], less: int) -> float | None:
    """Return the variance of values; ``less`` is what is taken from their number."""
    if len(values) <= less:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(map(Fraction, values), Fraction()) / len(values)
    exact = sum(((Fraction(value) - mean) ** 2 for value in values), Fraction()) / (len(values) - less)
    return float(exact) if exact < Fraction(1.7e308) else math.inf


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return each value once, sorted."""
    return sorted({one(value): value for value in values}.values(), key=order)


def fold(history: Iterable[Row], keys: Sequence[str], until: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the content of a history of changes, by key, after an epoch.

    Raises:
        AssertionError: a change does not fit what was there, or changes nothing, or a key has two in one epoch.
    """
    content: dict[tuple[Any, ...], dict[str, Any]] = {}
    seen = set()
    for row in sorted(history, key=lambda row: row["epoch"]):
        key = tuple(row[name] for name in keys)
        if row["epoch"] > until:
            continue
        assert (key, row["epoch"]) not in seen, f"two changes of {key} in epoch {row['epoch']}"
        seen.add((key, row["epoch"]))
        values = {name: value for name, value in row.items() if name not in {"operation", "epoch"}}
        assert (key in content) == (row["operation"] != "insert"), (key, row)
        if row["operation"] == "delete":
            assert repr(content[key]) == repr(values), (content[key], values)
            del content[key]
        else:
            assert repr(content.get(key)) != repr(values), f"{key} changed to what it was: {values}"
            content[key] = values
    return content


@dataclass(frozen=True)
class Near:
    """A value that a result may differ from, by a share of it."""

    value: float
    error: float


def alike(found: Any, wanted: Any) -> bool:
    """Return whether a result is the wanted one; doubles within 1e-12."""
    if isinstance(wanted, Near):
        return isinstance(found, float) and abs(found - wanted.value) <= wanted.error * abs(wanted.value)
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isnan(found) or math.isnan(wanted):
            return math.isnan(found) and math.isnan(wanted)
        return found == wanted or abs(found - wanted) <= 1e-12 * abs(wanted)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    return type(found) is type(wanted) and bool(found == wanted)
