"""The log of read files that a driver writes in a query's place."""

from __future__ import annotations

import json
from pathlib import Path

from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.state.store.store import JobStore


def entry(number: int) -> str:
    return json.dumps({"path": f"file:///in/{number}.json", "timestamp": 1, "batchId": number})


def test_a_log_of_any_length_is_a_few_files(tmp_path: Path) -> None:
    checkpoint = SparkCheckpoint(JobStore.open(str(tmp_path)), term=1)
    for number in range(95):
        checkpoint.log_files("0", number, [entry(number)])
        (log,) = checkpoint.save_source_logs().values()
        assert log.files[0].name == ("0" if number < 9 else f"{(number + 1) // 10 * 10 - 1}.compact")
    folder = Path(checkpoint.path.removeprefix("file://")) / "sources" / "0"
    assert sorted(file.name for file in folder.iterdir()) == ["89.compact", "90", "91", "92", "93", "94"]
    assert checkpoint.files_read("0") == [f"file:///in/{number}.json" for number in range(95)]
    checkpoint.close()


def test_a_batch_that_is_planned_again_has_one_entry(tmp_path: Path) -> None:
    checkpoint = SparkCheckpoint(JobStore.open(str(tmp_path)), term=1)
    for number in (*range(10), 9):
        checkpoint.log_files("0", number, [entry(number)])
    assert checkpoint.files_read("0") == [f"file:///in/{number}.json" for number in range(10)]
    checkpoint.close()
