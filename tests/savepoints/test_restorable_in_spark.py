"""The log of Spark's file source, also one that it has compacted, tells until when savepoints can be restored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tidemark.clock import SYSTEM_CLOCK
from tidemark.savepoints.core.expiry import Expiry
from tidemark.savepoints.core.retention import DAY_MS
from tidemark.state.status.status import SourceStatus, read_status
from tidemark.state.store.root_store import root_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 12
"""Spark puts every ten entries of its log into one."""


def test_files_that_a_real_source_has_read_are_found_again(spark: SparkSession, tmp_path: Path) -> None:
    landing, store = tmp_path / "landing zone", str(tmp_path / "store")
    landing.mkdir()
    now = SYSTEM_CLOCK.now_ms()
    paths = [landing / f"100% of {number:02d}.txt" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_text("a line\n")
        os.utime(path, (now / 1000 - (FILES - number) * DAY_MS / 1000,) * 2)
    lines = tm.source("lines", tm.files(str(landing), format="text", max_files_per_epoch=1), watermarks=tm.ingestion_time())
    job = tm.Job("lines", outputs={"seen": tm.memory(lines, "seen")})
    tm.run(job, spark=spark, store=store)
    status = read_status(root_store(store), "lines")
    assert status is not None
    assert status.sources == {"lines": SourceStatus("files")}
    savepoints = tm.savepoints_of(job, store=store)
    early, late = savepoints.take("early", epoch=2), savepoints.take("late", epoch=10)
    assert len(early.record.source_logs["lines"].files) == 3
    assert [file.name for file in late.record.source_logs["lines"].files] == ["9.compact", "10"]
    for found in savepoints.restorable(early, late):
        assert found.limits == (Expiry("input", "lines", "kept", "no file that was read was deleted"),)
    for path in paths[:5]:
        path.unlink()
    lost, kept = savepoints.restorable(early, late)
    assert [limit.why for limit in lost.lost] == ["2 of the 9 files that were read since were deleted, such as 100% of 03.txt"]
    # The oldest that is left is seven days old; the one that comes next, a day.
    assert kept.until is not None
    assert abs(kept.until - (now + 6 * DAY_MS)) < DAY_MS // 24
    assert not kept.lost
