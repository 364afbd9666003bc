"""What a running driver measures of itself, and what that costs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import py4j.java_gateway
import py4j.protocol
import pytest

import tidemark as tm
from tests.engine.lab import IN_ORDER
from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.loop import job_run
from tidemark.spark.resources.jvm_meter import JvmMeter
from tidemark.spark.resources.sampler import THREAD, measuring
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.resources import Resources
from tidemark.state.status.status import JobStatus, read_status
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def doubled(element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, Any]]:
    """Emit each element twice."""
    del ctx
    yield element
    yield element


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure ten times a second."""
    monkeypatch.setattr(job_run, "measuring", functools.partial(measuring, seconds=0.1))


def a_job(store: Path, stream: tm.Stream) -> tm.Job:
    return tm.Job("job", outputs={"out": tm.parquet(stream, str(store.parent / "out"))}, store=str(store))


def run_until(job: tm.Job, spark: SparkSession, enough: Callable[[JobStatus], bool]) -> JobStatus:
    """Run a job without an end until its status says enough; return that status."""
    stop, seen = threading.Event(), list[JobStatus]()
    assert job.store is not None
    store = JobStore.open(job.store)

    def watch() -> None:
        while not stop.wait(0.2):
            status = read_status(store, job.name)
            if status is not None and enough(status):
                seen.append(status)
                stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    deadline = threading.Timer(120, stop.set)
    deadline.start()
    try:
        tm.run(job, spark=spark, trigger="100 milliseconds", stop=stop, handle_signals=False)
    finally:
        deadline.cancel()
        stop.set()
        watcher.join()
    assert seen, read_status(store, job.name)
    return seen[0]


