"""Values that records do not have, or have in a form that says too little: placeholders, times, nulls, and names that are taken twice."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, Row, contents_of
from tests.debezium.records import START, Record, elements, key_of
from tidemark.errors import UserCodeError
from tidemark.graph.connectors.debezium.texts import DEFAULT_PLACEHOLDER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MALFORMED, UNSENT_TO, INCOMPLETE = tm.OutputTag("malformed"), tm.OutputTag("unsent"), tm.OutputTag("incomplete")
TIMED = tm.bounded_out_of_orderness("1 minute", timestamp="source.ts_ms")
LONG = "id BIGINT, status STRING, note STRING, data BINARY, tags ARRAY<STRING>, sizes ARRAY<INT>, more MAP<STRING, STRING>"
UNSENT = {
    "note": DEFAULT_PLACEHOLDER,
    "data": base64.b64encode(DEFAULT_PLACEHOLDER.encode()).decode(),
    "tags": [DEFAULT_PLACEHOLDER],
    "sizes": list(DEFAULT_PLACEHOLDER.encode()),
    "more": {DEFAULT_PLACEHOLDER: DEFAULT_PLACEHOLDER},
}


def record(op: str, before: Row | None, after: Row | None, *, ms: int = START) -> Record:
    of: Any = after or before
    return key_of(of["id"]), json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": ms}, "ts_ms": ms + 7})


def long(key: int, status: str, mark: str) -> Row:
    """Return a row whose long values have a mark."""
    data = base64.b64encode(mark.encode()).decode()
    return {"id": key, "status": status, "note": mark, "data": data, "tags": [mark, mark], "sizes": [len(mark)], "more": {mark: mark}}


def unsent(key: int, status: str, **sent: Any) -> Row:
    """Return a row whose long values were not sent, but for some."""
    return {"id": key, "status": status, **UNSENT, **sent}


LONGS = [
    [record("r", None, long(1, "new", "a")), record("r", None, long(2, "new", "b")), record("u", None, unsent(2, "paid"))],
    [
        record("u", None, unsent(1, "paid")),
        record("u", None, unsent(1, "sent", note="aa")),
        record("u", None, unsent(1, "back")),
        record("u", None, unsent(3, "lost")),  # no row of it was seen
        record("u", None, unsent(4, "lost", note="d")),
        record("u", None, unsent(4, "lost", tags=["d"])),
        record("c", None, long(4, "new", "dd")),
        record("u", None, unsent(4, "paid", tags=["e"])),
    ],
    [
        record("d", {"id": 1}, None),
        record("u", None, unsent(1, "lost")),  # a row that was deleted has no values
        record("u", None, unsent(2, "sent", more={"c": "c"})),
        record("d", {"id": 4}, None),
        record("c", None, long(4, "again", "f")),
        record("u", None, unsent(4, "paid")),
    ],
]


def marked(row: Row) -> tuple[object, ...]:
    """Return a row's key, its status, and the marks of its long values."""
    more = row["more"]
    (mark,) = dict(more) if isinstance(more, list | dict) else ("?",)
    return row["id"], row["status"], row["note"], bytes(row["data"]).decode(), row["tags"][-1], row["sizes"][0], mark


