"""What a query over streams does not cover is refused by its name, with what to write instead."""

from __future__ import annotations

import pytest

import tidemark as tm
from tidemark.errors import TidemarkError
from tidemark.graph.operators.interval_join.node import IntervalJoinNode

RIDES = tm.source(
    "rides", tm.from_elements(rows=[], schema="id INT, zone STRING, at TIMESTAMP, miles INT"), watermarks=tm.ascending(timestamp="at")
)
FARES = tm.source(
    "fares", tm.from_elements(rows=[], schema="fid INT, ride INT, at TIMESTAMP, fare INT"), watermarks=tm.ascending(timestamp="at")
)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM rides ORDER BY id", "ORDER BY is not covered"),
        ("SELECT * FROM rides LIMIT 3", "LIMIT is not covered"),
        ("SELECT id FROM rides UNION SELECT fid FROM fares", "UNION without ALL is not covered"),
        ("SELECT * FROM rides r CROSS JOIN fares f", "CROSS join is not covered"),
        ("SELECT r.id FROM rides r NATURAL JOIN fares f", "NATURAL"),
        ("SELECT r.id FROM rides r JOIN fares f ON r.miles > f.fare", "has no columns that are to be equal"),
        ("SELECT r.id FROM rides r LEFT JOIN fares f ON r.id = f.ride AND f.fare > 2", "keeps rows without a partner is not covered"),
        ("SELECT r.id FROM rides r JOIN fares f ON r.id = f.ride AND f.at >= r.at", "have a bound on one side only"),
        ("SELECT id FROM rides WHERE id IN (SELECT ride FROM fares)", "the subquery in"),
        ("SELECT sum(miles) FROM rides", "an aggregate without GROUP BY is not covered"),
        ("SELECT zone, miles, count(*) FROM rides GROUP BY zone", "miles is neither in GROUP BY nor in an aggregate"),
        ("SELECT zone, count(*) FROM rides GROUP BY ROLLUP (zone)", "GROUP BY ROLLUP is not covered"),
        ("SELECT zone, corr(miles, id) FROM rides GROUP BY zone", "is not covered"),
        ("SELECT *, row_number() OVER (PARTITION BY zone ORDER BY id) n FROM rides", "is not covered"),
        (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY zone ORDER BY id) n FROM rides) AS t",
            "has no bound in the query over it",
        ),
        ("SELECT sum(miles) OVER (PARTITION BY zone) s FROM rides", "is not covered"),
        ("SELECT speed FROM rides", "there is no column speed"),
        ("SELECT * FROM trips", "there is no table 'trips'"),
        (
            "SELECT at FROM rides r JOIN fares f ON r.id = f.ride AND f.at BETWEEN r.at AND r.at + INTERVAL 1 HOUR",
            "is a column of several tables: r, f",
        ),
        ("SELECT r.at, f.at FROM rides r JOIN fares f ON r.id = f.ride", "is only added to"),
        ("SELECT id, miles AS id FROM rides", "two columns of the result are named 'id'"),
        ("SELECT id FROM", "cannot be parsed"),
        ("DELETE FROM rides", "not a query"),
        ("", "there is nothing in it"),
        ("SELECT 1", "a query without FROM is not covered"),
        ("SELECT * FROM rides TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not covered"),
    ],
)
def test_what_is_not_covered(query: str, message: str) -> None:
    with pytest.raises(TidemarkError) as raised:
        tm.sql(query, uid="query", rides=RIDES, fares=FARES)
    assert message in str(raised.value)
    assert "Fix: " in str(raised.value)
    assert "test_refused.py" in str(raised.value)


def test_state_needs_a_name() -> None:
    with pytest.raises(TidemarkError, match="the query has 1 operators that keep state"):
        tm.sql("SELECT zone, count(*) AS n FROM rides GROUP BY zone", rides=RIDES)


def test_an_interval_of_both_times_is_an_interval_join() -> None:
    query = """SELECT r.id, f.fare FROM rides r LEFT JOIN fares f
        ON r.id = f.ride AND f.at BETWEEN r.at - INTERVAL 10 MINUTES AND r.at + INTERVAL '1' HOUR"""
    join = tm.sql(query, uid="near", rides=RIDES, fares=FARES).node.input
    assert isinstance(join, IntervalJoinNode)
    assert (join.uid, join.how, join.lower_ms, join.upper_ms) == ("near-join-f", "left", -600_000, 3_600_000)
