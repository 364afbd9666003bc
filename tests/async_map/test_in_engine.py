"""Asynchronous enrichment in jobs: each element is called once per epoch, however many outputs read it, and also after a crash."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.conformance.test_conformance import killed
from tests.seeds import only_long
from tidemark.errors import TidemarkError
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = Mapping[str, Any]
NOW = 1_800_000_000_000
DAYS = 86_400_000
SCHEMA = "id BIGINT, at BIGINT"
NAMES = "id BIGINT, name STRING"
FAILED, ODD = tm.OutputTag("unknown"), tm.OutputTag("odd")


class Service:
    """A service that keeps a list of its calls and of its connections in files, since it is called in other processes."""

    def __init__(self, folder: Path, *, wait: float = 0.001) -> None:
        self.folder = str(folder)
        self.wait = wait
        self.flying = 0

    async def open(self) -> None:
        await asyncio.sleep(0)
        self._note("opened", os.getpid())

    async def invoke(self, row: Row) -> Row:
        self.flying += 1
        self._note("calls", row["id"])
        self._note("flying", self.flying)
        await asyncio.sleep(self.wait * (1 + row["id"] % 3))
        self.flying -= 1
        if row["id"] % 10 == 4:
            raise LookupError(f"nobody knows {row['id']}")
        return {"id": row["id"], "name": f"name {row['id']}"}

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._note("closed", os.getpid())

    def _note(self, name: str, value: object) -> None:
        # One write of a line is not torn.
        with Path(self.folder, name).open("a", encoding="utf-8") as file:
            file.write(f"{value}\n")


def noted(folder: Path, name: str) -> list[int]:
    path = folder / name
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def rows_of(name: str) -> list[dict[str, Any]]:
    table = tm.memory_table(name)
    tm.clear_memory(name)
    return [] if table is None else table.to_pylist()


def elements(*epochs: list[tuple[int, int]]) -> tm.Stream:
    given = tm.from_elements(epochs=list(epochs), schema=SCHEMA)
    return tm.source("rides", given, watermarks=tm.bounded_out_of_orderness("1 second", timestamp="at"))


def epoch_of(first: int, count: int) -> list[tuple[int, int]]:
    return [(number, NOW - DAYS + number) for number in range(first, first + count)]


def job_of(folder: Path, named: tm.Stream, *, only: Container[str] | None = None) -> tm.Job:
    """Return a job that reads the results of a stream many times over, or less often."""
    halves = named.split({ODD: "id % 2 = 1"})
    counts = named.window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("counts")
    streams = {
        "named": named,
        "upper": named.select("id", upper="upper(name)"),
        "again": named.map(dict, returns=NAMES),
        "odd": halves.side_output(ODD),
        "unknown": named.side_output(FAILED),
        "counts": counts,
    }
    outputs = {name: tm.memory(stream, f"{folder}/{name}") for name, stream in streams.items() if only is None or name in only}
    return tm.Job("enriching", outputs=outputs, store=str(folder / "store"))


def enriched(stream: tm.Stream, folder: Path, **settings: Any) -> tm.Stream:
    return stream.async_map(Service(folder), returns=NAMES, retries=0, **{"on_error": FAILED, **settings})


def test_each_element_is_called_once_however_many_read_the_results(spark: SparkSession, tmp_path: Path) -> None:
    # A row far ahead of time has the input read a second time, without it.
    first, second = [*epoch_of(0, 60), (999, NOW + 40 * DAYS)], epoch_of(60, 40)
    job = job_of(tmp_path, enriched(elements(first, second), tmp_path, capacity=8))
    progress: list[EpochProgress] = []
    tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=progress.append, handle_signals=False, end_of_input=True)
    assert sorted(noted(tmp_path, "calls")) == list(range(100))
    known = {number for number in range(100) if number % 10 != 4}
    for name in ("named", "upper", "again"):
        assert sorted(row["id"] for row in rows_of(f"{tmp_path}/{name}")) == sorted(known), name
    assert sorted(row["id"] for row in rows_of(f"{tmp_path}/odd")) == sorted(number for number in known if number % 2)
    assert sum(row["n"] for row in rows_of(f"{tmp_path}/counts")) == len(known)
    unknown = rows_of(f"{tmp_path}/unknown")
    assert sorted(row["id"] for row in unknown) == [number for number in range(100) if number % 10 == 4]
    assert all(row["at"] == NOW - DAYS + row["id"] and f"nobody knows {row['id']}" in row["error"] for row in unknown)
    read = [epoch.operators[name] for epoch in progress for name in epoch.operators if name.startswith("async_map-")]
    assert [(each.rows_in, each.rows_accepted, each.counters.get("failed", 0)) for each in read if each.rows_in] == [
        (60, 54, 6),
        (40, 36, 4),
    ]
    assert 1 < max(noted(tmp_path, "flying")) <= 8
    opened = Counter(noted(tmp_path, "opened"))
    assert opened == Counter(noted(tmp_path, "closed"))
    assert sum(opened.values()) <= 4, "it is opened once per task, of which there are at most two in an epoch"


def test_a_task_writes_results_in_the_order_of_elements_or_as_they_are_ready(spark: SparkSession, tmp_path: Path) -> None:
    read, outputs = elements(epoch_of(0, 50)), {}
    for name, ordered in (("ordered", True), ("ready", False)):
        (tmp_path / name).mkdir()
        made = enriched(read, tmp_path / name, ordered=ordered, on_error=tm.OutputTag(f"unknown_{name}"))
        outputs[name] = tm.memory(made, f"{tmp_path}/{name}")
    job = tm.Job("order", outputs=outputs, store=str(tmp_path / "store"), parallelism=1)
    tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False)
    found = {name: [row["id"] for row in rows_of(f"{tmp_path}/{name}")] for name in outputs}
    known = [number for number in range(50) if number % 10 != 4]
    assert found["ordered"] == known
    assert sorted(found["ready"]) == known != found["ready"]


@pytest.mark.crash
@pytest.mark.parametrize("point", ["state-staged", "outputs-staged", pytest.param("before-commit", marks=only_long), "after-commit"])
def test_a_crash_repeats_calls_and_no_results(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    given = enriched(elements(epoch_of(0, 20), epoch_of(20, 20)), tmp_path)
    job = job_of(tmp_path, given, only={"named", "unknown", "counts"})
    with monkeypatch.context() as patch:
        patch.setenv("TIDEMARK_CRASH_AT", point)
        patch.setattr("tidemark.crashpoints._reached", {})
        patch.setattr("tidemark.crashpoints.os.kill", killed)
        with pytest.raises(Exception, match="killed here"):
            tm.run(job, spark=spark, clock=ManualClock(NOW), max_epochs=1, handle_signals=False)
    tm.run(job, spark=spark, clock=ManualClock(NOW), takeover=True, handle_signals=False)
    calls = Counter(noted(tmp_path, "calls"))
    assert set(calls) == set(range(40))
    repeated = point in ("outputs-staged", "before-commit")
    assert {calls[number] for number in range(20)} == {2 if repeated else 1}
    assert {calls[number] for number in range(20, 40)} == {1}
    assert sorted(row["id"] for row in rows_of(f"{tmp_path}/named")) == [number for number in range(40) if number % 10 != 4]
    assert sorted(row["id"] for row in rows_of(f"{tmp_path}/unknown")) == [4, 14, 24, 34]


class Impatient:
    """Fails for one element, and knows the line."""

    async def invoke(self, row: Row) -> Row:
        await asyncio.sleep(0)
        if row["id"] == 3:
            raise LookupError("no such ride")  # the line that is shown
        return row


def test_without_on_error_the_epoch_ends_with_the_element_and_the_line(spark: SparkSession, tmp_path: Path) -> None:
    stream = elements(epoch_of(0, 6)).async_map(Impatient, returns=SCHEMA, retries=1, backoff="1 ms").uid("rides-named")
    job = tm.Job("failing", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "store"))
    with pytest.raises(TidemarkError) as caught:
        tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False)
    error = caught.value
    assert "Impatient raised LookupError: no such ride after 2 attempts in `raise LookupError(" in error.what
    assert "'id': 3" in error.what
    assert (error.job, error.uid) == ("failing", "rides-named")
    assert error.place is not None
    assert error.place.startswith(__file__)
    assert "on_error=" in error.fix
    assert rows_of(f"{tmp_path}/o") == []


def test_an_open_that_fails_is_named(spark: SparkSession, tmp_path: Path) -> None:
    stream = elements(epoch_of(0, 3)).async_map(Unreachable, returns=SCHEMA)
    job = tm.Job("failing", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "store"))
    with pytest.raises(TidemarkError, match="open of Unreachable failed: ConnectionError: no route"):
        tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False)


class Unreachable:
    async def open(self) -> None:
        raise ConnectionError("no route")

    async def invoke(self, row: Row) -> Row:
        return row

    async def close(self) -> None:
        raise ConnectionError("nor back")


def test_without_a_uid_a_job_goes_on_after_a_step_was_added_or_the_function_left_out(spark: SparkSession, tmp_path: Path) -> None:
    source = elements(epoch_of(0, 10), epoch_of(10, 10), epoch_of(20, 10), epoch_of(30, 10))

    def run(stream: tm.Stream) -> list[int]:
        counts = stream.key_by("id").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("counts")
        outputs = {"named": tm.memory(stream, f"{tmp_path}/named"), "counts": tm.memory(counts, f"{tmp_path}/counts")}
        job = tm.Job("growing", outputs=outputs, store=str(tmp_path / "store"))
        tm.run(job, spark=spark, clock=ManualClock(NOW), max_epochs=1, handle_signals=False)
        return sorted(row["id"] for row in rows_of(f"{tmp_path}/named"))

    assert run(source.async_map(named, returns=NAMES)) == list(range(10))
    assert run(source.filter("id % 2 = 0").select("id").async_map(named, returns=NAMES)) == list(range(10, 20, 2))
    assert run(source.select("id", name="'x'")) == list(range(20, 30))
    assert run(source.async_map(named, returns=NAMES).uid("named")) == list(range(30, 40))


async def named(row: Row) -> Row:
    await asyncio.sleep(0)
    return {"id": row["id"], "name": "x"}
