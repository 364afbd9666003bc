"""When a standby ends by itself, and what it leaves: it does not stay beside a job that nobody drives, and speaks for no driver."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.control.drivers import until
from tidemark.control.desired.spec_store import change_spec, require_spec
from tidemark.control.driver import driver
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.launch.run_folder import read_exit_status, run_folder, write_exit_status
from tidemark.control.launch.standby import wait_for_attempt
from tidemark.control.model.paths import SPECS, numbered
from tidemark.control.model.records import Attempt
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.standby_files import Standby, assign_attempt, read_standby, write_standby
from tidemark.errors import StoreError
from tidemark.state.log.heartbeat import Heartbeat, write_heartbeat
from tidemark.state.log.process_identity import process_start_token
from tidemark.state.log.records import OwnerInfo
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

T0 = 1_700_000_000_000
MINUTE = 60_000


class Hours(ManualClock):
    """Time in which something happens once a minute, and which ends after an hour."""

    def __init__(self, each_minute: Callable[[int], object] = lambda _: None) -> None:
        super().__init__(T0)
        self._each_minute = each_minute

    def sleep(self, seconds: float) -> None:
        before = self.now_ms()
        # A look is for a file, and this test for an hour: the pauses are longer here.
        super().sleep(seconds * 10)
        assert self.now_ms() < T0 + 60 * MINUTE, "the standby waits for ever"
        if before // MINUTE != self.now_ms() // MINUTE:
            self._each_minute(self.now_ms())


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    store = JobStore.open(str(tmp_path / "store"))
    change_spec(store, "fares", lambda _: JobSpec("fares", "fares:job", standby=True), by="ada", why="", clock=ManualClock(T0))
    return store


@pytest.fixture
def own_log() -> Iterator[None]:
    """Whatever a driver's ``main`` does to the log of its process is undone."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()


def waited(root: JobStore, folder: Path, clock: ManualClock, generation: SpecGeneration) -> int:
    """Return after how many minutes a standby ends that is handed nothing."""
    folder.mkdir()
    assert wait_for_attempt(root, generation, folder, clock=clock) is None
    return (clock.now_ms() - T0) // MINUTE


def beats(root: JobStore, at: int) -> None:
    write_heartbeat(root.at("fares"), Heartbeat(1, OwnerInfo("host-a", 7, "birth", "attempt-1"), at, 9))


def damage(root: JobStore) -> None:
    root.at("fares").put(numbered(SPECS, 1), b"{}")


def test_it_ends_where_nobody_drives_the_job_though_the_spec_is_damaged(root: JobStore, tmp_path: Path) -> None:
    generation = require_spec(root, "fares")
    damage(root)
    assert waited(root, tmp_path / "logs", Hours(), generation) == 10


def test_it_stays_beside_a_driver_whose_spec_is_damaged(root: JobStore, tmp_path: Path) -> None:
    generation = require_spec(root, "fares")
    damage(root)
    clock = Hours(lambda now: beats(root, now) if now < T0 + 30 * MINUTE else None)
    assert 39 <= waited(root, tmp_path / "logs", clock, generation) <= 40


def test_it_ends_where_the_store_is_away_for_good(root: JobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreError("the store does not answer", fix="wait")

    generation = require_spec(root, "fares")
    clock = Hours(lambda now: now > T0 + 20 * MINUTE and monkeypatch.setattr(JobStore, "get", away))
    beats(root, T0 + 20 * MINUTE)
    assert waited(root, tmp_path / "logs", clock, generation) == 30


@pytest.mark.usefixtures("own_log")
def test_one_that_ends_leaves_the_driver_s_exit_code(tmp_path: Path) -> None:
    """A standby of a generation that is not there ends at once, beside a driver that ended before."""
    log = tmp_path / "logs" / "driver.log"
    log.parent.mkdir()
    write_exit_status(log, pid=1, started="birth", code=75)
    arguments = ("--store", str(tmp_path / "store"), "--job", "fares", "--standby", "3", "--launcher", "local", "--log", str(log))
    code = driver.main(arguments)
    assert code == driver.TERMINAL
    assert read_exit_status(log, pid=1, started="birth") == 75
    assert json.loads(log.with_name("standby.exit").read_text())["code"] == code


@pytest.mark.usefixtures("own_log")
def test_one_that_was_handed_an_attempt_ends_as_its_driver(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "driver.log"
    log.parent.mkdir()
    own = Standby(os.getpid(), process_start_token(os.getpid()) or "", 3, ready=True)
    write_standby(log.parent, own)
    assert assign_attempt(log.parent, own, 7)
    arguments = ("--store", str(tmp_path / "store"), "--job", "fares", "--standby", "3", "--launcher", "local", "--log", str(log))
    assert driver.main(arguments) == driver.TERMINAL
    assert read_exit_status(log, pid=own.pid, started=own.started) == driver.TERMINAL


@pytest.mark.parametrize("text", ["{}", "[]", "null", '{"pid": 1, "started": "a", "generation": 3}', '{"pid": "x"}', "half a li", ""])
def test_a_file_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "standby.json").write_text(text)
    assert read_standby(tmp_path) is None


def test_a_driver_is_started_beside_a_file_that_says_nothing(tmp_path: Path) -> None:
    store = f"file://{tmp_path}/store"
    launcher, folder = LocalLauncher(tmp_path / "logs"), run_folder(store, "fares", tmp_path / "logs").logs
    folder.mkdir(parents=True)
    (folder / "standby.json").write_text("{}")
    handle = launcher.launch(
        SpecGeneration(3, 0, "ada", "", JobSpec("fares", "nowhere:job", standby=True)), Attempt(7, 3, 0, "ada", ""), store
    )
    until(lambda: launcher.probe(handle) == "gone", "the end of a driver whose attempt is not there")
