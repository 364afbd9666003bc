"""A submitted job over Kafka: its driver killed, started again, saved, restored into another job and rewound; no record lost or doubled."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import tidemark as tm
from tests.few_rows import FEW_ROWS
from tests.kafka.broker import NEEDS_JARS, connector_settings
from tests.kafka.fares import MINUTE, FareJob, Fares
from tests.savepoints.running import RunningJobs
from tests.seeds import only_long
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.state.status.log_folder import LOGS_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow, pytest.mark.crash]

JOB: Final = "fares"


def submitted() -> tm.Job:
    """Return the job as its drivers load it."""
    folder, topic, address = (os.environ[name] for name in ("FARES_FOLDER", "FARES_TOPIC", "FARES_BROKER"))
    return FareJob(Path(folder), topic, address, name=JOB).job()


@only_long
def test_a_job_that_runs_on(fares: Fares, job: FareJob, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOGS_VARIABLE, str(tmp_path / "logs"))
    jobs = RunningJobs(tmp_path)
    try:
        submit(jobs, job)
        grow(fares, 0)
        jobs.type_in("start", JOB)
        wait(jobs, fares)
        jobs.type_in("savepoint", "trigger", JOB, "--name", "good")
        assert "how long kafka keeps its input is not known here" in jobs.type_in("savepoint", "show", JOB, "good")
        good = job.panes()
        killed_and_started_again(jobs, fares)
        shown(jobs, fares)
        fares.topics.grow(fares.topic, 4)
        fares.send(3, *range(40 * MINUTE, 60 * MINUTE, MINUTE))
        grow(fares, 40)
        wait(jobs, fares, after_failures=True)
        agrees(job, fares)
        rewound(jobs, job, fares, good)
    finally:
        jobs.end()
    restored_into_another_job(job, fares, good, spark)


def submit(jobs: RunningJobs, job: FareJob) -> None:
    spec = JobSpec(
        JOB,
        "tests.kafka.test_running:submitted",
        trigger_ms=300,
        parallelism=2,
        master="local[2]",
        conf={**FEW_ROWS, **connector_settings(), "spark.ui.enabled": "false"},
        code_paths=(str(Path(__file__).parents[2]),),
        variables={"FARES_FOLDER": str(jobs.root), "FARES_TOPIC": job.topic, "FARES_BROKER": job.address},
    )
    JobClient(jobs.store, "ada").submit(spec)


def grow(fares: Fares, minute: int) -> None:
    """Send twenty minutes more to the first three partitions."""
    for partition in range(3):
        fares.send(partition, *range(minute * MINUTE, (minute + 20) * MINUTE, 15_000), zone=partition)


def read(jobs: RunningJobs) -> int:
    found = jobs.joblog(JOB).load().epoch
    return found.totals["sources"]["fares"]["read"] if found is not None else 0


def wait(jobs: RunningJobs, fares: Fares, *, after_failures: bool = False) -> None:
    def all_read() -> bool:
        seen = jobs.seen(JOB)
        assert after_failures or seen.control is None or seen.control.failures == ()
        driver = seen.current_driver_status
        return driver is not None and driver.totals["sources"].get("fares", {}).get("read", 0) >= len(fares.sent)

    jobs.wait_for(JOB, all_read, "the input's end")
    assert read(jobs) == len(fares.sent)


def killed_and_started_again(jobs: RunningJobs, fares: Fares) -> None:
    """Kill the driver while records come, and let a supervisor start another."""
    before = jobs.process(JOB)
    grow(fares, 20)
    jobs.launcher.kill(before)

    def another() -> bool:
        jobs.type_in("supervise", "--once")
        found = jobs.seen(JOB)
        return found.process == "alive" and found.handle != before

    jobs.wait_for(JOB, another, "another driver")
    wait(jobs, fares, after_failures=True)


def shown(jobs: RunningJobs, fares: Fares) -> None:
    """Check that what people look at has the source with its partitions, and what waits: nothing any more."""
    jobs.wait_for(JOB, lambda: rows_waiting(jobs) == 0, "word that nothing waits")
    waiting = json.loads(jobs.type_in("status", JOB, "--json"))["driver"]["load"]["waiting"]["fares"]
    assert waiting["splits"] == {f"{fares.topic}-{partition}": 0 for partition in range(3)}
    page = jobs.type_in("top", JOB, "--frames", "1")
    print(page)
    assert "0 rows" in page
    for partition in range(3):
        assert f"{fares.topic}-{partition}" in page
    print(jobs.type_in("status", JOB))


def rows_waiting(jobs: RunningJobs) -> int | None:
    """Return how many records wait of the source, as scripts see it."""
    found = json.loads(jobs.type_in("status", JOB, "--json"))["driver"]["load"]["waiting"]
    rows: int | None = found.get("fares", {}).get("rows")
    return rows


def agrees(job: FareJob, fares: Fares) -> None:
    """Check the windows that are out: each once, with all that was sent of it."""
    newest: dict[tuple[object, object], tuple[object, ...]] = {}
    seen: set[tuple[object, ...]] = set()
    for zone, start, _, index, *results in job.panes():
        assert (zone, start, index) not in seen
        seen.add((zone, start, index))
        newest[(zone, start)] = tuple(results[:2])
    expected: dict[tuple[object, object], list[int]] = {}
    for fare in fares.sent:
        assert fare.at is not None
        expected.setdefault((fare.zone, fare.at // (10 * MINUTE) * 10 * MINUTE), []).append(fare.amount)
    assert newest
    for window, found in newest.items():
        # Zone 7 is the added partition's, which may come when its windows are closed.
        assert found == (len(expected[window]), sum(expected[window])) or window[0] == 7


def rewound(jobs: RunningJobs, job: FareJob, fares: Fares, good: list[tuple[object, ...]]) -> None:
    """Check that tables and positions go back together, and that all records after come again."""
    before = job.panes()
    assert before != good
    jobs.type_in("rewind", JOB, "--to", "good", "--stop")
    assert job.panes() == good
    jobs.type_in("start", JOB)
    wait(jobs, fares, after_failures=True)
    # Cut into other epochs, what was late may be another's.
    agrees(job, fares)
    jobs.type_in("stop", JOB)


def restored_into_another_job(job: FareJob, fares: Fares, good: list[tuple[object, ...]], spark: SparkSession) -> None:
    """Check that another job goes on where the savepoint was, with what it had open."""
    other = FareJob(job.folder, job.topic, job.address, name="what-if")
    other.run(spark, restore=tm.Restore("good", job=JOB))
    assert sum(epoch.rows_in for epoch in other.seen) == len(fares.sent) - 240
    other.run(spark, end_of_input=True)
    out = {(pane[0], pane[1]) for pane in good}
    assert out
    assert out.isdisjoint({(pane[0], pane[1]) for pane in other.panes() if pane[3] == 0})
    agrees(other, fares)
