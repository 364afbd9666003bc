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

FIRST = "SELECT {outer} FROM (SELECT id, row_number() OVER (PARTITION BY zone ORDER BY miles DESC) AS n FROM rides) AS t WHERE {where}"


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
        ("SELECT * FROM (SELECT id FROM rides) TABLESAMPLE (10 PERCENT)", "TABLESAMPLE is not covered"),
        ("SELECT * FROM rides VERSION AS OF 3", "VERSION AS OF and TIMESTAMP AS OF is not covered"),
        ("SELECT * FROM rides TIMESTAMP AS OF '2024-01-01'", "VERSION AS OF and TIMESTAMP AS OF is not covered"),
        ("SELECT DISTINCT ON (zone) id FROM rides", "DISTINCT ON is not covered"),
        ("SELECT id FROM rides SORT BY id", "SORT BY is not covered"),
        ("SELECT id FROM rides DISTRIBUTE BY id", "DISTRIBUTE BY is not covered"),
        ("SELECT id FROM rides CLUSTER BY id", "CLUSTER BY is not covered"),
        ("SELECT * EXCEPT (id) FROM rides", "* EXCEPT is not covered"),
        ("SELECT r.* EXCEPT (id) FROM rides r", "* EXCEPT is not covered"),
        ("SELECT x.* FROM rides r", "there is no table x"),
        ("WITH u(b, a) AS (SELECT id, miles FROM rides) SELECT b FROM u", "a list of columns after an alias is not covered"),
        ("SELECT b FROM (SELECT id FROM rides) AS u(b)", "a list of columns after an alias is not covered"),
        ("SELECT b FROM rides AS u(b, c, d, e)", "a list of columns after an alias is not covered"),
        ("WITH u AS (SELECT id FROM rides), u AS (SELECT fid FROM fares) SELECT * FROM u", "WITH names 'u' twice"),
        ("(WITH u AS (SELECT id FROM rides) SELECT id FROM u) UNION ALL SELECT id FROM u", "there is no table 'u'"),
        ("WITH RECURSIVE u AS (SELECT id FROM rides) SELECT * FROM u", "WITH RECURSIVE is not covered"),
        ("(SELECT * FROM rides) LIMIT 3", "LIMIT is not covered"),
        ("(SELECT * FROM rides LIMIT 3)", "LIMIT is not covered"),
        ("SELECT id FROM rides UNION ALL SELECT fid FROM fares LIMIT 3", "LIMIT is not covered"),
        ("SELECT id, zone FROM rides UNION ALL BY NAME SELECT zone, id FROM rides", "UNION BY NAME is not covered"),
        ("SELECT /*+ BROADCAST(f) */ r.id FROM rides r JOIN fares f ON r.id = f.ride", "a hint is not covered"),
        ("SELECT * FROM rides LATERAL VIEW explode(array(1)) e AS x", "LATERAL VIEW is not covered"),
        ("SELECT id FROM rides QUALIFY row_number() OVER (ORDER BY id) = 1", "QUALIFY is not covered"),
        ("SELECT id FROM rides EXCEPT SELECT fid FROM fares", "EXCEPT is not covered"),
        ("SELECT id FROM rides INTERSECT SELECT fid FROM fares", "INTERSECT is not covered"),
        ("SELECT id FROM rides INTERSECT ALL SELECT fid FROM fares", "write SELECT DISTINCT id FROM rides r LEFT SEMI JOIN fares f"),
        (
            "SELECT x.id FROM (SELECT id FROM rides MINUS SELECT fid FROM fares) x",
            "write SELECT DISTINCT id FROM rides r LEFT ANTI JOIN fares f",
        ),
        ("SELECT r.id FROM rides r JOIN (fares f JOIN rides x ON f.ride = x.id) ON r.id = f.ride", "a join in parentheses is not covered"),
        ("SELECT id FROM default.rides", "a table of a database is not covered"),
        ("SELECT id FROM range(3)", "is no table of the query"),
        ("SELECT r.zone.length FROM rides r", "a name of three parts is not covered"),
        ("SELECT zone.length FROM rides r", "the field of a struct is written (zone).length"),
        ("SELECT (SELECT max(fare) FROM fares) AS m FROM rides", "the subquery in"),
        ("SELECT r.id FROM rides r JOIN fares f ON r.id = f.ride AND EXISTS (SELECT 1 FROM fares)", "the subquery in"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY zone HAVING count(*) > (SELECT 1)", "the subquery in"),
        # Groups.
        ("SELECT sum(miles) AS s FROM rides HAVING sum(miles) > 3", "HAVING without GROUP BY is not covered"),
        ("SELECT DISTINCT zone FROM rides HAVING zone > 'a'", "HAVING without GROUP BY is not covered"),
        ("SELECT zone FROM rides HAVING zone > 'a'", "HAVING without GROUP BY is not covered"),
        ("SELECT DISTINCT zone, count(*) AS n FROM rides GROUP BY zone", "SELECT DISTINCT with GROUP BY is not covered"),
        ("SELECT zone AS miles, miles AS c, count(*) AS n FROM rides GROUP BY zone", "miles is neither in GROUP BY nor in an aggregate"),
        ("SELECT miles % 10 AS miles, max(id) AS most FROM rides GROUP BY zone", "miles is neither in GROUP BY nor in an aggregate"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY zone HAVING miles > 1", "miles is neither in GROUP BY nor in an aggregate"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY zone HAVING speed > 1", "there is no column speed"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY zone, n", "is by an aggregate"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY 3", "GROUP BY 3 is no column of the result"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY 1.5", "GROUP BY 1.5 is no column of the result"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY zone WITH CUBE", "GROUP BY CUBE is not covered"),
        ("SELECT zone, count(*) AS n FROM rides GROUP BY ALL", "GROUP BY ALL is not covered"),
        ("SELECT zone, max_by(id, miles, 2) AS best FROM rides GROUP BY zone", "the count given to MAX_BY(id, miles) is not covered"),
        (
            "SELECT zone, approx_count_distinct(id, 0.1) AS d FROM rides GROUP BY zone",
            "the accuracy given to APPROX_COUNT_DISTINCT",
        ),
        ("SELECT zone, sum(id) FILTER (WHERE zone > 'a') AS s FROM rides GROUP BY zone", "FILTER(WHERE zone > 'a') is not covered"),
        ("SELECT zone, sum(count(*)) AS s FROM rides GROUP BY zone", "the aggregate SUM(COUNT(*)) is not covered"),
        ("SELECT zone, every(miles > 1) AS e FROM rides GROUP BY zone", "the aggregate EVERY(miles > 1) is not covered"),
        ("SELECT zone, sum(count(*)) OVER (ORDER BY zone) AS s FROM rides GROUP BY zone", "OVER (ORDER BY zone) is not covered"),
        ("SELECT zone FROM rides WHERE count(*) > 1 GROUP BY zone", "the aggregate in WHERE COUNT(*) > 1"),
        ("SELECT zone, count(*) FROM rides GROUP BY zone", "the column COUNT(*) has no name"),
        ("SELECT zone AS self FROM rides", "a column named 'self' is not covered"),
        ("SELECT zone, listagg(zone) WITHIN GROUP (ORDER BY id) AS l FROM rides GROUP BY zone", "the aggregate"),
        ("SELECT upper(zone) FROM rides", "the column UPPER(zone) has no name"),
        # Joins.
        ("SELECT id, fare FROM rides r JOIN fares f ON ride = id AND at > r.at", "at is a column of several tables: r, f"),
        # The first rows of groups.
        (FIRST.format(outer="*", where="n <= 2.5"), "the bound n <= 2.5 is no whole number"),
        (FIRST.format(outer="*", where="n <= '2'"), "the bound n <= '2' is no whole number"),
        (FIRST.format(outer="*", where="n < 1"), "the bound n < 1 lets no row pass"),
        (FIRST.format(outer="*", where="n = 2"), "has no bound in the query over it"),
        (FIRST.format(outer="id", where="n = 1"), "PARTITION BY zone is by what the subquery does not select"),
        (FIRST.format(outer="id", where="n = 1").replace("ORDER BY miles", "ORDER BY speed"), "there is no column speed"),
        (FIRST.format(outer="*", where="n = 1").replace("SELECT id", "SELECT DISTINCT id"), "ROW_NUMBER of SELECT DISTINCT is not covered"),
        (FIRST.format(outer="*", where="n = 1").replace("AS n", "+ 1 AS m, row_number() OVER (ORDER BY id) AS n"), "is not covered"),
        (
            FIRST.format(outer="*", where="n = 1").replace("AS n", "AS id, row_number() OVER (ORDER BY id) AS n"),
            "has no bound in the query",
        ),
        (FIRST.format(outer="*", where="id = 1").replace("AS n", "AS id"), "two columns of the result are named 'id'"),
        (FIRST.format(outer="*", where="n = 1").replace("DESC", "DESC ROWS 3 PRECEDING"), "ROWS or RANGE after OVER is not covered"),
        # Windows, as SQL of Flink and of Spark writes them.
        (
            "SELECT window_start FROM TABLE(\n  TUMBLE(TABLE rides, DESCRIPTOR(at), INTERVAL '10' MINUTES))",
            "the window TUMBLE(...) at line 2, column 3 is not covered",
        ),
        ("SELECT * FROM HOP(TABLE rides, DESCRIPTOR(at), INTERVAL '5' MINUTES, INTERVAL '1' HOUR)", "the window HOP(...)"),
        ("SELECT * FROM CUMULATE(TABLE rides, DESCRIPTOR(at), INTERVAL '1' HOUR, INTERVAL '1' DAY)", "the window CUMULATE(...)"),
        ("SELECT * FROM SESSION(TABLE rides PARTITION BY zone, DESCRIPTOR(at), INTERVAL '5' MINUTES)", "the window SESSION(...)"),
        ("SELECT TUMBLE_START(at, INTERVAL '1' HOUR) s FROM rides GROUP BY TUMBLE(at, INTERVAL '1' HOUR)", "the window TUMBLE_START(...)"),
        ("SELECT zone, count(*) n FROM rides GROUP BY zone, hop(at, INTERVAL '1' HOUR, INTERVAL '2' HOUR)", "the window HOP(...)"),
        ("SELECT zone, count(*) n FROM rides GROUP BY window(at, '10 minutes'), zone", "the window WINDOW(...) at line 1, column 45"),
        ("SELECT zone FROM rides GROUP BY session_window(at, '10 minutes'), zone", "the window SESSION_WINDOW(...)"),
        ("SELECT window_time(window) t FROM rides", "WINDOW_TIME(...) at line 1, column 8, the time of a window, is not covered"),
        ("SELECT * FROM rides MATCH_RECOGNIZE (PARTITION BY zone ORDER BY at PATTERN (A B))", "MATCH_RECOGNIZE(...)"),
        ("SELECT sum(id) OVER (ORDER BY at ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) n FROM rides", "ROWS or RANGE after OVER"),
        ("SELECT sum(id) OVER w AS n FROM rides WINDOW w AS (PARTITION BY zone)", "WINDOW is not covered"),
        ("SELECT sum(id) OVER (PARTITION BY zone ORDER BY at) n FROM rides", ".running_aggregate(total=tm.sum('fare'))"),
        ("SELECT r.id FROM rides r JOIN fares FOR SYSTEM_TIME AS OF r.at AS f ON r.id = f.ride", "rides.join_asof("),
        # Bounds of times where a join does not see them.
        (
            "SELECT r.id FROM rides r JOIN fares f ON r.id = f.ride WHERE f.at BETWEEN r.at AND r.at + INTERVAL 1 HOUR",
            "move it to ON: JOIN f ON ... AND f.at BETWEEN r.at AND r.at + INTERVAL '1' HOUR",
        ),
        ("SELECT r.id FROM rides r LEFT JOIN fares f ON r.id = f.ride WHERE r.at < f.at", "WHERE has the bound r.at < f.at"),
        ("SELECT r.id FROM rides r JOIN fares f ON r.id = f.ride AND f.at >= r.at WHERE f.at <= r.at + INTERVAL 1 HOUR", "move it to ON"),
        (
            "SELECT r.id FROM rides r JOIN fares f ON r.id = f.ride AND f.at >= r.at AND f.at < r.at + INTERVAL 1 HOUR",
            "the bound f.at < r.at + INTERVAL '1' HOUR of the times of a join is not inclusive",
        ),
        # Names that are nearly those of columns and tables.
        (
            "SELECT mile FROM rides",
            "no column mile; did you mean rides.miles? The columns are: rides.id, rides.zone, rides.at, rides.miles",
        ),
        ("SELECT zone FROM rides WHERE Mils > 2", "there is no column Mils; did you mean rides.miles?"),
        ("SELECT zone, sum(r.mils) AS n FROM rides r GROUP BY zone", "Fix: write r.miles"),
        ("SELECT f.fare FROM rides r JOIN fares f ON r.id = f.rid", "there is no column f.rid; did you mean f.ride?"),
        ("SELECT f.fare FROM rides r JOIN fares f ON z.ids = f.ride", "there is no column z.ids; did you mean r.id?"),
        ("SELECT id FROM ridez", "no table 'ridez'; did you mean 'rides'? The tables are: rides, fares"),
        ("SELECT id FROM ridez", "Fix: write rides, or pass the stream: tm.sql(..., ridez=stream)"),
        # Functions that nothing has.
        (
            "SELECT zone,\n  uper(zone) AS z FROM rides",
            "the query calls 'uper' at line 2, column 3, which Spark SQL does not have; did you mean 'upper'?",
        ),
        ("SELECT id FROM rides WHERE tax_of(id) > 1", "declare it here and for the job: tm.sql(..., functions=['tax_of'])"),
        ("SELECT zone, sum(tax_of(id)) AS s FROM rides GROUP BY zone", "calls 'tax_of' at line 1, column 18"),
        ("SELECT r.id FROM rides r JOIN fares f ON tax_of(r.id) = f.ride", "calls 'tax_of' at line 1, column 42"),
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


def test_functions_of_the_session_are_declared() -> None:
    made = tm.sql("SELECT tax_of(id) AS tax, lake.`tax of`(id) AS other, left(zone, 1) AS l FROM rides", functions=["TAX_OF"], rides=RIDES)
    job = tm.Job("taxes", {"taxes": tm.memory(made, "declared_taxes")}, functions=["tax_of"])
    assert job.functions == ("tax_of",)
    with pytest.raises(TidemarkError, match="is not a list of names of functions"):
        tm.sql("SELECT id FROM rides", functions="tax_of", rides=RIDES)
    with pytest.raises(TidemarkError, match="no table of the name 'functions'"):
        tm.sql("SELECT id FROM functions", functions=RIDES)


def test_a_month_may_be_in_where() -> None:
    keyed = {"rides": RIDES.as_changelog(["id"]), "fares": FARES.as_changelog(["fid"])}
    for condition in ("f.at < r.at + INTERVAL 1 MONTH", "r.at >= r.at - INTERVAL 1 YEAR", "f.at >= r.at"):
        query = f"SELECT r.id, f.fid, f.fare FROM rides r LEFT JOIN fares f ON r.id = f.ride WHERE {condition}"
        made = tm.sql(query, uid="month", **keyed)
        assert "filter" in tm.Job("month", {"month": tm.memory(made, "a_month")}).explain()


def test_a_closer_bound_may_be_in_where() -> None:
    query = """SELECT r.id, f.fare FROM rides r JOIN fares f
        ON r.id = f.ride AND f.at BETWEEN r.at - INTERVAL 10 MINUTES AND r.at + INTERVAL '1' HOUR WHERE f.at > r.at"""
    made = tm.sql(query, uid="near", rides=RIDES, fares=FARES)
    assert "filter" in tm.Job("near", {"near": tm.memory(made, "closer_bound")}).explain()
