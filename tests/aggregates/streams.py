"""Seeded random elements, many small streams as keys of one DataFrame: nulls, NaN, infinities, negative, huge, tiny, ties."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "case INT, epoch INT, at BIGINT, pos STRUCT<origin: STRING, row: BIGINT>, "
    "i INT, l BIGINT, x DOUBLE, near DOUBLE, price DECIMAL(10, 2), wide DECIMAL(30, 6), s STRING, by INT, flag BOOLEAN"
)
Value = TypeVar("Value")
WORDS = ("", "a", "b", "B", "ä", "zebra", "{x}", "with space", "🜁")


@dataclass(frozen=True)
class Row:
    """One element; ``by`` has many ties, ``near`` varies little beside its mean, ``x`` has whatever a double can hold."""

    case: int
    at: int
    pos: tuple[str, int]
    i: int | None
    l: int | None  # noqa: E741 - the columns are named by their type
    x: float | None
    near: float | None
    price: Decimal | None
    wide: Decimal | None
    s: str | None
    by: int | None
    flag: bool | None


def random_rows(cases: int, seed: int) -> list[Row]:
    """Return the rows of so many streams; the first ones are the hard cases: one element, nulls only, equal values."""
    random_ = random.Random(seed)
    return [row for case in range(cases) for row in _stream(case, random_)]


def _stream(case: int, random_: random.Random) -> list[Row]:
    size = 1 if case % 10 == 0 else random_.randint(2, 40)
    null = 1.0 if case % 10 == 1 else random_.choice([0.0, 0.2, 0.7])
    style = random_.choice(["plain", "plain", "odd", "huge", "tiny", "equal", "infinite"])

    def maybe(value: Value) -> Value | None:
        return None if random_.random() < null else value

    constant = random_.uniform(-5, 5)
    return [
        Row(
            case=case,
            at=random_.randint(-3, 8),
            pos=(random_.choice(["p", "q"]), number),
            i=maybe(random_.randint(-(2**31), 2**31 - 1)),
            l=maybe(random_.randint(-(2**57), 2**57)),
            x=maybe(_double(style, constant, random_)),
            near=maybe(1e5 + random_.gauss(0, 1)),
            price=maybe(Decimal(random_.randint(-(10**10) + 1, 10**10 - 1)).scaleb(-2)),
            wide=maybe(Decimal(random_.randint(-(10**28), 10**28)).scaleb(-6)),
            s=maybe(random_.choice(WORDS)),
            by=maybe(random_.randint(0, 3)),
            flag=maybe(random_.random() < 0.5),
        )
        for number in random_.sample(range(1000), size)
    ]


def _double(style: str, constant: float, random_: random.Random) -> float:
    if style == "equal":
        return constant
    if style == "huge":
        return random_.choice([-1, 1]) * 10 ** random_.uniform(80, 140)
    if style == "tiny":
        return random_.choice([-1, 0, 1]) * 10 ** random_.uniform(-300, -100)
    if style == "odd":
        return random_.choice([math.nan, 0.0, -0.0, -1.5, random_.uniform(-1e3, 1e3)])
    if style == "infinite":
        return random_.choice([math.inf, 1.0, random_.uniform(-1, 1)])
    return random_.gauss(10, 100)


def frame(spark: SparkSession, rows: list[Row], *, seed: int, most_epochs: int) -> DataFrame:
    """Return the rows with each stream cut at random into 1 to ``most_epochs`` epochs, which need not follow event time."""
    random_ = random.Random(seed)
    epochs = {row.case: random_.randint(1, most_epochs) for row in rows}
    data = [(row.case, random_.randrange(epochs[row.case]), *list(vars(row).values())[1:]) for row in rows]
    return spark.createDataFrame(data, SCHEMA).repartition(2)
