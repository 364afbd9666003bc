from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.cli.show.tables import history_table
from tidemark.errors import CorruptStoreError, FormatError, InvalidNameError
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord
from tidemark.state.status import history
from tidemark.state.status.history import HistoryWriter, read_history
from tidemark.state.store.layout import history_path
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "history-1.jsonl"
MakeProgress = Callable[..., EpochProgress]
MakeRecord = Callable[..., EpochRecord]


def test_reads_the_newest_epochs_newest_last(root: JobStore, make_progress: MakeProgress) -> None:
    writer = HistoryWriter(root, "taxi")
    for epoch in range(250):
        writer.append(make_progress(epoch))
    assert read_history(root, "taxi") == [make_progress(epoch) for epoch in range(150, 250)]
    assert [item.epoch for item in read_history(root, "taxi", 3)] == [247, 248, 249]
    assert len(read_history(root, "taxi", 1000)) == 250
    assert read_history(root, "taxi", 0) == []
    assert len(root.list("taxi/history")) == 3


def test_an_absent_history_is_empty(root: JobStore) -> None:
    assert read_history(root, "taxi") == []


def test_a_new_writer_goes_on_where_the_last_stopped(root: JobStore, make_progress: MakeProgress) -> None:
    for epoch in range(205):
        HistoryWriter(root, "taxi").append(make_progress(epoch))
    assert [item.epoch for item in read_history(root, "taxi", 1000)] == list(range(205))
    assert [file.path for file in root.at("taxi").list("history")] == [history_path(block) for block in range(3)]


@pytest.mark.parametrize("written", [0, 1, 99, 100, 101])
def test_backfills_what_a_crash_left_out(written: int, root: JobStore, make_progress: MakeProgress, make_record: MakeRecord) -> None:
    writer = HistoryWriter(root, "taxi")
    for epoch in range(written):
        writer.append(make_progress(epoch))
    records = [make_record(epoch) for epoch in reversed(range(written + 3))]
    again = HistoryWriter(root, "taxi")
    assert again.backfill(iter(records)) == 3
    assert HistoryWriter(root, "taxi").backfill(iter(records)) == 0
    assert [item.epoch for item in read_history(root, "taxi", 1000)] == list(range(written + 3))


def test_backfill_reads_no_further_than_it_must(root: JobStore, make_progress: MakeProgress, make_record: MakeRecord) -> None:
    HistoryWriter(root, "taxi").append(make_progress(4))

    def records() -> object:
        yield make_record(5)
        yield make_record(4)
        pytest.fail("read an epoch that the history has")

    assert HistoryWriter(root, "taxi").backfill(records()) == 1  # type: ignore[arg-type]


def test_a_lineage_that_goes_back_follows_the_one_before(root: JobStore, make_progress: MakeProgress) -> None:
    writer = HistoryWriter(root, "taxi")
    for epoch in range(100):
        writer.append(make_progress(epoch))
    for epoch in range(50, 160):
        writer.append(make_progress(epoch, lineage="b2"))
    found = read_history(root, "taxi", 1000)
    assert [(item.lineage, item.epoch) for item in found] == [("a1", n) for n in range(100)] + [("b2", n) for n in range(50, 160)]


def test_only_the_newest_blocks_are_kept(root: JobStore, make_progress: MakeProgress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "BLOCKS_KEPT", 2)
    monkeypatch.setattr(history, "BLOCK_LINES", 5)
    writer = HistoryWriter(root, "taxi")
    for epoch in range(23):
        writer.append(make_progress(epoch))
    assert [item.epoch for item in read_history(root, "taxi")] == list(range(15, 23))


@pytest.mark.parametrize("damage", [b"{", b"[]\n", b"{}\n", b'{"format":1}\n', b"\xff\n", b"null\n"])
def test_a_damaged_block_is_refused_and_named(damage: bytes, root: JobStore, make_progress: MakeProgress) -> None:
    HistoryWriter(root, "taxi").append(make_progress(0))
    path = f"taxi/{history_path(0)}"
    root.put(path, root.get(path) + damage)
    with pytest.raises(CorruptStoreError, match=r"history/000000000000.jsonl.*Fix: delete"):
        read_history(root, "taxi")


def test_a_newer_format_is_refused(root: JobStore) -> None:
    root.put(f"taxi/{history_path(0)}", b'{"format":2,"x":1}\n')
    with pytest.raises(FormatError):
        read_history(root, "taxi")


def test_names_cannot_lead_elsewhere(root: JobStore) -> None:
    with pytest.raises(InvalidNameError):
        read_history(root, "../taxi")
    with pytest.raises(InvalidNameError):
        HistoryWriter(root, "a/b")


def test_golden_lines_are_written_and_read_as_ever(root: JobStore, make_progress: MakeProgress) -> None:
    lines = [make_progress(0), replace(make_progress(1), sources={}, operators={}, outputs={}, end_of_input=True)]
    writer = HistoryWriter(root, "taxi")
    for line in lines:
        writer.append(line)
    assert root.get(f"taxi/{history_path(0)}") == GOLDEN.read_bytes()
    assert all(json.loads(line)["format"] == 1 for line in GOLDEN.read_text().splitlines())
    root.put(f"other/{history_path(0)}", GOLDEN.read_bytes())
    assert read_history(root, "other") == lines


def test_a_damaged_full_block_is_not_appended_again(
    root: JobStore, make_progress: MakeProgress, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its newest line is damaged, and all lines that are newer: only what no block has is appended, once."""
    monkeypatch.setattr(history, "BLOCK_LINES", 5)
    writer = HistoryWriter(root, "taxi")
    for epoch in range(13):
        writer.append(make_progress(epoch))
    full, newest = (f"taxi/{history_path(block)}" for block in (1, 2))
    whole = root.get(full).splitlines()
    root.put(full, b"\n".join([*whole[:-1], b"{"]) + b"\n")
    root.put(newest, b"{\n{\n")
    records = [make_record(epoch) for epoch in reversed(range(2, 14))]
    assert HistoryWriter(root, "taxi").backfill(iter(records)) == 5
    assert HistoryWriter(root, "taxi").backfill(iter(records)) == 0
    root.put(full, b"\n".join(whole[:-1]) + b"\n")
    assert [item.epoch for item in read_history(root, "taxi", 1000)] == list(range(14))


def test_what_a_start_has_finished_is_marked(root: JobStore, make_progress: MakeProgress, make_record: MakeRecord) -> None:
    writer = HistoryWriter(root, "taxi")
    writer.append(make_progress(0))
    records = [make_record(epoch) for epoch in (2, 1, 0)]
    lineage = records[0].progress.lineage
    assert writer.backfill(records, {(lineage, 2), (lineage, 0)}) == 2
    assert [epoch.finished_at_start for epoch in read_history(root, "taxi")] == [False, False, True]
    line = history_table(read_history(root, "taxi")).splitlines()[-1]
    assert (
        line
        == "epoch 2 was committed by a driver that ended before its publication was noted; the next start published what was left of it"
    )
