"""Queries become the operators and the expressions that Spark's rules for names ask for."""

from __future__ import annotations

import re
from typing import TypeVar, cast

import pytest

import tidemark as tm
from tidemark.errors import TidemarkError
from tidemark.graph.model.nodes import FilterNode, Node, SelectNode, walk
from tidemark.graph.operators.group_aggregate.node import GroupAggregateNode
from tidemark.graph.operators.interval_join.node import IntervalJoinNode
from tidemark.graph.operators.regular_join.node import RegularJoinNode
from tidemark.graph.operators.top_n.node import TopNode

PLAIN = {
    "rides": tm.source(
        "rides", tm.from_elements(rows=[], schema="id INT, zone STRING, at TIMESTAMP, miles INT"), watermarks=tm.ascending(timestamp="at")
    ),
    "fares": tm.source(
        "fares",
        tm.from_elements(rows=[], schema="id INT, ride INT, other INT, at TIMESTAMP, fare INT"),
        watermarks=tm.ascending(timestamp="at"),
    ),
}
Kind = TypeVar("Kind", bound=Node)
KEYED = {name: stream.as_changelog(["id"]) for name, stream in PLAIN.items()}


def keyed(query: str) -> Node:
    """Return the node of a query over changelogs."""
    return tm.sql(query, uid="q", **KEYED).node


def found(node: Node, kind: type[Kind]) -> Kind:
    """Return the one node of a kind that a stream is made of."""
    (made,) = [each for each in walk([node]) if isinstance(each, kind)]
    return made


def selected(node: Node) -> dict[str, str]:
    """Return the columns of a selection."""
    assert isinstance(node, SelectNode)
    return {name: cast("str", expression) for name, expression in node.columns}


def filters(node: Node) -> list[str]:
    """Return the conditions of filters."""
    return [cast("str", each.condition) for each in walk([node]) if isinstance(each, FilterNode)]


def refusal(query: str) -> str:
    """Return the error of a query over changelogs."""
    with pytest.raises(TidemarkError) as raised:
        keyed(query)
    assert "Fix: " in str(raised.value)
    return str(raised.value)


def test_a_column_may_be_compared_with_several() -> None:
    made = keyed("SELECT r.id, f.id AS fid FROM rides r LEFT JOIN fares f ON r.id = f.ride AND r.id = f.other AND f.ride = r.id")
    join = found(made, RegularJoinNode)
    assert join.left.on == ("`id`", "(`id`)")
    assert join.right.on == ("`ride`", "`other`")


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        ("f.at >= r.at AND f.at >= r.at + INTERVAL 1 MINUTE AND f.at <= r.at + INTERVAL 2 HOURS", (60_000, 7_200_000)),
        ("f.at BETWEEN r.at AND r.at + INTERVAL 2 HOURS AND f.at <= r.at + INTERVAL 1 HOUR", (0, 3_600_000)),
        (
            "r.at <= f.at AND r.at >= f.at - INTERVAL 1 HOUR AND f.at BETWEEN r.at - INTERVAL 1 HOUR AND r.at + INTERVAL 3 HOURS",
            (0, 3_600_000),
        ),
    ],
)
def test_of_several_bounds_of_times_the_closest_holds(condition: str, bounds: tuple[int, int]) -> None:
    made = tm.sql(f"SELECT r.id, f.id AS fid FROM rides r JOIN fares f ON r.id = f.ride AND {condition}", uid="q", **PLAIN)
    join = found(made.node, IntervalJoinNode)
    assert (join.lower_ms, join.upper_ms) == bounds


