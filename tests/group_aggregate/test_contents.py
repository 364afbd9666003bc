"""At each epoch's end the content of an aggregate is what its input's content gives, whatever came and went in whatever epochs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.group_aggregate.worlds import Near, Row, World, alike, changelog, deviation, distinct, fold, grouped, order, some, source, total
from tests.seeds import PROFILE, only_long
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH_COUNT = 4 if PROFILE == "long" else 3

Result = tuple[tm.Aggregate, Callable[[Sequence[Row]], Any]]


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = some(rows, name)
    return None if not values else float(total(values)) / len(values)


def _decimal_mean(rows: Sequence[Row]) -> Decimal | None:
    values = some(rows, "m")
    return None if not values else (total(values) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)


def _root(value: float | None) -> float | None:
    return None if value is None else value**0.5


def _extreme(rows: Sequence[Row], name: str, chooses: Callable[..., Any]) -> Any:
    values = distinct(some(rows, name))
    return chooses(values, key=order) if values else None


def _by(rows: Sequence[Row], *, most: bool) -> Any:
    """Return the text of the row with the least or greatest number; of equal ones the first, or the last."""
    known = [row for row in rows if row["i"] is not None]
    if not known:
        return None
    best = (max if most else min)(row["i"] for row in known)
    return [row["s"] for row in known if row["i"] == best][-1 if most else 0]


def _percentile(rows: Sequence[Row]) -> Near | None:
    values = sorted(some(rows, "i"))
    return None if not values else Near(float(values[max(1, -(-len(values) // 2)) - 1]), 0.0011)


SIGNED: Mapping[str, Result] = {
    "n": (tm.count(), len),
    "n_i": (tm.count("i"), lambda rows: len(some(rows, "i"))),
    "sum_i": (tm.sum("i"), lambda rows: total(some(rows, "i"))),
    "sum_d": (tm.sum("d"), lambda rows: total(some(rows, "d"))),
    "sum_m": (tm.sum("m"), lambda rows: total(some(rows, "m"))),
    "avg_i": (tm.avg("i"), lambda rows: _mean(rows, "i")),
    "avg_m": (tm.avg("m"), _decimal_mean),
    "avg_d": (tm.avg("CAST(h AS FLOAT)"), lambda rows: _mean(rows, "h")),
    "var_d": (tm.variance("if(abs(d) < 1e15, d, NULL)"), lambda rows: deviation(_small(rows), 1)),
    "dev_i": (tm.stddev_pop("i"), lambda rows: _root(deviation(some(rows, "i"), 0))),
}

COUNTED: Mapping[str, Result] = {
    "min_i": (tm.min("i"), lambda rows: min(some(rows, "i"), default=None)),
    "max_d": (tm.max("d"), lambda rows: _extreme(rows, "d", max)),
    "min_s": (tm.min("s"), lambda rows: min(some(rows, "s"), default=None)),
    "kinds": (tm.count_distinct("d"), lambda rows: len(distinct(some(rows, "d")))),
    "pairs": (
        tm.count_distinct("i", "s"),
        lambda rows: len({(row["i"], row["s"]) for row in rows if row["i"] is not None and row["s"] is not None}),
    ),
    "about": (tm.approx_count_distinct("s"), lambda rows: len(set(some(rows, "s")))),
    "set_s": (tm.collect_set("s"), lambda rows: sorted(set(some(rows, "s")))),
    "half_i": (tm.approx_percentile("i", 0.5, relative_error=0.001), _percentile),
}

KEPT: Mapping[str, Result] = {
    "first_s": (tm.first("s"), lambda rows: rows[0]["s"]),
    "last_i": (tm.last("i", ignore_nulls=True), lambda rows: next(iter(some(rows, "i")[::-1]), None)),
    "least": (tm.min_by("s", "i"), lambda rows: _by(rows, most=False)),
    "most": (tm.max_by("s", "i"), lambda rows: _by(rows, most=True)),
    "all_s": (tm.collect_list("s"), lambda rows: some(rows, "s")),
    "top_i": (tm.top_k("i", 3), lambda rows: sorted(some(rows, "i"), reverse=True)[:3]),
    "own": (
        tm.sql_aggregate({"x": ("bit_xor(id)", "bit_xor({x})"), "n": ("count(s)", "sum({n})")}, "{x} * 100 + {n}"),
        lambda rows: _xor(rows) * 100 + len(some(rows, "s")),
    ),
}


FEW: Mapping[str, Result] = {name: {**SIGNED, **COUNTED, **KEPT}[name] for name in ("n", "sum_d", "min_i", "set_s", "last_i", "all_s")}


def _small(rows: Sequence[Row]) -> list[float]:
    return [value for value in some(rows, "d") if abs(value) < 1e15]


def _xor(rows: Sequence[Row]) -> int:
    found = 0
    for row in rows:
        found ^= row["id"]
    return found


def aggregates(results: Mapping[str, Result]) -> dict[str, tm.Aggregate]:
    """Return the declared aggregates."""
    return {name: aggregate for name, (aggregate, _) in results.items()}


def check(
    name: str, world: World, results: Mapping[str, Result], keys: Sequence[str], epoch_rows: Callable[[Row], bool] | None = None
) -> None:
    """Compare the history of a table in memory with what each epoch's content gives."""
    table = tm.memory_table(name)
    assert table is not None
    history = table.to_pylist()
    for epoch, content in enumerate(world.contents):
        rows = [row for row in content.values() if epoch_rows is None or epoch_rows(row)]
        wanted = grouped(rows, keys)
        found = fold(history, keys, epoch)
        assert set(found) == set(wanted), (epoch, set(found) ^ set(wanted))
        for key, members in wanted.items():
            for result, (_, compute) in results.items():
                assert alike(found[key][result], compute(members)), (epoch, key, result, found[key][result], compute(members))


