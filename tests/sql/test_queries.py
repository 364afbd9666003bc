"""Queries over streams come to what Spark makes of the same query over all their rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import tidemark as tm
from tests.seeds import PROFILE, new_seeds, times
from tests.sql.random_queries import RandomQueries
from tidemark.errors import TidemarkError
from tidemark.graph.checks.changelogs import changelog_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RIDES = "id INT, zone STRING, at TIMESTAMP, miles INT"
FARES = "fid INT, ride INT, paid_at TIMESTAMP, fare INT"
ZONES = "zone STRING, borough STRING, t BIGINT"
SCHEMAS = {"rides": (RIDES, "at"), "fares": (FARES, "paid_at"), "zones": (ZONES, "t")}
"""Of each table: its columns, and that of its event time."""
KEYS = {"rides": "id", "fares": "fid", "zones": "zone"}
RANDOM_QUERIES = 6 if PROFILE == "long" else 2

QUERIES: Mapping[str, str] = {
    "columns": "SELECT id AS ride, upper(zone) z, miles * 2 AS twice FROM rides WHERE miles > 2 AND zone IS NOT NULL",
    "inner": "SELECT r.id, f.fid, r.zone, f.fare FROM rides r JOIN fares f ON r.id = f.ride WHERE f.fare > 2 AND r.miles < f.fare + 5",
    "left": "SELECT r.*, fid, fare FROM rides AS r LEFT JOIN fares f ON f.ride = r.id",
    "right": "SELECT f.*, r.id, r.miles FROM rides r RIGHT OUTER JOIN fares f ON r.id = f.ride WHERE f.fare IS NOT NULL",
    "full": "SELECT r.id, f.fid, coalesce(r.miles, -f.fare) AS value FROM rides r FULL JOIN fares f ON r.id = f.ride",
    "semi": "SELECT * FROM rides LEFT SEMI JOIN fares ON rides.id = fares.ride",
    "anti": "SELECT id, miles FROM rides r LEFT ANTI JOIN fares f ON r.id = f.ride AND r.id = f.fare",
    "using": "SELECT zone, id, borough FROM rides JOIN zones USING (zone)",
    "three": """SELECT r.id, f.fid, z.zone, z.borough, f.fare FROM rides r JOIN fares f ON r.id = f.ride
        LEFT JOIN zones z ON upper(r.zone) = upper(z.zone)""",
    "groups": """SELECT upper(zone) AS zone, r.zone AS own, count(*) AS n, sum(miles) total, avg(miles) + 1 AS more,
        count(id, zone) AS known, count(DISTINCT miles) d FROM rides r GROUP BY zone HAVING count(*) > 1 AND n < 99""",
    "having_of_a_column": "SELECT zone, count(*) + 1 AS n, 'it''s' AS text FROM rides GROUP BY zone HAVING n * 2 > 9",
    "by_number": "SELECT miles % 3 AS third, max(miles) AS longest FROM rides GROUP BY 1",
    "distinct": "SELECT DISTINCT zone, miles % 2 AS odd FROM rides",
    "group_of_join": """WITH paid AS (SELECT r.id, f.fid, r.zone, f.fare FROM rides r JOIN fares f ON r.id = f.ride)
        SELECT zone, sum(fare) AS fares, min_by(id, struct(fare, id)) AS cheapest FROM paid GROUP BY zone""",
    "group_of_groups": """SELECT n, count(*) AS zones FROM (SELECT zone, count(*) AS n FROM rides GROUP BY zone) AS counted GROUP BY n""",
    "top": """SELECT * FROM (SELECT id, zone, miles, ROW_NUMBER() OVER (PARTITION BY zone ORDER BY miles DESC, id) AS nth FROM rides)
        AS ranked WHERE nth <= 2""",
    "first": """SELECT zone, id, x FROM (SELECT zone, id, -miles AS x, ROW_NUMBER() OVER (PARTITION BY upper(zone) ORDER BY x DESC, id)
        AS nth FROM (SELECT *, miles AS x FROM rides) AS r) AS ranked WHERE 3 > nth""",
    "full_using": "SELECT * FROM (SELECT miles, id FROM rides) r FULL JOIN (SELECT fare, fid AS id FROM fares WHERE fid > 3) f USING (id)",
    "right_using": """SELECT f.*, id AS both, miles, coalesce(miles, -fare) AS value
        FROM rides r RIGHT OUTER JOIN (SELECT fare, fid * 2 AS id, fid FROM fares) f USING (id) WHERE f.fare IS NOT NULL""",
    "by_number_with_having": """SELECT miles % 3 AS third, max(miles) AS longest, count(*) + 1 AS n, 'it''s' AS text
        FROM rides GROUP BY 1 HAVING n * 2 > 9""",
    "three_of_all": """SELECT r.*, f.fid, z.zone AS other, z.borough, f.fare FROM rides AS r JOIN fares f ON r.id = f.ride
        LEFT OUTER JOIN zones z ON upper(z.zone) = upper(r.zone) WHERE f.fare > 2 AND r.miles < f.fare + 5""",
    "together": "SELECT id, miles AS value FROM rides UNION ALL SELECT fid, fare FROM fares",
}
"""By name; the tables of the last one are streams that are only added to."""

OF_OTHERS = {"inner", "left", "three", "right", "full", "having_of_a_column", "by_number"}
"""What these have is in others, too: ``three_of_all``, ``right_using``, ``full_using`` and ``by_number_with_having``."""

CHOSEN = {name: query for name, query in QUERIES.items() if PROFILE == "long" or name not in OF_OTHERS}


def rows(random: Random) -> dict[str, list[list[dict[str, Any]]]]:
    """Return random rows of each table, epoch by epoch."""
    found: dict[str, list[list[dict[str, Any]]]] = {"rides": [], "fares": [], "zones": []}
    for epoch in range(3 if PROFILE == "long" else 2):
        base = 10 * epoch
        found["rides"].append(
            [
                {"id": base + n, "zone": random.choice(["a", "b", None, "C"]), "at": _at(base + n), "miles": random.randint(0, 9)}
                for n in range(8)
            ]
        )
        found["fares"].append(
            [
                {"fid": base + n, "ride": random.choice([None, *range(30)]), "paid_at": _at(base + n), "fare": random.randint(0, 9)}
                for n in range(8)
            ]
        )
        found["zones"].append([{"zone": "abc"[epoch], "borough": f"borough {epoch}", "t": epoch}])
    return found


def _at(minute: int) -> datetime:
    return datetime(2024, 1, 1, 0, minute, tzinfo=UTC)


def content(history: list[dict[str, Any]], keys: tuple[str, ...] | None) -> list[tuple[Any, ...]]:
    """Return the rows that a stream has come to: all, or what a changelog's history leaves."""
    if keys is None:
        return sorted((tuple(row.values()) for row in history), key=repr)
    there: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in history:
        key = tuple(row[name] for name in keys)
        if row["operation"] == "delete":
            del there[key]
        else:
            there[key] = tuple(value for name, value in row.items() if name not in ("operation", "epoch"))
    return sorted(there.values(), key=repr)


