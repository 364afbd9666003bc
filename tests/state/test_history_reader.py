"""A reader that follows a job's history sees each epoch once, however far behind it is and whatever lineages came."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidemark.errors import CorruptStoreError, FormatError
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.history_blocks import BLOCK_LINES
from tidemark.state.status.history_reader import epoch_numbered, epochs_after
from tidemark.state.store.layout import history_path
from tidemark.state.store.store import JobStore

JOB = "taxi"
Mark = tuple[str, int]


def epoch(lineage: str, number: int) -> EpochProgress:
    return EpochProgress(JOB, lineage, number, 1_000 * number, 5, 10, 1)


@dataclass(frozen=True)
class EpochRecordLike:
    """What of a record the history needs."""

    progress: EpochProgress


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    return JobStore.open(str(tmp_path))


def write(root: JobStore, marks: list[Mark]) -> None:
    """Write a history in one go, as a writer that fills in what a crash left out."""
    newest_first = (EpochRecordLike(epoch(lineage, number)) for lineage, number in reversed(marks))
    HistoryWriter(root, JOB).backfill(newest_first)  # type: ignore[arg-type]


def read(root: JobStore, mark: Mark, limit: int) -> list[Mark]:
    return [(item.lineage, item.epoch) for item in epochs_after(root, JOB, *mark, limit=limit)]


def test_each_epoch_is_seen_once_over_blocks_and_lineages(root: JobStore) -> None:
    marks = [("a", n) for n in range(230)] + [("b", n) for n in range(150, 320)] + [("c", n) for n in range(3)]
    write(root, marks)
    for limit in (1, 7, BLOCK_LINES, 1000):
        seen, mark = [marks[0]], marks[0]
        while found := read(root, mark, limit):
            assert len(found) <= limit
            seen += found
            mark = found[-1]
        assert seen == marks
    shuffled = random.Random(3).sample(range(len(marks)), 40)
    assert all(read(root, marks[place], 5) == marks[place + 1 : place + 6] for place in shuffled)


def test_an_epoch_that_the_history_has_not_is_before_all_it_has(root: JobStore) -> None:
    assert read(root, ("a", 3), 5) == []
    write(root, [("b", n) for n in range(3)])
    assert read(root, ("a", 1), 5) == [("b", 0), ("b", 1), ("b", 2)]
    assert read(root, ("b", 9), 5) == [("b", 0), ("b", 1), ("b", 2)]
    root.delete([f"{JOB}/{history_path(0)}"])
    assert read(root, ("b", 1), 5) == []


def test_blocks_that_were_dropped_are_not_missed(root: JobStore) -> None:
    write(root, [("a", n) for n in range(250)])
    root.delete([f"{JOB}/{history_path(0)}"])
    assert read(root, ("a", 7), 1)[0] == ("a", 100)
    assert read(root, ("a", 120), 1000)[0] == ("a", 121)


def test_the_newest_epoch_of_a_number_before_another_one(root: JobStore) -> None:
    write(root, [("a", n) for n in range(50)] + [("b", n) for n in range(31, 40)] + [("c", n) for n in range(36, 39)])

    def parent(lineage: str, number: int) -> Mark | None:
        found = epoch_numbered(root, JOB, number - 1, before=epoch(lineage, number))
        return (found.lineage, found.epoch) if found is not None else None

    assert parent("b", 31) == ("a", 30)
    assert parent("c", 36) == ("b", 35)
    assert parent("a", 0) is None
    assert epoch_numbered(root, JOB, 80, before=epoch("c", 36)) is None


@pytest.mark.parametrize(
    ("line", "error"), [(b'{"format":2}', FormatError), (b"{", CorruptStoreError), (b'{"format":1}', CorruptStoreError)]
)
def test_damage_is_named(root: JobStore, line: bytes, error: type[Exception]) -> None:
    write(root, [("a", 0)])
    path = f"{JOB}/{history_path(0)}"
    root.put(path, root.get(path) + line + b"\n")
    with pytest.raises(error, match="000000000000"):
        read(root, ("a", 0), 5)
