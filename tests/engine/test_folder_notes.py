"""The note of each output of each job in a folder of Parquet files is its own, also where one of an earlier build was shared."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.delta_rig import Rig, row
from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.folder_note import note_path
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.log.records import OutputRecord, SinkPosition

A, B = ("a", "b-c"), ("a-b", "c")
LINEAGES = {A: "a" * 16, B: "b" * 16}


class Folder:
    """One folder of several outputs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.rig = Rig(place, None)
        self.number = 0

    def sink(self, whose: tuple[str, str], expected: Expected | None = None) -> ParquetSink:
        job, output = whose
        sink = ParquetSink(output, str(self.place), job=job)
        if expected is not None:
            sink.expect(expected)
        return sink

    def record(self) -> OutputRecord:
        self.number += 1
        return replace(self.rig.stage(row("k", self.number)), sink="parquet")

    def publish(self, whose: tuple[str, str], epoch: int, before: SinkPosition | None) -> SinkPosition:
        sink = self.sink(whose, Expected(before))
        sink.require_whole()
        sink.publish(replace(self.record(), before=sink.position), LINEAGES[whose], epoch)
        assert sink.position is not None
        return sink.position

    def as_of_before(self, whose: tuple[str, str]) -> None:
        """Give a note the name that an earlier build gave it."""
        job, output = whose
        shutil.move(self.place / note_path(job, output), self.place / "_tidemark" / f"published-{job}-{output}.json")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "folder")


def test_two_outputs_have_two_notes(folder: Folder) -> None:
    a = folder.publish(A, 0, None)
    b = folder.publish(B, 0, None)
    assert a.table != b.table
    assert (a.version, b.version) == (1, 1)
    assert folder.publish(A, 1, a).version == 2
    assert folder.publish(B, 1, b).version == 2


def known_by_table(position: SinkPosition) -> Expected:
    return Expected(position)


def known_by_lineage(position: SinkPosition) -> Expected:
    return Expected(newest=(position.lineage, position.epoch))


@pytest.mark.parametrize("known", [known_by_table, known_by_lineage])
def test_the_note_of_an_earlier_build_is_read_by_whose_it_is(folder: Folder, known: Callable[[SinkPosition], Expected]) -> None:
    position = folder.publish(A, 0, None)
    folder.as_of_before(A)
    other = folder.sink(B)
    other.require_whole()
    assert (other.position or position).table == ""
    sink = folder.sink(A, known(position))
    sink.require_whole()
    sink.publish(replace(folder.record(), before=position), LINEAGES[A], 1)
    assert sink.position is not None
    assert (sink.position.table, sink.position.version) == (position.table, 2)
    assert (folder.place / note_path(*A)).exists()


def test_a_first_epoch_that_an_earlier_build_published_is_not_missed(folder: Folder) -> None:
    """Its log knows of no epoch before, and readers took the files."""
    record = replace(folder.record(), before=SinkPosition())
    sink = folder.sink(A)
    sink.publish(record, LINEAGES[A], 0)
    folder.as_of_before(A)
    again = ParquetSink(A[1], str(folder.place), job=A[0], readers_move_files=True)
    for file in folder.place.glob("*.parquet"):
        file.unlink()
    again.expect(Expected(record.before))
    again.require_whole()
    again.publish(record, LINEAGES[A], 0)


def test_a_note_that_two_shared_is_read_by_both(folder: Folder) -> None:
    shared = folder.publish(A, 0, None)
    folder.as_of_before(A)
    b = SinkPosition(shared.table, 1, "", LINEAGES[B], 0, 1)
    for file in list(folder.place.glob("*.parquet")):
        shutil.copy(file, folder.place / file.name.replace(LINEAGES[A], LINEAGES[B]))
    assert [folder.publish(whose, 1, known).version for whose, known in ((A, shared), (B, b))] == [2, 2]


def test_a_note_of_a_name_that_is_nobody_elses_is_read(folder: Folder) -> None:
    plain = ("taxi", "rows")
    LINEAGES[plain] = "c" * 16
    position = folder.publish(plain, 0, None)
    folder.as_of_before(plain)
    sink = folder.sink(plain)
    sink.require_whole()
    assert (sink.position or SinkPosition()).table == position.table


def test_another_folder_is_refused(folder: Folder) -> None:
    position = folder.publish(A, 0, None)
    folder.as_of_before(A)
    with pytest.raises(MissingEpochsError):
        folder.sink(A, Expected(replace(position, table="other", lineage="d" * 16))).require_whole()