def run(outputs: Mapping[str, tm.Output], folder: Path, spark: SparkSession, parallelism: int | None, name: str = "groups") -> None:
    """Run a job to the end of its input."""
    job = tm.Job(name, outputs=dict(outputs), store=str(folder / "store"), parallelism=parallelism)
    tm.run(job, spark=spark, clock=ManualClock(1_800_000_000_000), handle_signals=False)


@pytest.mark.spark
@pytest.mark.parametrize(("seed", "parallelism"), [pytest.param(1, 1, marks=only_long), pytest.param(2, 2, marks=only_long), (3, 7)])
def test_over_changelogs(spark: SparkSession, tmp_path: Path, seed: int, parallelism: int) -> None:
    world = World(random.Random(seed)).run(changes=420, cuts=EPOCH_COUNT)
    rows, every = changelog(world), {**SIGNED, **COUNTED, **KEPT}
    made = {
        "all": rows.key_by("g").aggregate(ttl=None, **aggregates(every)).uid("all"),
        # What comes of a filter is the same for groups by keys and for all rows.
        "filtered": rows.filter("d > 0").aggregate_all(**aggregates(FEW)).uid("filtered"),
    }
    run({name: tm.memory(stream, f"{tmp_path}/{name}") for name, stream in made.items()}, tmp_path, spark, parallelism)
    check(f"{tmp_path}/all", world, every, ["g"])
    check(f"{tmp_path}/filtered", world, FEW, [], lambda row: row["d"] is not None and not row["d"] <= 0)


@pytest.mark.spark
@pytest.mark.parametrize(("seed", "parallelism"), [pytest.param(4, 1, marks=only_long), (5, 7)])
def test_over_streams_that_are_only_added_to(spark: SparkSession, tmp_path: Path, seed: int, parallelism: int) -> None:
    world = World(random.Random(seed)).run(changes=300, cuts=EPOCH_COUNT, only_inserts=True)
    rows = source(world)
    every = {**SIGNED, **COUNTED, **KEPT}
    whole = every if PROFILE == "long" else FEW
    made = {
        "all": rows.key_by("g").aggregate(ttl=None, **aggregates(every)).uid("all"),
        # Of one group all aggregates are what they are of many.
        "one": rows.aggregate_all(**aggregates(whole)).uid("one"),
    }
    run({name: tm.memory(stream, f"{tmp_path}/{name}") for name, stream in made.items()}, tmp_path, spark, parallelism)
    for name, results, keys in (("all", every, ["g"]), ("one", whole, list[str]())):
        loose = {result: found for result, found in results.items() if result not in {"sum_d", "about"}}
        check(f"{tmp_path}/{name}", world, loose, keys)
