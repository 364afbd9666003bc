"""Messages of pgoutput, transactions of them, positions: without a server."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.postgres_changes import wire
from tidemark.graph.model.postgres_changes_spec import CapturedTable, PostgresChangesSpec
from tidemark.graph.model.schema import Schema
from tidemark.spark.sources.postgres_changes import epoch_changes, message_spool
from tidemark.spark.sources.postgres_changes.epoch_changes import LargeValues, rows_in_order, seen_first, unread_values
from tidemark.spark.sources.postgres_changes.message_spool import MessageSpool
from tidemark.spark.sources.postgres_changes.messages import (
    UNCHANGED,
    Begin,
    Column,
    Commit,
    DecodeError,
    Delete,
    Insert,
    Other,
    Relation,
    Truncate,
    Update,
    decode,
)
from tidemark.spark.sources.postgres_changes.positions import CapturedFile, ChangesPosition, Snapshot, TableProgress, lsn_text, parse_lsn
from tidemark.spark.sources.postgres_changes.server import TablePart
from tidemark.spark.sources.postgres_changes.transactions import Assembler, Change, Transaction

AT = 1_764_190_000_123_456
OID = 16_400
COLUMNS = [("id", 20, -1, True), ("note", 25, -1, False)]
ORDERS = wire.relation(OID, "shop", "orders", COLUMNS)
TABLE = CapturedTable("shop", "orders", Schema.of([("id", "BIGINT"), ("note", "STRING")]), ("id",))
SPEC = PostgresChangesSpec("SHOP_DSN", (TABLE,))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (wire.begin(100, AT, 7), Begin(100, AT, 7)),
        (wire.commit(100, 120, AT), Commit(100, 120, AT)),
        (ORDERS, Relation(OID, "shop", "orders", "d", (Column("id", 20, -1, is_key=True), Column("note", 25, -1, is_key=False)))),
        (wire.relation(1, "", "é", []), Relation(1, "pg_catalog", "é", "d", ())),
        (wire.insert(OID, ["1", None]), Insert(OID, ("1", None))),
        (wire.insert(OID, ["1", ""]), Insert(OID, ("1", ""))),
        (wire.update(OID, ["1", ...]), Update(OID, None, ("1", UNCHANGED))),
        (wire.update(OID, ["2", "b"], ["1", None]), Update(OID, ("1", None), ("2", "b"))),
        (wire.update(OID, ["2", "b"], ["1", "ä"], b"O"), Update(OID, ("1", "ä"), ("2", "b"), whole=True)),
        (wire.delete(OID, ["1", None]), Delete(OID, ("1", None))),
        (wire.delete(OID, ["1", "a"], b"O"), Delete(OID, ("1", "a"), whole=True)),
        (wire.truncate(1, 2), Truncate((1, 2))),
        (b"Y" + b"\0" * 4 + b"public\0kind\0", Other("Y")),
        (b"O" + b"\0" * 8 + b"elsewhere\0", Other("O")),
    ],
)
def test_each_message(data: bytes, message: object) -> None:
    assert decode(data) == message
    if not isinstance(message, Other):
        for cut in range(len(data)):
            with pytest.raises(DecodeError):
                decode(data[:cut])
        with pytest.raises(DecodeError, match="longer"):
            decode(data + b"\0")


def test_an_unknown_message() -> None:
    with pytest.raises(DecodeError, match="unknown kind 'S'"):
        decode(b"S" + b"\0" * 5)


def transactions(*data: bytes, keys: tuple[str, ...] = ("id",)) -> list[Transaction]:
    return list(Assembler({"shop.orders"}, {"shop.orders": keys}, {OID}).transactions(spooled(*data)))


def spooled(*data: bytes) -> MessageSpool:
    spool = MessageSpool()
    for message in data:
        spool.append(message)
    return spool


@pytest.mark.parametrize("limit", ["HELD_BYTES", "HELD_MESSAGES", "neither"])
def test_transactions(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    if limit != "neither":
        monkeypatch.setattr(message_spool, limit, 5)
    found = transactions(
        wire.begin(10, AT, 1),
        ORDERS,
        wire.insert(OID, ["1", "a"]),
        wire.relation(5, "shop", "others", [("id", 20, -1, True)]),
        wire.insert(5, ["9"]),
        wire.commit(10, 20, AT),
        wire.begin(30, AT + 1, 2),
        wire.update(OID, ["1", ...]),
        wire.update(OID, ["2", "b"], ["1", None]),
        wire.delete(OID, ["2", None]),
        wire.commit(30, 40, AT + 1),
        wire.begin(50, AT, 3),
        wire.truncate(OID, 5),
        wire.commit(50, 60, AT),
    )
    assert [(each.xid, each.end_lsn, each.committed_at) for each in found] == [(1, 20, AT), (2, 40, AT + 1), (3, 60, AT)]
    assert [[(change.operation, dict(change.row)) for change in each.changes] for each in found] == [
        [("insert", {"id": "1", "note": "a"})],
        [
            ("update", {"id": "1", "note": UNCHANGED}),
            ("delete", {"id": "1"}),
            ("update", {"id": "2", "note": "b"}),
            ("delete", {"id": "2"}),
        ],
        [],
    ]
    assert [[relation.label for relation in each.truncated] for each in found] == [[], [], ["shop.orders"]]


def test_whole_rows_have_the_large_values_that_did_not_change() -> None:
    (found,) = transactions(
        wire.begin(10, AT, 1),
        wire.relation(OID, "shop", "orders", COLUMNS, "f"),
        wire.update(OID, ["1", ...], ["1", "large"], b"O"),
        wire.update(OID, ["3", ...], ["1", "large"], b"O"),
        wire.commit(10, 20, AT),
    )
    assert [(change.operation, dict(change.row)) for change in found.changes] == [
        ("update", {"id": "1", "note": "large"}),
        ("delete", {"id": "1", "note": "large"}),
        ("update", {"id": "3", "note": "large"}),
    ]


def test_an_old_row_that_has_only_the_key_although_it_is_called_whole() -> None:
    # So it is in a partition with another replica identity than its partitioned table.
    (found,) = transactions(
        wire.begin(10, AT, 1),
        wire.relation(OID, "shop", "orders", COLUMNS, "f"),
        wire.update(OID, ["3", ...], ["1", None], b"O"),
        wire.commit(10, 20, AT),
    )
    assert [(change.operation, dict(change.row)) for change in found.changes] == [
        ("delete", {"id": "1", "note": None}),
        ("update", {"id": "3", "note": UNCHANGED}),
    ]


@pytest.mark.parametrize("change", [wire.delete(OID, [None, "a"]), wire.update(OID, ["1", "b"], [None, "a"])])
def test_a_change_without_the_primary_key(change: bytes) -> None:
    with pytest.raises(DecodeError, match="does not have column 'id' of the primary key"):
        transactions(wire.begin(10, AT, 1), ORDERS, change, wire.commit(10, 20, AT))


def test_a_renamed_table_is_among_the_changes() -> None:
    (found,) = transactions(
        wire.begin(10, AT, 1), wire.relation(OID, "shop", "renamed", COLUMNS), wire.insert(OID, ["1", "a"]), wire.commit(10, 20, AT)
    )
    assert [relation.label for relation in found.relations] == ["shop.renamed"]


@pytest.mark.parametrize("data", [[wire.commit(1, 2, AT)], [wire.begin(1, AT, 1), wire.insert(OID, ["1", "a"])]])
def test_what_is_no_transaction(data: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        transactions(*data)


def transaction(xid: int, *rows: tuple[str, str]) -> Transaction:
    (found,) = transactions(wire.begin(xid, AT, xid), ORDERS, *(wire.update(OID, list(row)) for row in rows), wire.commit(xid, xid + 1, AT))
    return found


def test_a_part_of_a_table_is_between_the_changes_that_it_has_and_the_others() -> None:
    # By their commits 10, 11, 12, 13; the part was read while 11 was running and before 13 began.
    changes = [transaction(10, ("1", "old")), transaction(11, ("1", "new")), transaction(12, ("2", "b")), transaction(13, ("3", "c"))]
    part = TablePart(("id", "note"), [("1", "old"), ("2", "b")], Snapshot.parse("11:13:11"), 0, AT)
    rows = list(rows_in_order(SPEC, changes, lambda _: LargeValues({}), (TABLE, part)))
    assert [(row.operation, row.values, row.tx) for _, row in rows] == [
        ("update", ("1", "old"), 10),
        ("update", ("2", "b"), 12),
        ("read", ("1", "old"), None),
        ("read", ("2", "b"), None),
        ("update", ("1", "new"), 11),
        ("update", ("3", "c"), 13),
    ]
    assert seen_first(changes, part.snapshot) == (changes[0],)
    assert seen_first(changes, Snapshot.parse("14:14:")) == tuple(changes)


def test_large_values_are_those_of_now() -> None:
    (found,) = transactions(
        wire.begin(10, AT, 1), ORDERS, wire.update(OID, ["1", ...]), wire.update(OID, ["2", ...]), wire.commit(10, 20, AT)
    )
    assert [dict(row)["id"] for row in unread_values(SPEC, found.changes)["shop.orders"]] == ["1", "2"]
    rows = rows_in_order(SPEC, [found], lambda _: LargeValues({("shop.orders", ("1",)): ("1", "now")}))
    assert [row.values for _, row in rows] == [("1", "now"), ("2", None)]


def test_fewer_large_values_are_read_at_once_the_larger_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_changes, "TOGETHER", 100)
    monkeypatch.setattr(epoch_changes, "TOGETHER_BYTES", 10_000)
    rows = [(str(number), "n") for number in range(1_000)]
    asked: list[int] = []

    def large_values(changes: Sequence[Change]) -> LargeValues:
        asked.append(len(changes))
        ids = [str(change.row["id"]) for change in changes]
        # The last ones are large.
        return LargeValues({("shop.orders", (key,)): (key, "x" * (10 if int(key) < 500 else 1_000)) for key in ids})

    assert len(list(rows_in_order(SPEC, [transaction(10, *rows)], large_values))) == len(rows)
    assert asked[:4] == [16, 32, 64, 100]
    assert max(asked) == 100
    # After the first that were far larger than those before them.
    assert max(asked[8:]) <= 10
    assert sum(asked) == len(rows)


@pytest.mark.parametrize(
    ("text", "seen", "unseen"),
    [
        ("10:20:10,14", [3, 11, 19], [10, 14, 20, 25]),
        ("4294967290:4294967306:4294967300", [0xFFFFFFF0, 3, 9], [4, 10, 11]),  # the 32 bits have begun again
        ("4294967290:4294967294:", [0xFFFFFFFD], [0xFFFFFFFE, 5]),
    ],
)
def test_snapshots(text: str, seen: list[int], unseen: list[int]) -> None:
    snapshot = Snapshot.parse(text)
    assert [xid for xid in (*seen, *unseen) if snapshot.sees(xid)] == seen


def test_positions_as_they_are_stored() -> None:
    position = ChangesPosition(
        "shop",
        "slot",
        "publication",
        parse_lsn("1/A0"),
        {"shop.orders": TableProgress(1, ("7", "é"), published=9), "shop.done": TableProgress(2, done=True), "shop.new": TableProgress(3)},
        (CapturedFile("sources/shop/rows-1.parquet", 3, 100),),
        "7000/1",
    )
    assert ChangesPosition.parse(json.loads(json.dumps(position.as_stored()))) == position
    assert position.unfinished == "shop.orders"
    assert position.as_stored()["lsn"] == lsn_text(position.lsn) == "1/A0"
    assert [ChangesPosition.parse(each) for each in (None, {}, {"logOffset": 1}, {**position.as_stored(), "lsn": "x"})] == [None] * 4
