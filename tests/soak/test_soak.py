"""Minutes of kills: three jobs that run on, while drivers, the supervisor and the Dagster daemon are killed at random.

``make soak`` runs it. ``SOAK_SECONDS`` says how long things are killed for, ``SOAK_SEED`` which.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median

import pytest

import tidemark as tm
from tests.control.drivers import until
from tests.control.log_assertions import Term, require_single_starts, terms
from tests.http_server import http_server
from tests.soak.chaos import Chaos, left_behind
from tests.soak.keepers import Keeper, daemon, logs_folder, sensor_log, supervisor
from tests.soak.recovery import outages, recoveries
from tests.soak.streams import JOBS, Feeder, feeding, spec_of, table, write_code
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.alerts.engine.alert_store import read_alerts
from tidemark.control.client.job_client import JobClient
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.observed.observe import observe, read_control_status
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
SEED = int(os.environ.get("SOAK_SEED", "7"))
EVERY_SECONDS = 11.0
"""From one kill to the next: 54 of them in ten minutes."""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.dagster,
    pytest.mark.slow,
    pytest.mark.skipif("SOAK_SECONDS" not in os.environ, reason="it takes minutes: make soak"),
    pytest.mark.timeout(SECONDS + 1_200),
]

Heard = list[tuple[str, dict[str, str], bytes]]


class Soak:
    """The jobs and who keeps them, in a folder."""

    def __init__(self, root: Path, ears: str) -> None:
        self.root = root
        for name in ("in", "out"):
            (root / name).mkdir()
        write_code(root)
        self.store = JobStore.open(str(root / "store"))
        self.launcher = LocalLauncher(logs_folder(root))
        self.client = JobClient(self.store, "ada")
        for job in JOBS:
            self.client.submit(spec_of(root, job))
        self.keepers: Sequence[Keeper] = (supervisor(root, self.store.uri, ears), daemon(root, self.store.uri))

    def lifecycles(self) -> set[str]:
        statuses = (read_control_status(self.store, job) for job in JOBS)
        return {status.lifecycle if status is not None else "unseen" for status in statuses}

    def keep(self) -> None:
        for keeper in self.keepers:
            keeper.keep()

    def wait_until_all_work(self) -> None:
        """Wait until every job runs and has committed an epoch of its newest attempt."""

        def work() -> bool:
            self.keep()
            seen = [observe(self.store, job, {"local": self.launcher}) for job in JOBS]
            return all(item.current_driver_status is not None and item.current_driver_status.load is not None for item in seen)

        until(work, "an epoch of each job", seconds=180)

    def wait_until_finished(self) -> None:
        def finished() -> bool:
            self.keep()
            return self.lifecycles() == {"finished"}

        until(finished, "the end of all jobs", seconds=300)

    def end(self) -> None:
        """End what is left, whatever happened."""
        for keeper in self.keepers:
            keeper.kill(whole=True)
        for job in JOBS:
            handle = observe(self.store, job, {"local": self.launcher}).handle
            if handle is not None:
                self.launcher.kill(handle)


@contextmanager
def soaking(root: Path) -> Iterator[tuple[Soak, Heard]]:
    with ExitStack() as stack:
        url, heard = stack.enter_context(http_server())
        soak = Soak(root, url)
        stack.callback(soak.end)
        yield soak, heard


def test_nothing_is_lost_in_minutes_of_kills(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    with soaking(tmp_path) as (soak, heard):
        feeder = Feeder(tmp_path, SEED)
        chaos = Chaos(soak.store, {"local": soak.launcher}, soak.keepers, random.Random(SEED))
        with feeding(feeder):
            soak.wait_until_all_work()
            kill_for(soak, chaos, SECONDS)
            soak.wait_until_all_work()
            ended_at = SYSTEM_CLOCK.now_ms()
        for job in JOBS:
            soak.client.stop(job, "drain")
        soak.wait_until_finished()
        until(lambda: all(not read_alerts(soak.store, job).alerts.outbox for job in JOBS), "the last messages", seconds=120)
        assert [keeper.end() for keeper in soak.keepers] == [0, 0]
        until(lambda: left_behind(tmp_path) == [], "the end of all processes", seconds=90)
        require_alerts_heard(soak, heard)
    logs = [*(keeper.log for keeper in soak.keepers), sensor_log(tmp_path)]
    found = {job: (require_single_starts(soak.store, job, logs), terms(soak.store, job))[1] for job in JOBS}
    report(soak.store, chaos, found, ended_at)
    require_recovered(soak.store, chaos, found, ended_at)
    require_tables(tmp_path, feeder, request, monkeypatch)


def kill_for(soak: Soak, chaos: Chaos, seconds: float) -> None:
    """Kill something every few seconds; what keeps the jobs is started again a second or so later."""
    clock = SYSTEM_CLOCK
    end = clock.monotonic() + seconds
    due = clock.monotonic()
    while clock.monotonic() < end:
        if clock.monotonic() >= due:
            chaos.strike()
            due += EVERY_SECONDS
        clock.sleep(1)
        soak.keep()


def require_alerts_heard(soak: Soak, heard: Heard) -> None:
    """Check that every message that was ever decided on was heard, and that restarts in a row were told."""
    numbers, rules = defaultdict[str, set[int]](set), defaultdict[str, set[str]](set)
    for _, _, body in heard:
        facts = json.loads(body)["facts"]
        for told in facts.get("messages", [facts]):
            numbers[told["job"]].add(int(told["notification"]))
            rules[told["job"]] |= {change["rule"] for change in told["changes"]}
    for job in JOBS:
        kept = read_alerts(soak.store, job).alerts
        waiting = {item.notification.number for item in kept.outbox}
        assert numbers[job] | waiting == set(range(1, kept.notified + 1)), f"{job}: messages were lost"
        status = read_control_status(soak.store, job)
        assert status is not None
        if len(status.failures) >= 3:
            assert "restarts" in rules[job], f"{job} failed {len(status.failures)} times, and nobody was told"
    print(f"messages heard: {len(heard)}, by job { ({job: len(numbers[job]) for job in JOBS}) }")


def require_recovered(store: JobStore, chaos: Chaos, found: Mapping[str, Sequence[Term]], ended_at: int) -> None:
    slow = [item for job in JOBS for item in recoveries(store, job, found[job], chaos.kills, ended_at) if item.too_slow]
    assert slow == [], "the lag was not back to normal within two triggers plus Spark's start"


def report(store: JobStore, chaos: Chaos, found: Mapping[str, Sequence[Term]], ended_at: int) -> None:
    """Print what happened, for who reads the run."""
    print(f"{len(chaos.kills)} kills in {SECONDS:g} s, seed {SEED}: {dict(sorted(chaos.counts.items()))}")
    for job in JOBS:
        back = recoveries(store, job, found[job], chaos.kills, ended_at)
        caught_up = [item.caught_up_ms for item in back if item.caught_up_ms is not None]
        away = outages(found[job], chaos.kills, job) or [0]
        print(
            f"{job}: {len(found[job])} terms, {sum(len(term.epochs) for term in found[job])} epochs; Spark's start "
            f"{median(item.spark_ms for item in back) / 1000:.1f} s, then a usual lag after {median(caught_up) / 1000:.1f} s "
            f"(at most {max(caught_up) / 1000:.1f} s); kill to next epoch {median(away) / 1000:.1f} s (at most {max(away) / 1000:.1f} s)"
        )


def require_tables(root: Path, feeder: Feeder, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the tables against those of a run of the same input that nobody disturbs."""
    monkeypatch.setenv("SOAK_ROOT", str(root))
    monkeypatch.setenv("SOAK_OUT", str(root / "calm"))
    monkeypatch.syspath_prepend(str(root / "code"))
    module = import_module("soak_jobs")
    session = request.getfixturevalue("spark")
    try:
        for job in JOBS:
            tm.run(getattr(module, job)(), store=str(root / "calm-store"), spark=session, end_of_input=True)
            assert table(root / "out", job) == table(root / "calm", job), f"{job}: another table than that of the undisturbed run"
    finally:
        sys.modules.pop("soak_jobs", None)
    store = JobStore.open(str(root / "store"))
    for job in JOBS:
        status = read_status(store, job)
        assert status is not None
        assert status.totals["sources"]["events"]["read"] == feeder.rows, "every row was read, once"
        assert status.totals["operators"][job]["late"] == 0
