"""Whether a table still holds what was published to it, by its log alone; no table and no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from tidemark.savepoints.delta.missing_records import Retained, epochs_to_republish, retained_of
from tidemark.savepoints.delta.table_changes import ShownEpochs, check_content, shown_epochs
from tidemark.savepoints.delta.table_entries import Entry, entry_of
from tidemark.state.delta.delta_tags import EPOCH, JOB, LINEAGE, MAINTENANCE, REWIND
from tidemark.state.encoding.codec import from_jsonable
from tidemark.state.log.progress import EpochProgress, OutputRepair
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition, StagedFile

OURS = "tidemark-a-000000000003-0/part-0.parquet"
ADDED = ("part-9.parquet",)
KNOWN = SinkPosition("id", 10, "sum", "a", 3, since=8)
"""Epoch 3 was shown by version 8; versions 9 and 10 changed nothing of it."""


def own(version: int, epoch: int, *, job: str = "taxi", **tags: str) -> Entry:
    return Entry(version, "WRITE", {"mode": "Append"}, {JOB: job, LINEAGE: "a", EPOCH: str(epoch), **tags}, added=ADDED)


def by_others(
    version: int, operation: str, /, *, removed: Sequence[str] = (OURS,), added: Sequence[str] = (), **parameters: object
) -> Entry:
    return Entry(version, operation, parameters, removed=tuple(removed), added=tuple(added))


REWOUND = Entry(12, "RESTORE", {"version": "5"}, {JOB: "taxi", LINEAGE: "b", EPOCH: "1", REWIND: "rewind-x"}, (OURS,))


def restore(version: int, to: int) -> Entry:
    return by_others(version, "RESTORE", version=str(to))


LOST: Mapping[str, tuple[Entry, ...]] = {
    "restored to before the newest rows": (restore(11, 7),),
    "an epoch that came since is undone": (own(11, 4), restore(12, 10)),
    "restored, and the job published on top": (restore(11, 7), own(12, 4)),
    "restored twice, both times too far": (restore(11, 7), restore(12, 5)),
    "restored to a time": (by_others(11, "RESTORE", datetime="1795508133593"),),
    "restored to a version that was itself restored": (restore(11, 7), restore(12, 11)),
    "overwritten": (by_others(11, "WRITE", mode="Overwrite", added=ADDED),),
    "overwritten, as Spark writes it": (by_others(11, "WRITE", mode="Overwrite", partitionBy="[]", added=ADDED),),
    "replaced": (by_others(11, "CREATE OR REPLACE TABLE AS SELECT", removed=("part-0.parquet",), added=ADDED),),
    "truncated": (by_others(11, "TRUNCATE"),),
    "all deleted": (by_others(11, "DELETE"),),
    "all deleted, as Spark writes it": (by_others(11, "DELETE", predicate='["true"]'),),
    "files removed by something unknown": (by_others(11, ""),),
    "missing files taken out": (by_others(11, "FSCK"),),
}

KEPT: Mapping[str, tuple[Entry, ...]] = {
    "nothing": (),
    "more epochs": (own(11, 4), own(12, 5)),
    "restored to after the newest rows": (by_others(11, "WRITE", removed=(), added=ADDED), restore(12, 9)),
    "restored to before another's mistake": (
        by_others(11, "WRITE", removed=(), added=ADDED),
        own(12, 4),
        by_others(13, "WRITE"),
        restore(14, 12),
    ),
    "a mistake undone": (restore(11, 7), restore(12, 10)),
    "rewound by the job itself": (restore(11, 7), REWOUND),
    "files written anew": (by_others(11, "OPTIMIZE", removed=(), added=()), Entry(12, "WRITE", tags={MAINTENANCE: "compact"})),
    "rows of another job replace some": (Entry(11, "WRITE", tags={JOB: "rides", LINEAGE: "b", EPOCH: "1"}, removed=(OURS,)),),
    "some deleted": (by_others(11, "DELETE", predicate="a = 0"),),
    "some updated": (by_others(11, "UPDATE", predicate="a = 0", added=ADDED),),
    "some merged": (by_others(11, "MERGE", added=ADDED),),
    "a part overwritten": (by_others(11, "WRITE", mode="Overwrite", predicate="day = 3", added=ADDED),),
    "columns and settings": (by_others(11, "ADD COLUMN", removed=()), by_others(12, "SET TBLPROPERTIES", removed=())),
    "another's files replaced": (by_others(11, "", removed=("part-1.parquet",)),),
}


@pytest.mark.parametrize("case", LOST)
def test_lost(case: str) -> None:
    found = check_content(KNOWN, LOST[case], job="taxi")
    assert found.loss is not None
    assert found.loss.startswith("version 1")


@pytest.mark.parametrize("case", KEPT)
def test_kept(case: str) -> None:
    assert check_content(KNOWN, KEPT[case], job="taxi").loss is None


def test_what_was_lost_before_the_mistake_was_undone_stays_lost() -> None:
    # Version 12 is whole and shows epoch 4; after it everything is deleted, and version 10 does not have epoch 4.
    entries = (restore(11, 7), restore(12, 10), own(13, 4), by_others(14, "TRUNCATE"), restore(15, 10))
    assert check_content(KNOWN, entries, job="taxi").loss == "version 15 is a RESTORE to version 10"
    assert check_content(KNOWN, (*entries, restore(16, 13)), job="taxi").loss is None
    assert check_content(KNOWN, (*entries, restore(16, 13)), job="taxi").since == 13


def test_what_a_restore_leaves_behind_need_not_be_there() -> None:
    entries = (own(11, 4), own(12, 5), restore(13, 11))
    assert check_content(KNOWN, entries, job="taxi", needed=lambda _, epoch: epoch <= 4).loss is None
    assert check_content(KNOWN, entries, job="taxi", needed=lambda _, epoch: epoch <= 5).loss is not None


def test_a_deletion_that_leaves_nothing_of_the_jobs_files_is_one_of_all() -> None:
    deleted = by_others(11, "DELETE", predicate="a >= 0")
    assert check_content(KNOWN, (deleted,), job="taxi", has_staged=lambda: False).loss == "version 11 is a DELETE"
    assert (
        check_content(KNOWN, (by_others(11, "DELETE", predicate="a >= 0", added=ADDED),), job="taxi", has_staged=lambda: False).loss is None
    )
    partly = check_content(KNOWN, (deleted,), job="taxi", has_staged=lambda: True)
    assert (partly.loss, partly.others) == (None, ("version 11 is a DELETE",))


def test_of_a_table_without_rows_nothing_is_lost() -> None:
    empty = SinkPosition("id", 2, "sum")
    for case, entries in LOST.items():
        if not any(entry.of_job("taxi") for entry in entries):
            assert check_content(empty, entries, job="taxi").loss is None, case


def test_an_entry_is_read_as_spark_and_delta_rs_write_it() -> None:
    info = {"operation": "DELETE", "operationParameters": {"predicate": '["(a = 0)"]'}, "tidemark.job": "x"}
    actions = [
        {"commitInfo": info},
        {"add": {"path": "n", "dataChange": True}},
        {"add": {"path": "m", "dataChange": False}},
        {"remove": {"path": "tidemark-a", "dataChange": True}},
        {"remove": {"path": "tidemark-b", "dataChange": False}},
        {"txn": {"appId": "a", "version": 1}},
    ]
    found = entry_of(3, "\n".join(map(json.dumps, actions)).encode())
    assert (found.removed, found.added, found.removes_staged, found.replaces_all, found.replaces_some) == (
        ("tidemark-a",),
        ("n",),
        1,
        False,
        True,
    )
    assert (found.tags, found.foreign) == ({"tidemark.job": "x"}, False)
    timed = Entry(1, "RESTORE", {"version": None, "timestamp": "2026-01-01"})
    assert (timed.restored_version, str(timed)) == (None, "version 1 is a RESTORE to an earlier time")


def shown(*entries: Entry, first: int = 0, seen: int = -1) -> ShownEpochs:
    by_version = {entry.version: entry for entry in entries if entry.version >= first}
    return shown_epochs(by_version.get, max(by_version), job="taxi", seen=seen)


def test_which_epochs_a_table_shows() -> None:
    four = [own(version, version) for version in range(4)]
    assert shown(*four).epochs == {("a", number) for number in range(4)}
    assert shown(*four, restore(4, 1), own(5, 4)) == ShownEpochs((("a", 0), ("a", 1), ("a", 4)), complete=True)
    assert shown(*four, by_others(4, "TRUNCATE"), own(5, 4)) == ShownEpochs((("a", 4),), complete=True)
    assert "version 4 is a RESTORE to version 1, whose entry" in shown(*four, restore(4, 1), own(5, 4), first=2).unclear
    # Up to version 5 the job saw the table whole.
    assert shown(*four, restore(4, 1), own(5, 4), first=2, seen=5) == ShownEpochs((("a", 4),), complete=False)
    assert "the entry of version 1 was" in shown(*four, first=2, seen=0).unclear
    assert shown(*four, first=2, seen=2) == shown(*four, first=2) == ShownEpochs((("a", 2), ("a", 3)), complete=False)
    assert shown(*four, own(4, 1, **{REWIND: "x"})).epochs == {("a", number) for number in range(4)}
    rewound = Entry(4, "RESTORE", {"version": "1"}, {JOB: "taxi", LINEAGE: "b", EPOCH: "1", REWIND: "x"})
    assert shown(*four, rewound).epochs == {("a", 0), ("a", 1), ("b", 1)}
    assert "removed 1 of the jobs' files" in shown(*four, by_others(4, "")).unclear


def test_a_table_that_does_not_tell_what_is_missing_is_not_published_to_again() -> None:
    none = Retained((), complete=True)
    assert "no epoch" in epochs_to_republish(none, ShownEpochs((), complete=True), in_order=False)[1]
    assert "no longer tells" in epochs_to_republish(none, ShownEpochs((), complete=False), in_order=False)[1]
    assert "for a reason" in epochs_to_republish(none, ShownEpochs((), complete=True, unclear="for a reason"), in_order=False)[1]


PROGRESS = EpochProgress("taxi", "a", 0, 0, 0, 0, 0)


def retained(*numbers: int) -> Retained:
    return Retained(tuple(EpochRecord("taxi", "a", None, 1, number, 0, "", PROGRESS) for number in numbers), complete=True)


def again(numbers: Iterable[int], order: str, *, complete: bool = True, in_order: bool = True) -> str:
    """Return which of some epochs are published again to a table, by the order in which it shows epochs."""
    found, refusal = epochs_to_republish(
        retained(*numbers), ShownEpochs(tuple(("a", int(digit)) for digit in order), complete), in_order=in_order
    )
    return refusal or "".join(str(record.epoch) for record in found)


def test_where_rows_replace_others_all_is_published_again_from_the_first_that_is_missing_or_too_early() -> None:
    orders = {"01": "2345", "0145": "2345", "01452": "345", "014523": "45", "0145234": "5", "01452345": "", "012345": ""}
    for order, wanted in orders.items():
        # Of an epoch that is there twice the newer counts.
        newest = "".join(digit for number, digit in enumerate(order) if digit not in order[number + 1 :])
        assert again(range(6), newest) == wanted, order
    assert again(range(6), "0145", in_order=False) == "23"
    assert again(range(6), "014523", in_order=False) == ""


def test_epochs_that_somebody_accepted_as_missing_stay_so() -> None:
    def left(order: str, accepted: str, *, whole: bool = True, in_order: bool = True) -> str:
        gap = frozenset(("a", int(digit)) for digit in accepted)
        shown = ShownEpochs(tuple(("a", int(digit)) for digit in order), complete=True)
        found, refusal = epochs_to_republish(Retained(retained(*range(6)).records, whole, gap), shown, in_order=in_order)
        return refusal or "".join(str(record.epoch) for record in found)

    for in_order in (True, False):
        assert left("014", "23", in_order=in_order) == "5"
        assert left("01", "23", in_order=in_order) == "45"
        # The table was deleted, and so is known from then on.
        assert left("", "0123", whole=False, in_order=in_order) == "45"
        assert left("0145", "23", in_order=in_order) == ""
    assert "does not retain" in left("", "", whole=False)
    gap = OutputRepair.of_gap(7, "why", [("a", 2), ("a", 3)])
    assert (gap.epochs, gap.lineages) == ((2, 3), ("a",))
    assert gap.accepted == {("a", 2), ("a", 3)}
    gap = OutputRepair.of_gap(7, "why", [("a", 2), ("b", 2)])
    assert gap.accepted == {("a", 2), ("b", 2)}
    # An earlier build did not say which.
    assert from_jsonable(OutputRepair, {"how": "accepted", "epoch": 7, "what": "why", "epochs": []}, path="p").accepted == frozenset()
    noted = EpochRecord("taxi", "a", None, 1, 4, 0, "", PROGRESS, outputs={"o": OutputRecord("delta", "x", repairs=(gap,))})
    lost = [replace(noted, epoch=number, outputs={"o": OutputRecord("delta", "x", files=(StagedFile("f", 1, 1),))}) for number in (3, 2)]
    assert retained_of([noted, *lost], "o", sink="delta", location="x").accepted == {("a", 2)}


def test_what_comes_before_entries_that_expired_is_there() -> None:
    for in_order in (True, False):
        assert again(range(6), "2345", complete=False, in_order=in_order) == ""
        assert again(range(6), "23", complete=False, in_order=in_order) == "45"
        # The first that the log tells of is one that the job's log no longer retains.
        assert again((2, 3, 4, 5), "15", complete=False, in_order=in_order) == ("2345" if in_order else "234")
    assert again(range(6), "4523", complete=False) == "45"
    assert again(range(6), "4523", complete=False, in_order=False) == ""