def test_keys_of_groups_have_names_of_their_own() -> None:
    made = keyed("SELECT r.id AS a, f.id AS b, count(*) AS n FROM rides r JOIN fares f ON r.id = f.ride GROUP BY r.id, f.id")
    assert found(made, GroupAggregateNode).keys == (("a", "`id`"), ("b", "`f_id`"))
    assert "key of a changelog (id, id_2)" in refusal(
        "SELECT r.id, count(*) AS n FROM rides r JOIN fares f ON r.id = f.ride GROUP BY r.id, f.id"
    )
    made = keyed("SELECT zone AS key_2, count(*) AS aggregate_1, miles + 1 AS m FROM rides GROUP BY zone, miles + 1, rides.zone")
    assert found(made, GroupAggregateNode).keys == (("key_2", "`zone`"), ("m", "`miles` + 1"))
    assert "key of a changelog (key_2, key_2_2)" in refusal("SELECT zone AS key_2, count(*) AS n FROM rides GROUP BY zone, miles + 1")
    made = keyed("SELECT zone AS aggregate_1, count(*) AS n FROM rides GROUP BY zone")
    assert selected(made) == {"aggregate_1": "`aggregate_1`", "n": "`aggregate_1_2`"}


def test_group_by_means_columns_of_the_input_first() -> None:
    group = found(keyed("SELECT miles % 10 AS miles2, miles AS m, count(*) AS n FROM rides GROUP BY miles"), GroupAggregateNode)
    assert group.keys == (("m", "`miles`"),)
    made = keyed("SELECT miles % 10 AS miles, max(miles) AS m, rides.miles AS own FROM rides GROUP BY miles")
    assert found(made, GroupAggregateNode).keys == (("own", "`miles`"),)
    assert selected(made) == {"miles": "`own` % 10", "m": "`aggregate_1`", "own": "`own`"}
    made = keyed("SELECT miles % 10 AS digit, count(*) AS n FROM rides GROUP BY Digit")
    assert found(made, GroupAggregateNode).keys == (("digit", "`miles` % 10"),)


def test_columns_with_and_without_their_table_are_one() -> None:
    made = keyed("SELECT q.zone, Upper(ZONE) AS u, count(*) AS n FROM rides q GROUP BY zone, (upper(q.zone)) HAVING q.zone > 'a'")
    assert found(made, GroupAggregateNode).keys == (("zone", "`zone`"), ("u", "upper(`zone`)"))
    assert selected(made) == {"zone": "`zone`", "u": "`u`", "n": "`aggregate_1`"}
    assert filters(made) == ["`zone` > 'a'"]


def test_having_means_keys_first_and_then_columns_of_the_result() -> None:
    made = keyed("SELECT zone, count(*) AS n, sum(miles) AS miles FROM rides GROUP BY zone HAVING n > 3 AND miles > 4 AND max(miles) < 9")
    assert filters(made) == ["`aggregate_1` > 3 AND `aggregate_2` > 4 AND `aggregate_3` < 9"]
    made = keyed("SELECT zone AS z, max(miles) AS zone FROM rides GROUP BY zone HAVING zone = 'a'")
    assert filters(made) == ["`z` = 'a'"]


def test_columns_of_the_result_in_having_are_one_value() -> None:
    made = keyed("SELECT zone, count(*) + 1 AS n FROM rides GROUP BY zone HAVING n * 2 > 5")
    assert filters(made) == ["(`aggregate_1` + 1) * 2 > 5"]


@pytest.mark.parametrize(
    "text",
    [
        "'it''s'",
        '"a""b"',
        "'x' 'y'",
        "to_char(miles, '99')",
        "parse_json('[1]')",
        "TIME'09:30:00'",
        "collate(zone, 'UTF8_LCASE')",
        "INTERVAL '1 2' DAY TO HOUR",
        "miles -- in all\n + 1",
        "transform(array(miles), miles -> miles + 1)[0]",
        "nvl2(zone, miles, 2)::STRING",
        "zone NOT ILIKE ANY ('a%', 'b')",
        "instr(zone, 'b', -1, 1)",
        "try_cast(zone AS INT) IS NOT DISTINCT FROM miles",
    ],
)
def test_expressions_are_those_that_the_query_has(text: str) -> None:
    def with_names(table: str) -> str:
        return re.sub(r"\b(miles|zone)\b(?! ->| \+ 1\))", rf"{table}\1", text)

    made = keyed(f"SELECT r.id, {with_names('R.')} AS value FROM rides AS r WHERE ({with_names('r.')}) IS NULL")
    named = with_names("").replace("miles", "`miles`").replace("zone", "`zone`")
    named = named.replace("`miles` -> `miles`", "miles -> miles")
    assert selected(made)["value"] == named
    assert filters(made) == [f"({named}) IS NULL"]