@pytest.mark.usefixtures("sampled")
def test_the_status_of_a_running_driver_has_its_resources(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", number) for number in range(50)]
    source = tm.source("e", tm.from_elements(epochs=[rows] * 30, schema="k STRING, t BIGINT"), watermarks=IN_ORDER)
    stream = source.process(doubled, returns="k STRING, t BIGINT").uid("doubled")

    def enough(status: JobStatus) -> bool:
        found = status.resources
        return found is not None and found.jvm.gc_share is not None and found.workers.workers > 0 and bool(found.stage_ms)

    status = run_until(a_job(tmp_path / "store", stream), spark, enough)
    found = status.resources
    assert found is not None
    assert found.store is not None
    assert 0 < found.jvm.heap_used <= found.jvm.heap_max
    assert found.jvm.nonheap_used > 0
    assert (found.jvm.gc_pauses > 0, found.jvm.gc_ms > 0, 0 <= (found.jvm.gc_share or 0) <= 1) == (True, True, True)
    assert found.jvm.process is not None
    assert found.jvm.process.resident_bytes > found.jvm.nonheap_used
    assert found.jvm.process.cpu_ms > 1_000
    assert found.driver.resident_bytes > 10_000_000
    assert found.workers.resident_bytes >= found.workers.largest_bytes > 1_000_000
    assert found.workers.cpu_ms > 0
    (executor,) = found.executors.items()
    assert executor[0] == "driver"
    assert (executor[1].tasks > 0, executor[1].task_ms > 0, executor[1].failed_tasks) == (True, True, 0)
    assert sum(found.stage_ms.values()) > 0
    assert any(stage.endswith("doubled") for stage in found.stage_ms)


@pytest.mark.usefixtures("sampled")
def test_a_long_epoch_is_measured_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """The status is written by the thread that measures; epochs and their record are as ever."""
    seen = list[Resources | None]()
    waiting = threading.Event()

    def slow(epoch: EpochProgress) -> None:
        # Its status is written; the next epoch's thread is busy here.
        for _ in range(100):
            status = read_status(JobStore.open(str(tmp_path / "store")), epoch.job)
            assert status is not None
            if status.resources is not None:
                seen.append(status.resources)
                break
            waiting.wait(0.1)

    stream = tm.source("e", tm.from_elements(epochs=[[("a", 1)]], schema="k STRING, t BIGINT"), watermarks=IN_ORDER)
    result = tm.run(a_job(tmp_path / "store", stream), spark=spark, on_epoch=slow, handle_signals=False)
    assert len(seen) == len(result.epochs) == 1
    left = read_status(JobStore.open(str(tmp_path / "store")), "job")
    assert left is not None
    assert left.state == "finished"


def test_a_measurement_is_one_call_and_counts_what_tasks_do(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = JvmMeter(spark)
    try:
        before = meter.sample().executors.get("driver")
        spark.range(0, 1_000, numPartitions=4).repartition(3).write.parquet(str(tmp_path / "rows"))
        spark.read.parquet(str(tmp_path / "rows")).selectExpr("sum(id)").collect()
        used = _when(lambda: meter.sample().executors.get("driver"), lambda use: use is not None and use.tasks >= 4 + 3 + 1 + 1)
        assert before is None, "other jobs' tasks are not counted"
        assert used.output_bytes > 1_000
        assert used.input_bytes > 0
        assert used.shuffle_write_bytes > 0
        assert used.shuffle_read_bytes == used.shuffle_write_bytes
        assert (used.failed_tasks, used.memory_spilled_bytes, used.disk_spilled_bytes) == (0, 0, 0)
        assert used.cpu_ms <= used.task_ms * 2

        calls = []
        send = py4j.java_gateway.GatewayClient.send_command
        by_py4j = py4j.protocol.MEMORY_COMMAND_NAME

        def counted(client: Any, command: str, *args: Any, **kwargs: Any) -> Any:
            calls.extend([command] if not command.startswith(by_py4j) else [])
            return send(client, command, *args, **kwargs)

        monkeypatch.setattr(py4j.java_gateway.GatewayClient, "send_command", counted)
        meter.sample()
        assert len(calls) == 1, calls
    finally:
        monkeypatch.undo()
        meter.close()
    spark.range(0, 10, numPartitions=2).selectExpr("sum(id)").collect()
    SYSTEM_CLOCK.sleep(0.5)
    assert meter.sample().executors["driver"].tasks == used.tasks, "it listens no more"


def test_an_executor_that_is_gone_is_not_counted_any_more(spark: SparkSession) -> None:
    meter = JvmMeter(spark)
    try:
        spark.range(0, 10, numPartitions=2).selectExpr("sum(id)").collect()
        _when(lambda: meter.sample().executors, lambda found: "driver" in found)
        events = spark.sparkContext._jvm.org.apache.spark.scheduler  # type: ignore[union-attr]  # noqa: SLF001
        meter._meter.onExecutorRemoved(events.SparkListenerExecutorRemoved(0, "driver", "lost"))  # noqa: SLF001 - for this listener alone
        assert meter.sample().executors == {}
        # The ends of its tasks come later than its own.
        spark.range(0, 10, numPartitions=2).selectExpr("sum(id)").collect()
        SYSTEM_CLOCK.sleep(0.5)
        assert meter.sample().executors == {}
    finally:
        meter.close()


def test_spilled_bytes_are_counted(spark: SparkSession) -> None:
    meter = JvmMeter(spark)
    try:
        spark.conf.set("spark.sql.windowExec.buffer.in.memory.threshold", "2000")
        spark.conf.set("spark.sql.windowExec.buffer.spill.threshold", "2000")
        spark.range(0, 5_000, numPartitions=1).selectExpr("sum(id) OVER (PARTITION BY id % 2) AS s").selectExpr("max(s)").collect()
        used = _when(lambda: meter.sample().executors.get("driver"), lambda use: use is not None and use.disk_spilled_bytes > 0)
        assert used.memory_spilled_bytes > 0
    finally:
        spark.conf.unset("spark.sql.windowExec.buffer.in.memory.threshold")
        spark.conf.unset("spark.sql.windowExec.buffer.spill.threshold")
        meter.close()


def test_without_an_answer_a_run_goes_on_and_ends(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def no_answer(_: JvmMeter) -> None:
        asked.set()
        raise py4j.protocol.Py4JError("the JVM does not answer")

    monkeypatch.setattr(job_run, "measuring", functools.partial(measuring, seconds=0.01))
    monkeypatch.setattr(JvmMeter, "sample", no_answer)
    stream = tm.source("e", tm.from_elements(epochs=[[("a", 1)], [("b", 2)]], schema="k STRING, t BIGINT"), watermarks=IN_ORDER)
    result = tm.run(a_job(tmp_path / "store", stream), spark=spark, handle_signals=False)
    assert (len(result.epochs), asked.is_set()) == (2, True)
    status = read_status(JobStore.open(str(tmp_path / "store")), "job")
    assert status is not None
    assert (status.state, status.resources) == ("finished", None)
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD]


def _when(read: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    """Return what is read once it is as expected: Spark reports tasks to listeners a little later."""
    found = read()
    for _ in range(100):
        if done(found):
            return found
        SYSTEM_CLOCK.sleep(0.1)
        found = read()
    pytest.fail(f"still {found}")
