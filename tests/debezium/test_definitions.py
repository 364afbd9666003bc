"""How the records of Debezium are declared, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import tidemark as tm
from tests.debezium.records import SCHEMA, TIMED, elements
from tidemark.errors import ColumnError, DefinitionError, ExpressionError, InvalidNameError
from tidemark.graph.connectors.debezium.texts import is_unavailable

TAG = tm.OutputTag("odd")
KAFKA = tm.streaming_format("kafka", options={"subscribe": "shop.public.orders"})


def declared(**options: Any) -> tm.Stream:
    options = {"spec": KAFKA, "schema": SCHEMA, "key": ["id"], "watermarks": TIMED, **options}
    spec = options.pop("spec")
    return tm.debezium("orders", spec, **options)


def explained(stream: tm.Stream) -> str:
    return tm.Job("orders", outputs={"orders": tm.delta(stream, "warehouse/orders", mode="upsert")}).explain()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "id"),
        ({"keep_rows": False}, "id"),
        ({"key": ["ID", "status"]}, "id, status"),
        ({"sequence": "CAST(source.lsn AS BIGINT)", "metadata": {"tx": "transaction.id", "offset": "offset"}, "outdated_to": TAG}, "id"),
        ({"spec": elements([])}, "id"),
        ({"spec": tm.files("landing", format="text")}, "id"),
    ],
)
def test_it_is_a_changelog_that_can_be_upserted(options: dict[str, Any], key: str) -> None:
    assert f"upsert by {key}, exactly once" in explained(declared(**options))


def test_the_event_time_is_shown_as_it_was_written() -> None:
    assert "event time source.ts_ms, at most 1m out of order" in explained(declared())


def test_the_rows_are_kept_under_a_name_that_stays() -> None:
    assert "[orders-rows]" in explained(declared())
    assert "[newest]" in explained(declared(uid="newest"))
    assert "latest" not in explained(declared(keep_rows=False))


@pytest.mark.parametrize(
    ("options", "error", "what"),
    [
        ({"key": ["no"]}, ColumnError, "names 'no'"),
        ({"key": []}, DefinitionError, "not a list of columns"),
        ({"spec": tm.files("landing", format="json", schema="id INT")}, DefinitionError, "no column 'value'"),
        ({"spec": tm.streaming_format("iceberg")}, DefinitionError, "columns that are not known"),
        ({"watermarks": tm.ingestion_time()}, DefinitionError, "no timestamp by which"),
        ({"watermarks": tm.ascending(timestamp="updated")}, ColumnError, "unknown column 'updated'"),
        ({"watermarks": tm.ascending(timestamp="source.")}, ExpressionError, "timestamp of source 'orders'"),
        ({"sequence": "lsn"}, ColumnError, "unknown column 'lsn'"),
        ({"metadata": {"lsn": "sauce.lsn"}}, ColumnError, "did you mean 'source'"),
        ({"metadata": {"ID": "op"}}, InvalidNameError, "one name to Spark"),
        ({"metadata": {"op": "op"}, "keep_rows": False}, DefinitionError, "keeps no rows"),
        ({"uid": "rows", "keep_rows": False}, DefinitionError, "keeps no rows"),
        ({"outdated_to": TAG}, DefinitionError, "there is no sequence"),
        ({"schema": "id BIGINT, debezium_deleted STRING"}, DefinitionError, "begins with 'debezium'"),
        ({"schema": "id LONGS"}, DefinitionError, "cannot be read"),
        ({"schema": "id BIGINT, at ARRAY<TIMESTAMP>"}, DefinitionError, "has times within ARRAY<TIMESTAMP>"),
        (
            {"schema": "id BIGINT, source STRING"},
            ColumnError,
            "write debezium_source for a part of Debezium's envelope, and debezium_after",
        ),
        ({"schema": "id BIGINT, OP STRING", "metadata": {"kind": "op"}}, ColumnError, "a column of the table and a part of Debezium's"),
        ({"schema": "id BIGINT, `timestamp` STRING", "sequence": "`timestamp`"}, ColumnError, "and a column of the source of the records"),
        ({"full_before": True}, DefinitionError, "is not read where rows are kept"),
        ({"placeholder": " "}, DefinitionError, "stands for no value"),
        ({"incomplete_to": TAG, "keep_rows": False}, DefinitionError, "keeps no rows"),
        ({"incomplete_to": TAG, "placeholder": None}, DefinitionError, "no column of the schema can have one"),
    ],
)
def test_mistakes(options: dict[str, Any], error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        declared(**options)


def test_names_that_are_taken_twice_are_used_with_a_prefix() -> None:
    schema = "id BIGINT, source STRING, offset BIGINT, op STRING"
    timed = tm.ascending(timestamp="debezium_source.ts_ms")
    metadata = {"place": "debezium_offset", "kind": "debezium_op", "was": "debezium_before.source"}
    assert "[orders-rows]" in explained(declared(schema=schema, watermarks=timed, metadata=metadata))


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("STRING", ["'p'", "'cA=='", "'70'"]),
        ("BINARY", ["= CAST('p' AS BINARY)"]),
        ("ARRAY<STRING>", ["size(v) = 1", "v[0] IN ('p', 'cA=='"]),
        ("ARRAY<BINARY>", ["v[0] = CAST('p' AS BINARY)"]),
        ("ARRAY<BIGINT>", ["CAST(array(112) AS ARRAY<BIGINT>)"]),
        ("MAP<STRING, STRING>", ["map_keys(v) = array('p')"]),
        ("DECIMAL(10, 2)", None),
    ],
)
def test_forms_of_the_placeholder(kind: str, forms: list[str] | None) -> None:
    condition = is_unavailable("v", kind, "p")
    assert (condition is None) == (forms is None)
    assert all(form in str(condition) for form in forms or [])


def test_the_name_is_checked_before_it_becomes_part_of_a_uid() -> None:
    with pytest.raises(InvalidNameError):
        tm.debezium("../orders", KAFKA, schema=SCHEMA, key=["id"], watermarks=TIMED)
