"""Which Delta tables count as empty: those whose whole log says that a job made them and nobody wrote to them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tidemark.savepoints.delta.result_tables import is_blank
from tidemark.state.delta.delta_tags import CREATED, JOB, MAINTENANCE


def made(place: Path, job: str = "taxi") -> DeltaTable:
    tags = CommitProperties(custom_metadata={MAINTENANCE: CREATED, JOB: job})
    return DeltaTable.create(str(place), pa.schema([("k", pa.string())]), commit_properties=tags)


def test_one_that_a_job_made_is(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert is_blank(table, str(tmp_path), "taxi")
    assert not is_blank(table, str(tmp_path), "rides")


def test_one_with_rows_is_not(tmp_path: Path) -> None:
    made(tmp_path)
    write_deltalake(str(tmp_path), pa.table({"k": ["a"]}), mode="append")
    assert not is_blank(DeltaTable(str(tmp_path)), str(tmp_path), "taxi")


@pytest.mark.parametrize("kept", [0, 1], ids=["checkpoint only", "newest entry"])
def test_one_whose_log_does_not_go_back_to_its_beginning_is_not(tmp_path: Path, kept: int) -> None:
    for number in range(2):
        write_deltalake(str(tmp_path), pa.table({"k": [f"{number}"]}), mode="append")
    table = DeltaTable(str(tmp_path))
    if kept:
        # A commit that has the marks of one that makes a table.
        table.create_write_transaction(
            [], "append", table.schema(), commit_properties=CommitProperties(custom_metadata={MAINTENANCE: CREATED, JOB: "taxi"})
        )
    table = DeltaTable(str(tmp_path))
    table.create_checkpoint()
    entries = sorted((tmp_path / "_delta_log").glob("0*.json"))
    for entry in entries[: len(entries) - kept]:
        entry.unlink()
    table = DeltaTable(str(tmp_path))
    assert table.to_pyarrow_table().num_rows == 2
    assert not is_blank(table, str(tmp_path), "taxi")
