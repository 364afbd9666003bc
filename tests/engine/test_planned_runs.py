"""Jobs of files run without a query, and go on in one and back: nothing is lost, nothing is read twice."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.loop.driver import JobDriver
from tidemark.spark.loop.planned_run import PlannedRun
from tidemark.spark.loop.query.query_run import QueryRun
from tidemark.spark.sources.planning.file_planner import has_files
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, t BIGINT"
MINUTE = 60_000


class Landing:
    """A folder of JSON files, each with one row, and a job that counts rows by key in windows of a minute."""

    def __init__(self, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.folder = folder / "land ing é"
        self.folder.mkdir()
        self.runs: list[str] = []
        self._spark, self._files, self._monkeypatch = spark, 0, monkeypatch
        self.options = {"max_files_per_epoch": 1, **options}
        for kind in (PlannedRun, QueryRun):
            self._note(kind)

    def _note(self, kind: type[PlannedRun | QueryRun]) -> None:
        run_epochs = kind.run_epochs

        def noted(run: Any, interval_ms: int | None) -> None:
            self.runs.append(kind.__name__)
            run_epochs(run, interval_ms)

        self._monkeypatch.setattr(kind, "run_epochs", noted)

    def job(self, path: Path | str | None = None) -> tm.Job:
        files = tm.files(str(path or self.folder), format="json", schema=SCHEMA, **self.options)
        rows = tm.source("landing", files, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
        late = tm.OutputTag("late")
        panes = rows.key_by("k").window(tm.tumbling("1 minute")).late_to(late).aggregate(n=tm.count()).uid("w")
        outputs = {"panes": tm.memory(panes, f"{self.folder}-panes"), "late": tm.memory(panes.side_output(late), f"{self.folder}-late")}
        return tm.Job("job", outputs=outputs, store=str(self.folder.parent / "store"))

    def land(self, *lines: str, name: str | None = None) -> None:
        """Write a file, a second younger than the one before."""
        self._files += 1
        unseen = self.folder.parent / f"{self._files}"
        unseen.write_text("".join(f"{line}\n" for line in lines))
        os.utime(unseen, (1_600_000_000 + self._files,) * 2)
        unseen.rename(self.folder / (name or f"a file %20 {self._files}.json"))

    def run(self, *, query: bool = False, job: tm.Job | None = None, **settings: Any) -> list[EpochProgress]:
        """Run the job, with a query or as it likes; returns the run's epochs."""
        with self._monkeypatch.context() as patch:
            if query:
                patch.setattr(JobDriver, "plans_epochs", False)
            done = tm.run(job or self.job(), spark=self._spark, clock=ManualClock(NOW), **settings)
        for epoch in done.epochs:
            require_conservation(epoch)
        return list(done.epochs)

    @property
    def counted(self) -> dict[tuple[str, int], int]:
        """Rows by key and minute in all panes."""
        found = tm.memory_table(f"{self.folder}-panes")
        rows = found.to_pylist() if found is not None else []
        return {(row["k"], row["window_start"].minute): row["n"] for row in rows}


@pytest.fixture
def landing(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Landing]:
    yield Landing(spark, tmp_path, monkeypatch)
    tm.clear_memory(f"{tmp_path / 'land ing é'}-panes")
    tm.clear_memory(f"{tmp_path / 'land ing é'}-late")


def row(key: str, minute: int) -> str:
    return json.dumps({"k": key, "t": minute * MINUTE})


def test_a_job_moves_between_its_own_plans_and_a_query(landing: Landing) -> None:
    """Both ways, across compacted logs, which each tenth entry is."""
    expected: dict[tuple[str, int], int] = {}
    for turn, (files, query) in enumerate([(4, False), (4, True), (5, False), (9, True), (3, False)]):
        for number in range(files):
            landing.land(row(f"k{turn}", number))
            expected[f"k{turn}", number] = 1
        epochs = landing.run(query=query)
        assert [epoch.rows_in for epoch in epochs] == [1] * files
        assert not landing.run(query=not query), "nothing is read again"
    landing.run(end_of_input=True)
    late = tm.memory_table(f"{landing.folder}-late")
    found = landing.counted
    assert landing.runs[:6] == ["PlannedRun", "QueryRun", "QueryRun", "PlannedRun", "PlannedRun", "QueryRun"]
    assert sum(found.values()) + (late.num_rows if late is not None else 0) == len(expected)
    assert found.items() <= expected.items()


def test_both_read_malformed_records_alike(landing: Landing) -> None:
    lines = [row("a", 1), '{"k": "b", "t": "soon"}', "no json", '{"t": 60000, "k": {"is": "text"}}', '{"k": "c"}']
    landing.land(*lines)
    planned = landing.run()
    landing.land(*lines)
    queried = landing.run(query=True)
    assert landing.runs == ["PlannedRun", "QueryRun"]
    assert planned[0].rows_malformed == queried[0].rows_malformed == 3
    assert planned[0].rows_in == queried[0].rows_in == 5


