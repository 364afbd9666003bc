"""Two supervisors, and the sensor called in a loop, on the same jobs for a while, as processes: never two drivers, never a double start.

Drivers are real processes with real job logs, without Spark. ``TOGETHER_SECONDS`` says for how long, ``TOGETHER_SEED`` what happens.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dagster as dg
import pytest

from tests.control.drivers import until
from tests.control.log_assertions import require_single_starts, terms
from tests.control.sparkless_driver import CHECKOUT, SparklessLauncher
from tests.seeds import PROFILE
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec, RestartPolicy
from tidemark.control.observed.observe import observe, read_control_status
from tidemark.sensors.reconcile import build_reconcile_sensor
from tidemark.state.log.process_identity import is_known_dead
from tidemark.state.store.store import JobStore

pytestmark = [pytest.mark.dagster, pytest.mark.slow]

SECONDS = float(os.environ.get("TOGETHER_SECONDS", "20" if PROFILE == "long" else "8"))
SEED = int(os.environ.get("TOGETHER_SEED", "5"))
JOBS = ("fares", "rides", "tips")
CALM = RestartPolicy(initial_ms=100, longest_ms=500, same_epoch_failures=0)


class Supervisors:
    """Two supervisors that are started again when they were killed."""

    def __init__(self, store: JobStore, folder: Path) -> None:
        self._command = [sys.executable, "-m", "tests.control.supervising", store.uri, str(folder)]
        self.logs = [folder / "supervisor-1.log", folder / "supervisor-2.log"]
        self.running = [self._start(log) for log in self.logs]

    def keep(self) -> None:
        for number, process in enumerate(self.running):
            if process.poll() is not None:
                self.running[number] = self._start(self.logs[number])

    def kill(self, number: int) -> None:
        self.running[number].kill()
        self.running[number].wait()

    def close(self) -> None:
        for number in range(len(self.running)):
            self.kill(number)

    def _start(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            return subprocess.Popen(self._command, cwd=CHECKOUT, stdout=out, stderr=out)


class Together:
    """The jobs, who looks after them, and what happens to both."""

    def __init__(self, store: JobStore, folder: Path, chance: random.Random) -> None:
        self.store = store
        self.launcher = SparklessLauncher(folder)
        self.supervisors = Supervisors(store, folder)
        self.chance = chance
        self.client = JobClient(store, "ada")
        self.kills = 0

    def happen(self) -> None:
        """Let one thing happen."""
        job, kind = (
            self.chance.choice(JOBS),
            self.chance.choice(("driver", "driver", "driver", "freeze", "restart", "suspend", "supervisor")),
        )
        handle = observe(self.store, job, {"local": self.launcher}).handle
        if kind == "supervisor":
            self.supervisors.kill(self.chance.randrange(2))
            self.kills += 1
        elif kind == "restart":
            self.client.restart(job)
        elif kind == "suspend":
            self.client.stop(job, self.chance.choice(("finish", "now")))
            self.client.start(job)
        elif handle is not None and kind == "freeze":
            self.launcher.send(handle, signal.SIGSTOP)
            SYSTEM_CLOCK.sleep(0.2)
            self.launcher.send(handle, signal.SIGCONT)
        elif handle is not None:
            self.launcher.kill(handle)
            self.kills += 1

    def kill_drivers(self) -> None:
        for job in JOBS:
            handle = observe(self.store, job, {"local": self.launcher}).handle
            if handle is not None:
                self.launcher.kill(handle)

    @property
    def all_run(self) -> bool:
        statuses = [read_control_status(self.store, job) for job in JOBS]
        return all(status is not None and status.lifecycle == "running" for status in statuses)

    @property
    def all_ended(self) -> bool:
        seen = [observe(self.store, job, {"local": self.launcher}) for job in JOBS]
        return all(item.control is not None and item.control.lifecycle == "finished" and item.process != "alive" for item in seen)


@contextmanager
def together(folder: Path) -> Iterator[Together]:
    store = JobStore.open(str(folder / "store"))
    with ExitStack() as stack:
        found = Together(store, folder, random.Random(SEED))
        stack.callback(found.supervisors.close)
        stack.callback(found.kill_drivers)
        yield found


@pytest.mark.timeout(SECONDS + 300)
def test_never_two_drivers_and_never_a_double_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidemark")
    with together(tmp_path) as world:
        for job in JOBS:
            world.client.submit(JobSpec(job, f"{job}:job", restart=CALM))
        sensor = build_reconcile_sensor(world.store.uri, launchers=lambda: {"local": world.launcher})
        clock, tick = SYSTEM_CLOCK, 0
        end = clock.monotonic() + SECONDS
        while clock.monotonic() < end:
            with dg.build_sensor_context() as context:
                assert isinstance(sensor(context), dg.SensorResult)
            tick += 1
            if tick % 4 == 0:
                world.happen()
            world.supervisors.keep()
            clock.sleep(world.chance.uniform(0, 0.2))
        world.supervisors.keep()
        until(lambda: world.all_run, "calm", seconds=120)
        for job in JOBS:
            world.client.stop(job, "drain")
        until(lambda: world.all_ended, "the end of all drivers", seconds=120)
        world.supervisors.close()
    assert world.kills >= SECONDS / 4
    sensors = tmp_path / "sensor.log"
    sensors.write_text("\n".join(record.getMessage() for record in caplog.records), encoding="utf-8")
    for job in JOBS:
        attempts = require_single_starts(world.store, job, [*world.supervisors.logs, sensors])
        begun = terms(world.store, job)
        assert len(begun) <= attempts, "an attempt has a term at most"
        assert all(is_known_dead(term.record.owner) for term in begun), "no process is left"
        assert begun[-1].epochs[-1].progress.end_of_input
        print(f"{job}: {attempts} attempts, {len(begun)} terms, {sum(len(term.epochs) for term in begun):,} epochs")
    print(f"{world.kills} kills in {SECONDS:g} s, seed {SEED}, {tick} ticks of the sensor")
