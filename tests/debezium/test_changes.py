"""The changelog that comes of Debezium's records: each epoch leaves the content of the table, with exact changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, Row, contents_of, sorted_rows
from tests.debezium.records import RECORDS, SCHEMA, TIMED, change, elements, key_of, row, tombstone
from tidemark.errors import UserCodeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MALFORMED, OUTDATED = tm.OutputTag("malformed"), tm.OutputTag("outdated")
ONLY_KEY = {"id": 2, "status": None, "amount": None}

SNAPSHOT = [change("r", None, row(key), wrapped=key == 3) for key in (1, 2, 3)] + [change("c", None, row(4))]
CHANGES = [
    change("u", None, row(1, "paid")),
    change("u", None, row(1, "paid")),  # comes twice
    change("d", ONLY_KEY, None),
    tombstone(2),
    change("r", None, row(3)),  # read again, as it was
    change("c", None, row(5), wrapped=True),
    change("d", row(5), None, wrapped=True),
    change("u", None, row(4, "paid", "12.50"), wrapped=True),
]
WRONG: list[tuple[str | None, str | None, str]] = [
    (key_of(1), '{"op": "u", "after": ', "record cannot be parsed"),
    (key_of(1), change("u", None, {"id": 1, "status": "x", "amount": "many"})[1], "record cannot be parsed"),
    (key_of(1), '{"id": 1}', "it has no op"),
    (key_of(1), "null", "record cannot be parsed"),
    (key_of(1), change("t", None, row(1))[1], "operation t cannot be applied"),
    (key_of(1), change("c", row(1), None)[1], "operation c has no row after it"),
    (None, change("c", None, {"status": "x"} | {"id": 1})[1], ""),
    (None, None, "a tombstone without a key"),
    ('{"no": 1}', json.dumps({"op": "c", "after": {"status": "x"}, "source": {"ts_ms": 1}}), "column of the key is null"),
    (key_of(1), json.dumps({"op": "c", "after": row(1), "source": {}}), "event time 'source.ts_ms' is null"),
]
READ_AGAIN = [
    change("r", None, row(1, "sent")),  # what came between is missing
    change("r", None, row(3)),
    tombstone(4),  # without a delete before
    change("c", None, row(2, "again")),
]
CONTENTS = [
    [row(1), row(2), row(3), row(4)],
    [row(1, "x"), row(3), row(4, "paid", "12.50")],
    [row(1, "sent"), row(2, "again"), row(3)],
]
"""After each epoch; the one right record among the wrong ones is that without a key of its own."""

FULL = [
    [change("r", None, row(1)), change("c", None, row(2))],
    [
        change("u", row(1), row(1, "paid")),
        change("u", row(1, "paid"), row(1, "sent", "11.00"), wrapped=True),
        change("d", row(2), None),
        tombstone(2),
        change("c", None, row(3)),
    ],
    [change("d", row(3), None), change("d", row(1, "sent", "11.00"), None)],
]
FULL_CONTENTS = [[row(1), row(2)], [row(1, "sent", "11.00"), row(3)], []]

ORDERED = [
    [change("r", None, row(1), lsn=10), change("r", None, row(2), lsn=10)],
    [change("u", None, row(1, "b"), lsn=30), change("u", None, row(1, "a"), lsn=20), change("d", ONLY_KEY, None, lsn=40), tombstone(2)],
    [change("u", None, row(2, "late"), lsn=35), change("u", None, row(1, "b"), lsn=30)],
]


def shown(rows: list[Row]) -> list[Row]:
    """Return rows with amounts as texts, in order."""
    return sorted_rows({**each, "amount": str(each["amount"])} for each in rows)


def totals(rows: list[Row]) -> list[Row]:
    """Return what a running total over the rows shows."""
    found: dict[Any, float] = {}
    for each in rows:
        found[each["status"]] = found.get(each["status"], 0) + float(each["amount"])
    return [{"status": status, "total": total} for status, total in found.items()]


def test_content_after_each_epoch(spark: SparkSession, tmp_path: Path) -> None:
    wrong = [(key, value) for key, value, _ in WRONG]
    right = next(number for number, (_, _, reason) in enumerate(WRONG) if not reason)
    assert wrong[right][0] is None
    wrong[right] = (None, change("c", None, row(1, "x"))[1])
    orders = tm.debezium(
        "orders", elements([SNAPSHOT, [*CHANGES, *wrong], READ_AGAIN]), schema=SCHEMA, key=["id"], watermarks=TIMED, malformed_to=MALFORMED
    )
    full = tm.debezium("full", elements(FULL), schema=SCHEMA, key=["id"], watermarks=TIMED, keep_rows=False)
    ordered = tm.debezium(
        "ordered",
        elements(ORDERED),
        schema=SCHEMA,
        key=["id"],
        watermarks=TIMED,
        sequence="CAST(source.lsn AS BIGINT)",
        metadata={"lsn": "CAST(source.lsn AS BIGINT)", "tx": "transaction.id", "position": "offset"},
        outdated_to=OUTDATED,
    )
    streams = {
        "orders": orders,
        "totals": orders.key_by("status").aggregate(total=tm.sum("amount")).uid("totals"),
        "malformed": orders.side_output(MALFORMED),
        "full": full,
        "full_totals": full.key_by("status").aggregate(total=tm.sum("amount")).uid("full_totals"),
        "ordered": ordered,
        "outdated": ordered.side_output(OUTDATED),
    }
    found = Histories(spark, tmp_path).run(streams)
    assert [shown(rows) for rows in contents_of(found["orders"], ["id"])] == [shown(rows) for rows in CONTENTS]
    assert [shown(rows) for rows in contents_of(found["full"], ["id"])] == [shown(rows) for rows in FULL_CONTENTS]
    for name, contents in (("totals", CONTENTS), ("full_totals", FULL_CONTENTS)):
        given = [[{**each, "total": float(each["total"])} for each in rows] for rows in contents_of(found[name], ["status"])]
        assert given == [sorted_rows(totals(rows)) for rows in contents]
    check_malformed([each for epoch in found["malformed"] for each in epoch])
    last = contents_of(found["ordered"], ["id"])
    assert [[(each["id"], each["status"], each["lsn"], each["tx"]) for each in rows] for rows in last] == [
        [(1, "new", 10, "1:10"), (2, "new", 10, "1:10")],
        [(1, "b", 30, "3:30")],
        [(1, "b", 30, "3:30")],
    ]
    assert sorted(each["status"] for epoch in found["outdated"] for each in epoch) == ["a", "late"]


def check_malformed(found: list[Row]) -> None:
    reasons = [reason for _, _, reason in WRONG if reason]
    assert len(found) == len(reasons)
    by_offset = {int(str(each["reason"]).rpartition("offset ")[2].rstrip(")")): each for each in found}
    first = len(SNAPSHOT) + len(CHANGES)
    for number, (_, value, reason) in enumerate(WRONG):
        if reason:
            each = by_offset[first + number]
            assert reason in each["reason"], each
            assert each["reason"].endswith(f"(partition 0, offset {first + number})")
            assert json.loads(each["raw"])["value"] == value


def test_a_table_whose_columns_change(spark: SparkSession, tmp_path: Path) -> None:
    """A column that is added is not read, one that is gone is null, and one of another type makes records malformed."""
    more = change("c", None, {**row(1), "note": "new column"})
    fewer = change("u", None, {"id": 1, "amount": "2.00"})
    other = change("u", None, {"id": 1, "status": "paid", "amount": ["2.00"]})
    value = json.dumps({"op": "u", "after": {"status": "x"}, "source": {"ts_ms": 1_690_000_000_000}})
    without_key = ('{"no": 1}', value)
    orders = tm.debezium(
        "orders", elements([[more], [fewer], [other], [without_key]]), schema=SCHEMA, key=["id"], watermarks=TIMED, malformed_to=MALFORMED
    )
    found = Histories(spark, tmp_path).run({"orders": orders, "malformed": orders.side_output(MALFORMED)})
    contents = [shown(rows) for rows in contents_of(found["orders"], ["id"])]
    assert contents[0] == shown([row(1)])
    assert {tuple(rows[0].items()) for rows in contents[1:]} == {tuple(shown([row(1, None, "2.00")])[0].items())}
    reasons = [each["reason"] for epoch in found["malformed"] for each in epoch]
    assert len(reasons) == 2
    assert "record cannot be parsed" in reasons[0]
    assert "column of the key is null" in reasons[1]


def test_an_update_without_its_row_before_is_refused_where_no_rows_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    for before in (None, {"id": 1, "status": None, "amount": None}):
        records = elements([[change("r", None, row(1)), change("u", before, row(1, "paid"))]])
        orders = tm.debezium("orders", records, schema=SCHEMA, key=["id"], watermarks=TIMED, keep_rows=False)
        with pytest.raises(UserCodeError, match="REPLICA IDENTITY FULL, or keep_rows=True"):
            Histories(spark, tmp_path / str(before is None)).run({"orders": orders})


def test_records_in_files(spark: SparkSession, tmp_path: Path) -> None:
    """Of lines of values only, and of records with their keys; the event time is a column of the table."""
    schema = "id BIGINT, at TIMESTAMP"
    landing = tmp_path / "values"
    landing.mkdir()
    rows = [{"op": "c", "after": {"id": key, "at": f"2023-01-26T08:0{key}:00Z"}} for key in (1, 2)]
    gone = {"op": "d", "before": {"id": 1, "at": "2023-01-26T08:01:00Z"}}
    (landing / "0.txt").write_text("\n".join(map(json.dumps, [*rows, gone])))
    keyed = tmp_path / "records"
    keyed.mkdir()
    lines = [*({"key": json.dumps({"id": 1}), "value": json.dumps(each)} for each in rows[:1]), {"key": json.dumps({"id": 1})}]
    (keyed / "0.json").write_text("\n".join(map(json.dumps, lines)))
    timed = tm.ascending(timestamp="at")
    streams = {
        "values": tm.debezium("values", tm.files(str(landing), format="text"), schema=schema, key=["id"], watermarks=timed),
        "records": tm.debezium("records", tm.files(str(keyed), format="json", schema=RECORDS), schema=schema, key=["id"], watermarks=timed),
    }
    found = Histories(spark, tmp_path).run(streams)
    (values,) = contents_of(found["values"], ["id"])
    assert [each["id"] for each in values] == [2]
    assert contents_of(found["records"], ["id"]) == [[]]
