"""Queries over streams come to what Spark makes of the same query over all their rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.seeds import PROFILE, new_seeds
from tidemark.graph.checks.changelogs import changelog_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RIDES = "id INT, zone STRING, at TIMESTAMP, miles INT"
FARES = "fid INT, ride INT, paid_at TIMESTAMP, fare INT"
ZONES = "zone STRING, borough STRING, t BIGINT"

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
    "right_using": "SELECT f.*, id AS both, miles FROM rides r RIGHT JOIN (SELECT fare, fid * 2 AS id, fid FROM fares) f USING (id)",
    "together": "SELECT id, miles AS value FROM rides UNION ALL SELECT fid, fare FROM fares",
}
"""By name; the tables of the last one are streams that are only added to."""


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
    plain = {
        name: tm.source(
            name, tm.from_elements(epochs=epochs, schema=schema), watermarks=tm.bounded_out_of_orderness("1 hour", timestamp=time)
        )
        for (name, epochs), schema, time in zip(given.items(), (RIDES, FARES, ZONES), ("at", "paid_at", "t"), strict=True)
    }
    keyed = {name: stream.as_changelog([key]) for (name, stream), key in zip(plain.items(), ("id", "fid", "zone"), strict=True)}
    streams = {
        name: tm.sql(query, uid=name.replace("_", "-"), **(plain if name == "together" else keyed)) for name, query in QUERIES.items()
    }
    job = tm.Job("queries", {name: tm.memory(stream, f"queries-{name}") for name, stream in streams.items()}, store=str(tmp_path))
    tm.run(job, spark=spark)
    for (name, epochs), schema in zip(given.items(), (RIDES, FARES, ZONES), strict=True):
        spark.createDataFrame([tuple(row.values()) for epoch in epochs for row in epoch], schema).createOrReplaceTempView(name)
    for name, query in QUERIES.items():
        table = tm.memory_table(f"queries-{name}")
        found = content(table.to_pylist() if table is not None else [], changelog_keys(streams[name].node))
        assert found, name
        assert timeless(found) == timeless([tuple(row) for row in spark.sql(query).collect()]), name


def timeless(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows in order, without times, which Spark gives in the zone of the machine."""
    return sorted((tuple(value for value in row if not isinstance(value, datetime)) for row in rows), key=repr)
