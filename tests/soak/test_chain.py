"""Postgres, its changes joined with a Kafka topic, running totals in Postgres and Delta: while drivers, broker and server are killed.

``make soak`` runs it. ``CHAIN_SECONDS`` says how long things are killed for, ``CHAIN_SEED`` which. All changes keep the sum of the
balances, so every version of the Delta table and every snapshot of the Postgres table has it.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Final

import psycopg
import pytest
from deltalake import DeltaTable

from tests.control.drivers import until
from tests.control.log_assertions import require_single_starts, terms
from tests.few_rows import FEW_ROWS
from tests.kafka.broker import NEEDS_JARS, Broker, connector_settings, jars, start_broker
from tests.kafka.topic_records import create_topic
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.soak.chain_input import ACCOUNTS, PARTITIONS, TOPIC, TOTAL, Bank, Moves, make_bank, newest_branches, running
from tests.soak.chaos import Kill, Target, kill_driver
from tests.soak.keepers import Keeper, logs_folder
from tests.soak.recovery import outages
from tests.soak.streams import CALM
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.client.job_client import JobClient
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.model.spec import JobSpec
from tidemark.control.observed.observe import Observation, observe, read_control_status
from tidemark.state.status.log_folder import LOGS_VARIABLE
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

SECONDS: Final = float(os.environ.get("CHAIN_SECONDS", "1800"))
SEED: Final = int(os.environ.get("CHAIN_SEED", "7"))
LEAST_EVERY_SECONDS: Final = 18.0
"""So many seconds have a kill at least: 100 of them in half an hour."""

EVERY_SECONDS: Final = 15.0
"""From one kill to the next, on average."""

JOB: Final = "chain"
CODE: Final = Path(__file__).with_name("chain_code")
_SNAPSHOT_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 600.0
"""For a start, or an end, on a machine that has other work."""
_KILLS_PER_LINE: Final = 10

pytestmark = [
    NEEDS_JARS,
    NEEDS_POSTGRES,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif("CHAIN_SECONDS" not in os.environ, reason="it takes minutes: make soak"),
    pytest.mark.timeout(2 * SECONDS + 2_400),
]

Totals = dict[str, tuple[int, int]]
"""How many accounts a branch has, and the sum of their balances."""


class Chain:
    """The job, what it reads and writes, and what keeps it running, in a folder."""

    def __init__(self, root: Path, broker: Broker, server: Server) -> None:
        self.root, self.broker, self.server = root, broker, server
        self.store = JobStore.open(str(root / "store"))
        self.launcher = LocalLauncher(logs_folder(root))
        self.client = JobClient(self.store, "ada")
        variables = {"CHAIN_KAFKA": broker.address, "CHAIN_LAKE": str(root / "lake")}
        self.client.submit(
            JobSpec(
                JOB,
                "bank_chain:chain",
                trigger_ms=500,
                parallelism=1,
                master="local[1]",
                conf={**FEW_ROWS, **connector_settings(), "spark.ui.enabled": "false"},
                code_paths=(str(CODE),),
                variables=variables,
                restart=CALM,
            )
        )
        command = [str(Path(sys.executable).with_name("tidemark")), "supervise", "--store", self.store.uri, "--every", "1 second"]
        # The connection string is no variable of the spec: it is a secret.
        secret = {"CHAIN_DSN": server.dsn(), LOGS_VARIABLE: str(logs_folder(root))}
        self.supervisor = Keeper("supervisor", command, root, secret)

    def observed(self) -> Observation:
        """Return what is known of the driver.

        Raises:
            AssertionError: the job has failed for good, or the supervisor has ended.
        """
        assert self.supervisor.is_alive, self.supervisor.log.read_text()
        status = read_control_status(self.store, JOB)
        assert status is None or status.lifecycle != "failed", (read_status(self.store, JOB), status)
        return observe(self.store, JOB, {"local": self.launcher})

    def wait_for_epoch(self) -> None:
        """Wait until the newest driver has committed an epoch."""

        def committed() -> bool:
            seen = self.observed().current_driver_status
            return seen is not None and seen.load is not None

        until(committed, "an epoch", seconds=_PATIENCE_SECONDS)

    def drain(self) -> None:
        """Let the job read what is there, and end."""
        self.client.stop(JOB, "drain")

        def finished() -> bool:
            self.observed()
            status = read_control_status(self.store, JOB)
            return status is not None and status.lifecycle == "finished"

        until(finished, "the end of the job", seconds=_PATIENCE_SECONDS)
        assert self.supervisor.end(_PATIENCE_SECONDS) == 0

    def end(self) -> None:
        """End what is left, whatever happened."""
        self.supervisor.kill(whole=True)
        handle = observe(self.store, JOB, {"local": self.launcher}).handle
        if handle is not None:
            self.launcher.kill(handle)


@contextmanager
def chained(root: Path) -> Iterator[Chain]:
    folder = jars()
    assert folder is not None
    (root / "broker").mkdir()
    with ExitStack() as stack:
        broker = start_broker(root / "broker", folder / "broker")
        stack.callback(broker.stop)
        server = Server.make()
        stack.callback(server.remove)
        server.start()
        make_bank(server)
        create_topic(broker.address, TOPIC, partitions=PARTITIONS)
        chain = Chain(root, broker, server)
        stack.callback(chain.end)
        yield chain


class Snapshots:
    """Reads the Postgres table again and again, and keeps what it summed up to."""

    def __init__(self, server: Server) -> None:
        self.sums: Counter[tuple[int, int]] = Counter()
        self._server = server

    def run(self, ended: threading.Event) -> None:
        """Read until it is to end; a server that is away is asked again."""
        while not ended.wait(_SNAPSHOT_SECONDS):
            with suppress(psycopg.OperationalError, psycopg.errors.UndefinedTable):
                ((accounts, total),) = self._server.query("SELECT sum(accounts)::bigint, sum(total)::bigint FROM bank.totals")
                if accounts is not None:
                    self.sums[accounts, total] += 1


class Killer:
    """Kills one thing at a time: the driver, the broker, or the server; what nobody else starts again, it does."""

    def __init__(self, chain: Chain, chance: random.Random) -> None:
        self.kills: list[Kill] = []
        self._chain = chain
        self._chance = chance
        self._next: list[str] = []

    @property
    def counts(self) -> Counter[str]:
        """How many of each were killed."""
        return Counter(kill.what for kill in self.kills)

    @property
    def said(self) -> str:
        """The numbers of kills, for who reads the run."""
        return f"{len(self.kills)} kills: {dict(sorted(self.counts.items()))}"

    def kill_for(self, seconds: float) -> None:
        """Kill something every so often, at moments that differ; longer than the time given if too few were killed in it."""
        begun = at = SYSTEM_CLOCK.monotonic()
        while at < begun + seconds or len(self.kills) < seconds / LEAST_EVERY_SECONDS:
            # What a kill takes is no part of the pause, or there would be fewer on a busy machine.
            at = max(at + self._chance.uniform(0.2, 1.8) * EVERY_SECONDS, SYSTEM_CLOCK.monotonic())
            SYSTEM_CLOCK.sleep(max(at - SYSTEM_CLOCK.monotonic(), 0))
            self.strike()
            if len(self.kills) % _KILLS_PER_LINE == 0:
                print(f"after {SYSTEM_CLOCK.monotonic() - begun:.0f} s: {self.said}", flush=True)

    def strike(self) -> None:
        """Kill something: of four kills two are of drivers, one is of the broker, one of the server."""
        if not self._next:
            self._next = self._chance.sample(("driver", "driver", "broker", "server"), 4)
        what, at = self._next.pop(), SYSTEM_CLOCK.now_ms()
        if what == "driver":
            what = self._kill_driver() or self._chance.choice(("broker", "server"))
        if what == "broker":
            self._chain.broker.restart()
        elif what == "server":
            self._chain.server.kill()
            self._chain.server.start()
        self.kills.append(Kill(at, what, JOB if what.startswith("driver") else ""))

    def _kill_driver(self) -> str | None:
        """Kill the driver, seldom before its first epoch: it would never come to one; returns what was killed of it."""
        seen = self._chain.observed()
        began = seen.current_driver_status is not None and seen.current_driver_status.load is not None
        target: Target = self._chance.choice(("python", "jvm", "session"))
        if seen.process != "alive" or seen.handle is None or seen.handle.pid is None or not (began or self._chance.random() < 0.2):
            return None
        kill_driver(seen.handle.pid, target)
        return f"driver ({target})"


def test_sums_stay_in_minutes_of_kills(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with chained(tmp_path) as chain:
        bank = Bank(chain.server, random.Random(SEED))
        moves, snapshots = Moves(chain.broker.address, bank, random.Random(SEED)), Snapshots(chain.server)
        killer = Killer(chain, chance)
        begun = SYSTEM_CLOCK.monotonic()
        try:
            with running(snapshots.run):
                with running(bank.run, moves.run):
                    chain.wait_for_epoch()
                    killer.kill_for(SECONDS)
                    chain.wait_for_epoch()
                chain.drain()
        finally:
            print(f"{SYSTEM_CLOCK.monotonic() - begun:.0f} s, seed {SEED}; {killer.said}", flush=True)
        report(chain, killer, bank, moves, snapshots)
        assert len(killer.kills) >= SECONDS / LEAST_EVERY_SECONDS
        assert moves.lost == []
        require_single_starts(chain.store, JOB, [chain.supervisor.log])
        require_sums(chain, snapshots)
        require_ends(chain, moves)
        print("every version of the Delta table, every snapshot of the Postgres table and both ends are as they have to be")


def require_sums(chain: Chain, snapshots: Snapshots) -> None:
    """Check that nobody has ever seen another sum than that of all balances."""
    assert set(snapshots.sums) == {(ACCOUNTS, TOTAL)}
    found = [totals_of(rows_of(chain.root / "lake", version)) for version in range(DeltaTable(str(chain.root / "lake")).version() + 1)]
    first = next(number for number, totals in enumerate(found) if totals)
    sums = [(sum(accounts for accounts, _ in totals.values()), sum(total for _, total in totals.values())) for totals in found[first:]]
    assert set(sums) == {(ACCOUNTS, TOTAL)}, [version + first for version, each in enumerate(sums) if each != (ACCOUNTS, TOTAL)]
    assert len(sums) > 1


def require_ends(chain: Chain, moves: Moves) -> None:
    """Check that both ends are what the inputs are in the end, computed at once."""
    branches, records = newest_branches(chain.broker.address)
    assert records == moves.sent
    expected: Totals = {}
    for account, balance in chain.server.query("SELECT id, balance FROM bank.accounts"):
        branch = branches.get(account) or "none"
        accounts, total = expected.get(branch, (0, 0))
        expected[branch] = (accounts + 1, total + balance)
    assert sum(total for _, total in expected.values()) == TOTAL
    assert totals_of(rows_of(chain.root / "lake")) == expected
    assert totals_of(chain.server.query("SELECT branch, accounts, total FROM bank.totals")) == expected
    status = read_status(chain.store, JOB)
    assert status is not None
    assert status.totals["sources"]["moves"]["read"] == records, "every record was read, once"


def rows_of(lake: Path, version: int | None = None) -> list[tuple[str, int, int]]:
    """Return the rows of a version of the Delta table."""
    rows = DeltaTable(str(lake), version=version).to_pyarrow_table().to_pylist()
    return [(row["branch"], row["accounts"], row["total"]) for row in rows]


def totals_of(rows: list[tuple[str, int, int]]) -> Totals:
    found = {branch: (accounts, total) for branch, accounts, total in rows}
    assert len(found) == len(rows), "a branch is there twice"
    return found


def report(chain: Chain, killer: Killer, bank: Bank, moves: Moves, snapshots: Snapshots) -> None:
    """Print what happened, for who reads the run."""
    found = terms(chain.store, JOB)
    away = outages(found, killer.kills, JOB) or [0]
    versions = DeltaTable(str(chain.root / "lake")).version() + 1
    print(
        f"{bank.transfers} transfers, {moves.sent} moves; {len(found)} terms, {sum(len(term.epochs) for term in found)} epochs; "
        f"{versions} versions of the Delta table and {sum(snapshots.sums.values())} snapshots of the Postgres table\n"
        f"from the kill of a driver to the next epoch: {median(away) / 1000:.1f} s (at most {max(away) / 1000:.1f} s)"
    )