def test_values_that_the_database_did_not_send(spark: SparkSession, tmp_path: Path) -> None:
    longs = tm.debezium("longs", elements(LONGS), schema=LONG, key=["id"], watermarks=TIMED, incomplete_to=INCOMPLETE)
    full = [[record("c", None, long(1, "new", "a")), record("u", long(1, "new", "a"), unsent(1, "paid"))]]
    sent = tm.debezium(
        "sent",
        elements(full),
        schema=LONG,
        key=["id"],
        watermarks=TIMED,
        keep_rows=False,
        malformed_to=UNSENT_TO,
        placeholder=DEFAULT_PLACEHOLDER,
    )
    times = "id BIGINT, at TIMESTAMP, updated_at TIMESTAMP, source STRING, offset STRING"
    texts = {"at": "2023-01-26T08:01:00.5Z", "updated_at": "2023-07-22T04:26:40Z", "source": "web", "offset": "x"}
    stamped = [
        [record("c", None, {"id": key, **texts}) for key in (1, 2, 3)],
        [
            record("u", None, {"id": 1, **texts, "at": 1_690_000_000_000_000}),
            record("u", None, {"id": 1, **texts, "at": "1690000000"}),
            record("u", {"id": 2, "at": 19_000}, {"id": 2, **texts, "offset": "y"}),
            # Of a deleted row only the key is known.
            record("d", {"id": 3, "at": None, "updated_at": None}, None, ms=START + 1),
        ],
    ]
    ordered = tm.debezium(
        "stamped",
        elements(stamped),
        schema=times,
        key=["id"],
        watermarks=tm.ascending(timestamp="updated_at"),
        metadata={
            "sent_ms": "CAST(debezium_source.ts_ms AS BIGINT)",
            "position": "debezium_offset",
            "from_web": "debezium_after.source = 'web'",
        },
        malformed_to=MALFORMED,
    )
    streams = {
        "longs": longs,
        "incomplete": longs.side_output(INCOMPLETE),
        "sent": sent,
        "unsent": sent.side_output(UNSENT_TO),
        "stamped": ordered,
        "malformed": ordered.side_output(MALFORMED),
    }
    found = Histories(spark, tmp_path).run(streams)
    assert [sorted(map(marked, rows)) for rows in contents_of(found["longs"], ["id"])] == [
        [(1, "new", "a", "a", "a", 1, "a"), (2, "paid", "b", "b", "b", 1, "b")],
        [(1, "back", "aa", "a", "a", 1, "a"), (2, "paid", "b", "b", "b", 1, "b"), (4, "paid", "dd", "dd", "e", 2, "dd")],
        [(2, "sent", "b", "b", "b", 1, "c"), (4, "paid", "f", "f", "f", 1, "f")],
    ]
    assert sorted((row["id"], row["status"]) for epoch in found["incomplete"] for row in epoch) == [
        (1, "lost"),
        (3, "lost"),
        (4, "lost"),
        (4, "lost"),
    ]
    assert [[row["status"] for row in rows] for rows in contents_of(found["sent"], ["id"])][-1] == ["new"]
    ((refused,),) = [epoch for epoch in found["unsent"] if epoch]
    assert "column 'note' has no value: the database did not send it" in str(refused["reason"])
    check_times(found)


def check_times(found: dict[str, list[list[Row]]]) -> None:
    last = contents_of(found["stamped"], ["id"])[-1]
    assert [(row["id"], row["source"], row["offset"], row["sent_ms"], row["position"], row["from_web"]) for row in last] == [
        (1, "web", "x", START, 0, True),
        (2, "web", "x", START, 1, True),
    ]
    assert {row["at"].isoformat(timespec="milliseconds") for row in last} == {"2023-01-26T08:01:00.500+00:00"}
    reasons = [str(row["reason"]) for epoch in found["malformed"] for row in epoch]
    assert [reason.partition(" (")[0] for reason in reasons] == [
        "record cannot be parsed as a change of Debezium with the columns of the schema"
    ] * 3


def test_nulls_in_the_row_before(spark: SparkSession, tmp_path: Path) -> None:
    """They are values where the table certainly has all of them in its replica identity, and else they may be columns of no index."""
    schema = "id BIGINT, region STRING, status STRING"
    indexed = {"id": 1, "region": "north", "status": None}
    records = [
        [record("c", None, indexed), record("c", None, {"id": 2, "region": None, "status": None})],
        [record("u", indexed, {**indexed, "status": "paid"}), record("d", {"id": 2, "region": None, "status": None}, None)],
    ]
    options: dict[str, Any] = {"schema": schema, "key": ["id"], "watermarks": TIMED, "keep_rows": False}
    full = tm.debezium("full", elements(records), full_before=True, **options)
    found = Histories(spark, tmp_path / "full").run({"full": full})
    assert [[(row["id"], row["status"]) for row in rows] for rows in contents_of(found["full"], ["id"])] == [
        [(1, None), (2, None)],
        [(1, "paid")],
    ]
    with pytest.raises(UserCodeError, match="or keep_rows=True; for a table that has it and nulls in its rows, full_before=True"):
        Histories(spark, tmp_path / "unknown").run({"full": tm.debezium("full", elements(records), **options)})