@pytest.mark.parametrize("name", ["latestFirst", "maxFileAge", "cleanSource", "fileNameOnly"])
def test_options_that_choose_files_are_left_to_a_query(name: str) -> None:
    spec = tm.files("/data", format="json", schema=SCHEMA, options={name: "1 day"})
    source = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    assert isinstance(source.node, SourceNode)
    assert not has_files(source.node.spec)


def test_a_folder_that_a_query_writes_is_read_by_a_query(landing: Landing, spark: SparkSession, tmp_path: Path) -> None:
    """Its log says which files are complete: one that failed may have left others."""
    landing.land(row("a", 1))
    rows = spark.readStream.name("rows").schema(SCHEMA).json(str(landing.folder))
    written = tmp_path / "written"
    writer = rows.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(written)).awaitTermination()
    (written / "left.json").write_text(row("b", 1))
    epochs = landing.run(job=landing.job(written))
    assert landing.runs == ["QueryRun"]
    assert [epoch.rows_in for epoch in epochs] == [1]


def test_hidden_files_and_patterns_are_as_in_spark(landing: Landing) -> None:
    for name in (".hidden.json", "_temporary.json", "x.json._COPYING_", "b.json", "c.txt", "d.json"):
        landing.land(row(name, 1), name=name)
    (landing.folder / "below").mkdir()
    (landing.folder / "below" / "e.json").write_text(row("e", 1))
    landing.options = {"max_files_per_epoch": 10, "options": {"pathGlobFilter": "*.json"}}
    planned = [epoch.rows_in for epoch in landing.run()]
    assert not landing.run(query=True)
    assert landing.runs == ["PlannedRun", "QueryRun"]
    assert planned == [2]


def test_an_epoch_takes_files_up_to_its_bytes(landing: Landing) -> None:
    for minute in (2, 3, 4):
        landing.land(row("a", minute))
    size = len(row("a", 2)) + 1
    landing.land(*[row("big", 0)] * 10)
    landing.options = {"max_bytes_per_epoch": 2 * size}
    assert [epoch.rows_in for epoch in landing.run()] == [2, 1, 10]


def test_a_drain_reads_what_was_there_at_its_start(landing: Landing) -> None:
    landing.land(row("a", 1))
    landing.land(row("a", 2))
    epochs = landing.run(on_epoch=lambda _: landing.land(row("later", 3)))
    assert len(epochs) == 2
    assert len(landing.run()) == 2


def test_a_continuous_run_takes_files_as_they_come(landing: Landing) -> None:
    stop = threading.Event()
    seen: list[int] = []

    def note(epoch: EpochProgress) -> None:
        seen.append(epoch.rows_in)
        if len(seen) < 4:
            landing.land(*[row("a", len(seen))] * (len(seen) + 1))
        else:
            stop.set()

    landing.land(row("a", 0))
    landing.run(trigger="100 milliseconds", stop=stop, on_epoch=note)
    assert landing.runs == ["PlannedRun"]
    assert seen == [1, 2, 3, 4]
    landing.run(end_of_input=True)
    assert landing.counted == {("a", 0): 1, ("a", 1): 2, ("a", 2): 3, ("a", 3): 4}


def test_a_deadline_is_met_when_it_is_due(spark: SparkSession, tmp_path: Path) -> None:
    """Not only at the next trigger; files that have come by then wait for the trigger, and the deadline with them."""
    clock, stop, epochs = ManualClock(NOW), threading.Event(), list[EpochProgress]()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(row("a", 0))
    watermarks = tm.bounded_out_of_orderness("1 minute", timestamp="t", idle_after="5 minutes")
    source = tm.source("landing", tm.files(str(tmp_path / "in"), format="json", schema=SCHEMA), watermarks=watermarks)
    job = tm.Job("job", outputs={"rows": tm.memory(source, f"{tmp_path}-rows")}, store=str(tmp_path / "store"))

    def note(epoch: EpochProgress) -> None:
        epochs.append(epoch)
        if len(epochs) == 1:
            clock.advance(5 * MINUTE)
        else:
            stop.set()

    tm.run(job, spark=spark, clock=clock, trigger="1 hour", stop=stop, on_epoch=note)
    assert [epoch.rows_in for epoch in epochs] == [1, 0]
    assert epochs[1].processing_time == NOW + 5 * MINUTE
    assert epochs[1].sources["landing"].splits[""].idle
    tm.clear_memory(f"{tmp_path}-rows")
