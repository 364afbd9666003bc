"""Which version of a table a savepoint names where the table's log does not have the epochs in their order; no Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tidemark.savepoints.delta.table_versions import table_versions
from tidemark.state.delta.delta_tags import EPOCH, JOB, LINEAGE, MODE, REPUBLISHED
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.progress import EpochProgress, OutputRepair
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition, StagedFile

PROGRESS = EpochProgress("taxi", "a", 0, 0, 0, 0, 0)


def made(folder: Path, *steps: str, mode: str = "append") -> str:
    """Make a table: a number is an epoch, with ``'`` published again; ``R1`` restores what epoch 1 left, ``T`` empties it."""
    place = str(folder / "table")
    versions: dict[str, int] = {}
    for step in steps:
        if step.startswith("R"):
            DeltaTable(place).restore(versions[step[1:]])
        elif step == "T":
            DeltaTable(place).delete()
        else:
            tags = {JOB: "taxi", LINEAGE: "a", EPOCH: step.rstrip("'"), MODE: mode, **({REPUBLISHED: "true"} if "'" in step else {})}
            rows = pa.table({"epoch": [int(step.rstrip("'"))]})
            write_deltalake(place, rows, mode="append", commit_properties=CommitProperties(custom_metadata=tags))
            versions[step] = DeltaTable(place).version()
    return place


def named(place: str, epoch: int, *, before: int | None = None, repairs: tuple[OutputRepair, ...] = ()) -> list[int] | None:
    """Return the rows of the version that a savepoint of an epoch names."""
    position = SinkPosition("x", before, "", "a", epoch - 1, before) if before is not None else None
    output = OutputRecord("delta", place, "{}", (StagedFile("a", 1, 1),), 1, before=position, repairs=repairs)
    record = EpochRecord("taxi", "a", None, 1, epoch, 0, "", PROGRESS, outputs={"o": output})
    found = table_versions(record, LaterLineages(frozenset()), now_ms=0).get("o")
    return sorted(DeltaTable(place, version=found.version).to_pyarrow_table()["epoch"].to_pylist()) if found is not None else None


@pytest.mark.parametrize("epoch", range(7))
def test_epochs_that_were_published_again_behind_later_ones(tmp_path: Path, epoch: int) -> None:
    place = made(tmp_path, "0", "1", "2", "3", "R1", "4", "2'", "3'", "6")
    # Of epoch 2 the version before the RESTORE, not that which shows epoch 4, too; epoch 5 had no rows.
    wanted = {**{number: list(range(number + 1)) for number in range(5)}, 5: None, 6: [0, 1, 2, 3, 4, 6]}
    assert named(place, epoch) == wanted[epoch]


def test_no_version_is_named_that_misses_an_epoch(tmp_path: Path) -> None:
    place = made(tmp_path, "0", "1", "2", "3", "R1", "4", "5")
    assert named(place, 3) == [0, 1, 2, 3]
    # Before epoch 4 was committed, the table was at the version of epoch 3.
    assert named(place, 4, before=3) is None
    assert named(place, 5, before=5) == [0, 1, 4, 5]


def test_a_gap_that_was_accepted_may_be_missing(tmp_path: Path) -> None:
    place = made(tmp_path, "0", "1", "2", "3", "R1", "5", "6", "6'")
    assert named(place, 6) is None
    assert named(place, 6, repairs=(OutputRepair.of_gap(4, "why", [("a", 2), ("a", 3)]),)) == [0, 1, 5, 6, 6]
    # An earlier build did not note which.
    assert named(place, 6, repairs=(OutputRepair("accepted", 4, "why"),)) == [0, 1, 5, 6, 6]
    assert named(place, 6, repairs=(OutputRepair.of_gap(4, "why", [("a", 2)]),)) is None


def test_a_table_that_was_emptied(tmp_path: Path) -> None:
    place = made(tmp_path, "0", "1", "T", "2")
    assert named(place, 1) == [0, 1]
    assert named(place, 2, before=1) is None


def test_where_rows_replace_others_the_newest_epoch_comes_last(tmp_path: Path) -> None:
    half = made(tmp_path / "half", "0", "1", "2", "R0", "3", "1'", "2'", mode="upsert")
    assert named(half, 3) is None
    whole = made(tmp_path / "whole", "0", "1", "2", "R0", "3", "1'", "2'", "3'", mode="upsert")
    assert named(whole, 3) == [0, 1, 2, 3, 3]