def test_aggregates_have_all_their_arguments() -> None:
    group = found(keyed("SELECT zone, count(id, miles) AS n, count(DISTINCT id, miles) AS d FROM rides GROUP BY zone"), GroupAggregateNode)
    texts = [aggregate.arguments for aggregate in dict(group.aggregates).values()]
    assert texts == [("CASE WHEN (`id`) IS NOT NULL AND (`miles`) IS NOT NULL THEN 1 END",), ("`id`", "`miles`")]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT zone, n FROM (SELECT zone, count(*) AS n FROM rides GROUP BY zone) AS s WHERE n > 2",
        "WITH s AS (SELECT zone, count(*) AS n FROM rides GROUP BY zone) SELECT zone, n FROM s WHERE n > 2",
        "SELECT r.id, ride, n FROM rides r JOIN (SELECT ride, count(*) AS n FROM fares GROUP BY ride) AS s ON r.id = s.ride WHERE n > 2",
    ],
)
def test_aggregates_of_a_subquery_are_its_own(query: str) -> None:
    made = keyed(query)
    assert filters(made) == ["`n` > 2"]
    assert found(made, GroupAggregateNode).uid == "q-s-group"


def test_over_reads_the_columns_that_a_subquery_reads() -> None:
    made = keyed(
        """SELECT zone, id, x FROM (SELECT zone, id, -miles AS x, miles AS m, ROW_NUMBER() OVER (PARTITION BY zone
        ORDER BY rides.miles DESC NULLS FIRST, id, miles % 2) AS n FROM rides) AS t WHERE 3 > n"""
    )
    top = found(made, TopNode)
    assert (top.n, top.by, top.order, top.rank) == (2, ("zone",), "`m` DESC NULLS FIRST, `id`, `order_3`", None)
    assert selected(top.inputs[0]) == {"zone": "`zone`", "id": "`id`", "x": "-`miles`", "m": "`miles`", "order_3": "`miles` % 2"}
    made = keyed(
        """SELECT * FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY zone ORDER BY miles) AS n, miles AS zone, upper(zone) AS u, zone AS z
        FROM rides) AS t WHERE n <= 5 AND n >= 2"""
    )
    top = found(made, TopNode)
    assert (top.n, top.by, top.order, top.rank) == (5, ("z",), "`zone`", "n")
    assert list(selected(made)) == ["id", "n", "zone", "u", "z"]
    assert filters(made) == ["`n` >= 2"]


def test_a_column_that_is_not_selected_may_group_rows() -> None:
    made = keyed("SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY upper(zone) ORDER BY miles) AS n FROM rides) AS t WHERE n = 1")
    top = found(made, TopNode)
    assert (top.n, top.by, top.order, top.rank) == (1, ("partition_1",), "`order_1`", None)
    assert selected(made) == {"id": "`id`"}


def test_groups_may_be_numbered() -> None:
    made = keyed(
        """SELECT zone, total FROM (SELECT zone, max(at) AS newest, sum(miles) AS total, ROW_NUMBER() OVER (PARTITION BY length(zone)
        ORDER BY sum(miles) DESC, count(*)) AS n FROM rides GROUP BY zone) AS t WHERE n <= 3"""
    )
    top = found(made, TopNode)
    assert (top.by, top.order, top.rank) == (("partition_1",), "`total` DESC, `order_2`", None)
    assert selected(top.inputs[0])["partition_1"] == "length(`zone`)"


