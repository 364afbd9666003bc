"""What waits to be read: what Spark's progress says, and what lies in a folder."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.control.drivers import until
from tidemark.graph.nodes import FilesSpec, FormatSpec, SourceNode
from tidemark.spark.waiting import by_metrics, waiting, waiting_files
from tidemark.state.load import Waiting
from tidemark.state.status import read_status
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = {"endOffset": '{"rides": {"0": 7, "1": 9}, "fares": {"0": 1}}', "metrics": {"avgOffsetsBehindLatest": "10.5"}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (KAFKA, Waiting(rows=32)),
        ({"endOffset": "none yet", "metrics": {"avgOffsetsBehindLatest": "4.0"}}, Waiting(rows=4)),
        ({"metrics": {"numFilesOutstanding": "3", "numBytesOutstanding": "4096"}}, Waiting(files=3, bytes=4096)),
        ({"metrics": {"numBytesOutstanding": "4096"}}, Waiting(bytes=4096)),
        ({"metrics": {"avgOffsetsBehindLatest": "null"}}, None),
        ({"metrics": {}}, None),
        ({}, None),
    ],
)
def test_what_spark_says(source: dict[str, object], expected: Waiting | None) -> None:
    assert by_metrics(source) == expected


def landed(folder: Path) -> list[str]:
    """Let five files land, a second apart, and some that Spark does not see."""
    (folder / "day=1").mkdir()
    for number, name in enumerate(["a", "b", "day=1/c", "d", "e e"]):
        (folder / name).write_text("x" * 10)
        os.utime(folder / name, (1_600_000_000 + number,) * 2)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").write_text("")
    return [str(folder / name) for name in ("a", "b", "day=1/c", "d", "e e")]


def test_what_lies_in_a_folder(tmp_path: Path) -> None:
    paths = landed(tmp_path)
    spec = FilesSpec(str(tmp_path), "json", "t BIGINT")
    assert waiting_files(spec, [f"file://{path}" for path in paths[:2]]) == Waiting(files=3, bytes=30)
    assert waiting_files(spec, paths) == Waiting(files=0, bytes=0)
    assert waiting_files(spec, ()) is None, "nothing was read yet"
    assert waiting_files(spec, ["/gone"]) is None
    assert waiting_files(FilesSpec(f"{tmp_path}/*", "json", "t BIGINT"), paths) is None
    assert waiting_files(FilesSpec("s3://bucket/in", "json", "t BIGINT"), paths) is None


def test_a_folder_of_very_many_files_is_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = landed(tmp_path)
    monkeypatch.setattr("tidemark.spark.waiting.MOST_ENTRIES", 4)
    assert waiting_files(FilesSpec(str(tmp_path), "json", "t BIGINT"), paths[:1]) is None


def test_sources_are_told_apart_by_their_order(tmp_path: Path) -> None:
    paths = landed(tmp_path)
    strategy = tm.bounded_out_of_orderness("0 ms", timestamp="t")
    landing = SourceNode(name="landing", spec=FilesSpec(str(tmp_path), "json", "t BIGINT"), watermarks=strategy)
    rides = SourceNode(name="rides", spec=FormatSpec("kafka"), watermarks=strategy)
    progress = {"sources": [{"metrics": {}}, KAFKA]}
    files = {"landing": paths[:4]}
    assert waiting([landing, rides], files, progress) == {"landing": Waiting(files=1, bytes=10), "rides": Waiting(rows=32)}
    assert waiting([rides], {}, progress) == {}
    assert waiting([landing, rides], {}, None) == {}


@pytest.mark.spark
def test_the_status_says_what_waits_also_when_no_epoch_comes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.query_run._POLLS_PER_COUNT", 1)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text(json.dumps({"t": 0}))
    spec = tm.files(str(tmp_path / "in"), format="json", schema="t BIGINT")
    landing = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    root, stop = str(tmp_path / "store"), threading.Event()
    job = tm.Job("job", outputs={"rows": tm.memory(landing, str(tmp_path))}, store=root)

    def nothing_waits() -> bool:
        status = read_status(JobStore.open(root), "job") if (tmp_path / "store").exists() else None
        return status is not None and status.load is not None and status.load.waiting == {"landing": Waiting(files=0, bytes=0)}

    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(tm.run, job, spark=spark, trigger="100 milliseconds", stop=stop, handle_signals=False)
        try:
            until(lambda: run.done() or nothing_waits(), "word that nothing waits")
        finally:
            stop.set()
        assert len(run.result().epochs) == 1
