"""What waits to be read: what Spark's progress says, and what lies in a folder."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.control.drivers import until
from tests.seeds import only_long
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.model.view import Backpressure
from tidemark.control.observed.observe import observe
from tidemark.control.view.view_builder import view_of
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FilesSpec, FormatSpec
from tidemark.spark.sources.backlog import FilesRead, backlog_of_sources, by_metrics, rows_or_files_read
from tidemark.spark.sources.planning.folder_listing import FolderListing
from tidemark.state.status.driver_load import Backlog
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA = {"endOffset": '{"rides": {"0": 7, "1": 9}, "fares": {"0": 1}}', "metrics": {"avgOffsetsBehindLatest": "10.5"}}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (KAFKA, Backlog(rows=32)),
        (
            {**KAFKA, "latestOffset": '{"rides": {"0": 12, "1": 9, "10": 3}, "fares": {"0": 0}}'},
            Backlog(rows=8, splits={"fares-0": 0, "rides-0": 5, "rides-1": 0, "rides-10": 3}),
        ),
        ({"endOffset": "none yet", "metrics": {"avgOffsetsBehindLatest": "4.0"}}, Backlog(rows=4)),
        ({"metrics": {"numFilesOutstanding": "3", "numBytesOutstanding": "4096"}}, Backlog(files=3, bytes=4096)),
        ({"metrics": {"numBytesOutstanding": "4096"}}, Backlog(bytes=4096)),
        ({"metrics": {"avgOffsetsBehindLatest": "null"}}, None),
        ({"metrics": {}}, None),
        ({}, None),
    ],
)
def test_what_spark_says(source: dict[str, object], expected: Backlog | None) -> None:
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


def landing(folder: Path, **options: str) -> SourceNode:
    spec = FilesSpec(str(folder), "json", "t BIGINT", options=options)
    return SourceNode(name="landing", spec=spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))


def waits(source: SourceNode, read: Sequence[str] = ()) -> Backlog | None:
    return backlog_of_sources([source], FilesRead([source], lambda _: read), None).get("landing")


def test_what_lies_in_a_folder(tmp_path: Path) -> None:
    paths = landed(tmp_path)
    source = landing(tmp_path)
    assert waits(source, [f"file://{path}" for path in paths[:2]]) == Backlog(files=3, bytes=30)
    assert waits(source, paths) == Backlog(files=0, bytes=0)
    assert waits(source) == Backlog(files=5, bytes=50)
    assert waits(source, ["/gone"]) == Backlog(files=5, bytes=50)
    assert waits(landing(Path(f"{tmp_path}/*")), paths) is None
    assert waits(replace(source, spec=FilesSpec("s3://bucket/in", "json", "t BIGINT")), paths) is None
    assert waits(landing(tmp_path / "gone"), paths) is None
    # Spark passes over some of them.
    assert waits(landing(tmp_path, pathGlobFilter="*.json"), paths) is None


LAYOUTS: list[tuple[str, ...]] = [
    ("a.json", "done/b.json", "2024/01/c.json"),
    ("a.json", "day=1/b.json", "day=1/late/c.json", "day=2/_done/d.json", "e.json._COPYING_"),
    ("_part=1/a.json", "_done/b.json"),
]


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"recursiveFileLookup": "true"}])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_that_are_not_read_do_not_wait(
    spark: SparkSession, tmp_path: Path, layout: tuple[str, ...], options: dict[str, str]
) -> None:
    """A folder that readers moved files to made a job look behind for ever."""
    for name in layout:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    listed = FolderListing(spark, str(tmp_path), options).files()
    assert waits(landing(tmp_path, **options)) == Backlog(files=len(listed), bytes=2 * len(listed))
    assert waits(landing(tmp_path, **options), [file.address for file in listed]) == Backlog(files=0, bytes=0)


def test_a_folder_may_be_given_relative_to_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    paths = landed(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    assert waits(landing(Path("in")), [f"file://{path}" for path in paths[:2]]) == Backlog(files=3, bytes=30)


def test_files_of_one_instant_are_told_apart(tmp_path: Path) -> None:
    """Spark orders by milliseconds, and takes those of one millisecond in any order."""
    paths = landed(tmp_path)
    for number, path in enumerate(paths):
        os.utime(path, ns=(number, 1_600_000_000_000_000_000 - number))
    source = landing(tmp_path)
    read = FilesRead([source], lambda _: paths[:1])
    read.add({"landing": paths[1:3], "other": paths})
    read.add({"landing": paths[3:4]})
    assert backlog_of_sources([source], read, None) == {"landing": Backlog(files=1, bytes=10)}
    read.add({"landing": paths[4:]})
    assert backlog_of_sources([source], read, None) == {"landing": Backlog(files=0, bytes=0)}
    # One that came late with an old time waits, too.
    (tmp_path / "late").write_text("x")
    os.utime(tmp_path / "late", (1, 1))
    assert backlog_of_sources([source], read, None) == {"landing": Backlog(files=1, bytes=1)}


def test_a_folder_of_very_many_files_is_not_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = landed(tmp_path)
    monkeypatch.setattr("tidemark.spark.sources.backlog.MAX_ENTRIES", 4)
    assert waits(landing(tmp_path), paths[:1]) is None


def test_sources_are_told_apart_by_their_order(tmp_path: Path) -> None:
    paths = landed(tmp_path)
    files = landing(tmp_path)
    rides = SourceNode(name="rides", spec=FormatSpec("kafka"), watermarks=files.watermarks)
    progress = {"sources": [{"metrics": {}, "numInputRows": 7}, {**KAFKA, "numInputRows": 70}]}
    read = FilesRead([files, rides], lambda _: paths[:4])
    assert backlog_of_sources([files, rides], read, progress) == {"landing": Backlog(files=1, bytes=10), "rides": Backlog(rows=32)}
    assert rows_or_files_read([files, rides], {"landing": paths[2:4]}, progress) == {"landing": 2, "rides": 70}
    assert backlog_of_sources([rides], FilesRead(), progress) == {}
    assert backlog_of_sources([rides], FilesRead(), None) == {}
    assert rows_or_files_read([rides], {}, None) == {}


@only_long
@pytest.mark.spark
def test_forty_files_at_two_per_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody adds any: the time to catch up is that of the run, and what the idle job shows falls to nothing."""
    folder, root, stop = tmp_path / "in", str(tmp_path / "store"), threading.Event()
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02d}.json").write_text(json.dumps({"t": number}))
        os.utime(folder / f"{number:02d}.json", ns=(0, 1_600_000_000_000_000_000 + number * 300_000))
    spec = tm.files(str(folder), format="json", schema="t BIGINT", max_files_per_epoch=2)
    stream = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    job = tm.Job("job", outputs={"rows": tm.memory(stream, str(tmp_path))}, store=root)
    seen: list[tuple[float, int]] = []
    clock = SYSTEM_CLOCK

    def pressure() -> Backpressure:
        view = view_of(observe(JobStore.open(root), "job", {}), clock.now_ms())
        if view.pressure.catch_up_ms is not None:
            seen.append((clock.monotonic(), view.pressure.catch_up_ms))
        return view.pressure

    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(tm.run, job, spark=spark, trigger="1 second", stop=stop, handle_signals=False)
        try:
            until(lambda: run.done() or pressure().waiting == {"landing": Backlog(files=0, bytes=0)}, "word that nothing waits")
            ended = clock.monotonic()
            until(lambda: run.done() or pressure().busy_share == 0, "word that the job rests")
        finally:
            stop.set()
        assert len(run.result().epochs) == 20
    assert pressure().catch_up_ms is None
    ratios = sorted(said / 1000 / (ended - at) for at, said in seen if at < ended)
    assert ratios, "nothing was said"
    assert 0.5 <= ratios[len(ratios) // 2] <= 2