def test_using_has_one_column_of_both() -> None:
    made = keyed("SELECT * FROM (SELECT zone, id FROM rides) r JOIN (SELECT id, fare FROM fares) f USING (ID)")
    assert list(selected(made)) == ["id", "zone", "fare"]
    made = keyed("SELECT f.id AS b, r.* FROM (SELECT zone, id FROM rides) r JOIN (SELECT id, fare FROM fares) f USING (id)")
    assert list(selected(made).items()) == [("b", "`id`"), ("id", "`id`"), ("zone", "`zone`")]
    made = keyed("SELECT f.*, r.zone FROM (SELECT zone, id FROM rides) r RIGHT JOIN (SELECT fare, id, ride FROM fares) f USING (id)")
    assert list(selected(made).items()) == [("id", "`id`"), ("fare", "`fare`"), ("ride", "`ride`"), ("zone", "`zone`")]
    made = keyed("SELECT f.id AS b, id FROM rides r RIGHT JOIN fares f USING (id) WHERE f.id > 3")
    assert selected(made) == {"b": "`id`", "id": "`id`"}


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT id FROM rides r FULL JOIN fares f USING (id) WHERE r.id IS NULL", "r.id after a FULL JOIN"),
        ("SELECT id FROM rides r FULL JOIN fares f USING (id) WHERE f.id IS NULL", "f.id after a FULL JOIN"),
        ("SELECT id FROM rides r RIGHT JOIN fares f USING (id) WHERE r.id IS NULL", "r.id after a RIGHT JOIN"),
        ("SELECT id FROM rides r LEFT JOIN fares f USING (id) WHERE f.id IS NULL", "f.id after a LEFT JOIN"),
        ("SELECT r.* FROM rides r FULL JOIN fares f USING (id)", "r.id after a FULL JOIN"),
        ("SELECT id, count(f.id) AS n FROM rides r LEFT JOIN fares f USING (id) GROUP BY id", "f.id after a LEFT JOIN"),
    ],
)
def test_using_has_no_column_of_a_table_without_the_row(query: str, name: str) -> None:
    message = refusal(query)
    assert name in message
    assert "write id" in message


def test_a_condition_on_columns_of_several_tables_is_refused() -> None:
    assert "at is a column of several tables: r, f" in refusal(
        "SELECT r.id, f.id AS fid FROM rides r JOIN fares f ON r.id = f.ride WHERE zone > 'a' OR at > r.at"
    )


def test_columns_of_a_union_need_names_in_its_first_query_only() -> None:
    made = tm.sql("SELECT id, miles FROM rides UNION ALL (SELECT id * 2, fare FROM fares)", uid="q", **PLAIN)
    assert selected(made.node.inputs[1]) == {"id": "`column_1`", "miles": "`fare`"}


INTERVAL = (
    "SELECT r.id FROM rides r JOIN fares f "
    "ON r.id = f.ride AND f.at BETWEEN r.at - INTERVAL '1' HOUR AND r.at + INTERVAL '1' HOUR WHERE f.fare > "
)


@pytest.mark.parametrize(
    ("query", "uids"),
    [
        ("SELECT zone, count(*) AS n FROM (SELECT zone FROM rides) GROUP BY zone", ["q-group"]),
        ("SELECT zone, n + 1 AS m FROM (SELECT zone, count(*) AS n FROM rides GROUP BY zone)", ["q-group"]),
        # The inner one keeps its name, and its state, where a query is put around it.
        ("SELECT n, count(*) AS zones FROM (SELECT zone, count(*) AS n FROM rides GROUP BY zone) GROUP BY n", ["q-group", "q-group-2"]),
        ("SELECT n, count(*) AS zones FROM (SELECT zone, count(*) AS n FROM rides GROUP BY zone) c GROUP BY n", ["q-c-group", "q-group"]),
        (f"{INTERVAL} 1 UNION ALL {INTERVAL} 2", ["q-join-f", "q-join-f-2"]),
    ],
)
def test_operators_of_one_kind_in_queries_without_alias_have_names_of_their_own(query: str, uids: list[str]) -> None:
    for _ in range(2):
        made = tm.sql(query, uid="q", **PLAIN)
        assert [each.uid for each in walk([made.node]) if isinstance(each, GroupAggregateNode | IntervalJoinNode)] == uids
        tm.Job("named", {"rows": tm.memory(made, "rows")})