@pytest.mark.spark
@pytest.mark.parametrize("seed", new_seeds("queries", 1))
def test_queries_come_to_what_spark_makes_of_them(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    given = rows(Random(seed))
    plain = sources(given)
    keyed = {name: stream.as_changelog([KEYS[name]]) for name, stream in plain.items()}
    streams = {
        name: tm.sql(query, uid=name.replace("_", "-"), **(plain if name == "together" else keyed)) for name, query in CHOSEN.items()
    }
    all_rows = {name: [row for epoch in epochs for row in epoch] for name, epochs in given.items()}
    found = results(spark, tmp_path, streams)
    assert all(found.values())
    make_views(spark, all_rows)
    for name, query in CHOSEN.items():
        assert timeless(found[name]) == timeless([tuple(row) for row in spark.sql(query).collect()]), name


@pytest.mark.spark
@pytest.mark.parametrize("seed", new_seeds("random queries", times(1)))
def test_random_queries_come_to_what_spark_makes_of_the_newest_rows(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    given = rows(random)
    for name, key in KEYS.items():
        for row in given[name][1][:3]:
            row[key] = random.choice(given[name][0])[key]
    newest = {name: {row[key]: row for epoch in given[name] for row in epoch} for name, key in KEYS.items()}
    make_views(spark, {name: list(by_key.values()) for name, by_key in newest.items()})
    streams = {name: stream.latest(by=[KEYS[name]]).uid(f"latest-{name}") for name, stream in sources(given).items()}
    made, queries, expected = RandomQueries(random), {}, {}
    for number in range(80):
        text, _ = made.query()
        try:
            # Some compute numbers that are too large, for Spark, too.
            rows_of_spark = [tuple(row) for row in spark.sql(text).collect()]
            queries[f"q{number}"] = tm.sql(text, uid=f"q{number}", **streams)
        except (PySparkException, TidemarkError):
            continue
        expected[f"q{number}"] = text, rows_of_spark
        if len(queries) == RANDOM_QUERIES:
            break
    assert len(queries) == RANDOM_QUERIES
    found = results(spark, tmp_path, queries)
    for name, (text, rows_of_spark) in expected.items():
        assert timeless(found[name]) == timeless(rows_of_spark), text


def sources(given: Mapping[str, list[list[dict[str, Any]]]]) -> dict[str, tm.Stream]:
    """Return streams of the rows of each table."""
    return {
        name: tm.source(
            name, tm.from_elements(epochs=given[name], schema=schema), watermarks=tm.bounded_out_of_orderness("1 hour", timestamp=time)
        )
        for name, (schema, time) in SCHEMAS.items()
    }


def make_views(spark: SparkSession, given: Mapping[str, list[dict[str, Any]]]) -> None:
    """Have Spark find the rows of each table by its name."""
    for name, (schema, _) in SCHEMAS.items():
        spark.createDataFrame([tuple(row.values()) for row in given[name]], schema).createOrReplaceTempView(name)


def results(spark: SparkSession, folder: Path, streams: Mapping[str, tm.Stream]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what each stream has come to when its job has run."""
    tables = {name: f"{folder}-{name}" for name in streams}
    tm.run(tm.Job("queries", {name: tm.memory(stream, tables[name]) for name, stream in streams.items()}, store=str(folder)), spark=spark)
    found = {}
    for name, stream in streams.items():
        table = tm.memory_table(tables[name])
        assert table is not None
        found[name] = content(table.to_pylist(), changelog_keys(stream.node))
        tm.clear_memory(tables[name])
    return found


def timeless(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows in order, without times, which Spark gives in the zone of the machine."""
    return sorted((tuple(value for value in row if not isinstance(value, datetime)) for row in rows), key=repr)
