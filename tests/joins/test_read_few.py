"""Few rows of state files that the driver reads itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import StateTables
from tidemark.state.log.parquet_files import write_parquet
from tidemark.state.log.records import OperatorState
from tidemark.state.store.root_store import root_store


def test_files_whose_columns_are_required_are_read_with_merged_ones(tmp_path: Path) -> None:
    """An event time such as ``coalesce(t, 0)``, and ingestion time, is required in new files, and nullable in those merged from them."""
    store = root_store(str(tmp_path)).at("job")
    session: Any = None
    tables = StateTables(OperatorContext(session, store, "joined", OperatorState({}), {}, 2, 0), "here")
    files = []
    for number, nullable in enumerate((True, False)):
        rows = pa.table({"at": [number]}, schema=pa.schema([pa.field("at", pa.int64(), nullable=nullable)]))
        files.append(write_parquet(store, f"state/{number}.parquet", rows, compression="lz4", time_column="at").as_state_file(number))
    assert tables.read_few(files, ["at"])["at"].to_pylist() == [0, 1]
    assert tables.read_few(files[::-1])["at"].to_pylist() == [1, 0]
