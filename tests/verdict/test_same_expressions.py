"""Whether two texts of SQL are one expression, which decides whether stored state fits a changed definition."""

from __future__ import annotations

import pytest

from tidemark.graph.operators.changes import same_expression


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fare+1", "`Fare` + 1"),
        ("a != b", "a <> b"),
        ("int(a)", "CAST(a AS INT)"),
        ("to_timestamp(a)", "CAST(a AS TIMESTAMP)"),
        ("date'2020-01-01'", "CAST('2020-01-01' AS DATE)"),
    ],
)
def test_two_ways_to_write_an_expression_are_one(old: str, new: str) -> None:
    assert same_expression(old, new)
    assert same_expression(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("parse_json(a)", "a"),
        ("CAST(a AS TIME)", "CAST(a AS TIMESTAMP)"),
        ("to_char(fare, '99')", "to_char(fare, '999')"),
        ("CAST(a AS INT)", "CAST(a AS BIGINT)"),
        ("a = 'x'", "a = 'X'"),
    ],
)
def test_another_expression_is_another(old: str, new: str) -> None:
    assert not same_expression(old, new)
    assert not same_expression(new, old)
