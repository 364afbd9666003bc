from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Protocol

import pytest

from tidemark.errors import FormatError, JobRunningError
from tidemark.state.log.heartbeat import Heartbeat, read_heartbeat, write_heartbeat
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner, is_known_dead, process_start_token
from tidemark.state.log.records import OwnerInfo
from tidemark.state.store.layout import HEARTBEAT


class Clock(Protocol):
    now: int


def test_a_fresh_heartbeat_refuses_and_names_host_pid_run_and_age(
    log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock
) -> None:
    log.acquire(elsewhere)
    clock.now += 29_000
    with pytest.raises(JobRunningError, match=r"process 4711 on host 'another-host', run run-2; its last heartbeat is 29s old.*Fix: "):
        log.acquire(owner)


def test_a_heartbeat_a_lease_old_is_stale(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock) -> None:
    log.acquire(elsewhere)
    clock.now += 30_000
    driver = log.acquire(owner)
    assert driver.term == 2
    claim = log.load().claim
    assert claim is not None
    assert claim.takeover_of is None


def test_beating_keeps_it_fresh(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock) -> None:
    driver = log.acquire(elsewhere)
    for _ in range(5):
        clock.now += 20_000
        driver.beat()
    clock.now += 29_000
    with pytest.raises(JobRunningError):
        log.acquire(owner)


def test_the_lease_is_the_callers(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock) -> None:
    log.acquire(elsewhere)
    clock.now += 5_000
    assert log.acquire(owner, lease_ms=5_000).term == 2


def test_a_released_job_is_free_at_once_and_stays_released(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo) -> None:
    driver = log.acquire(elsewhere)
    driver.release()
    driver.beat()
    beat = read_heartbeat(log.store)
    assert beat is not None
    assert beat.released
    assert log.acquire(owner).term == 2


def test_takeover_on_purpose_says_of_whom(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo) -> None:
    log.acquire(elsewhere)
    log.acquire(owner, takeover=True)
    claim = log.load().claim
    assert claim is not None
    assert (claim.term, claim.takeover_of, claim.owner) == (2, 1, owner)


def test_a_heartbeat_from_the_future_counts_by_its_distance(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock) -> None:
    log.acquire(elsewhere)
    clock.now -= 10_000
    with pytest.raises(JobRunningError, match="0ms old"):
        log.acquire(owner)
    clock.now -= 60_000
    assert log.acquire(owner).term == 2


def test_a_late_heartbeat_of_a_fenced_driver_does_not_hide_the_new_one(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo) -> None:
    log.acquire(owner)
    log.acquire(elsewhere, takeover=True)
    write_heartbeat(log.store, Heartbeat(1, owner, log.clock.now_ms(), 0, released=True))
    with pytest.raises(JobRunningError, match="another-host"):
        log.acquire(owner)


def test_a_newer_releases_heartbeat_is_not_overrun(log: JobLog, owner: OwnerInfo) -> None:
    log.acquire(owner).release()
    log.store.put(HEARTBEAT, b'{"format":2}')
    with pytest.raises(FormatError):
        log.acquire(owner)


def test_a_living_process_of_this_host_is_alive(owner: OwnerInfo) -> None:
    assert not is_known_dead(owner)
    assert not is_known_dead(replace(owner, started=""))


def test_a_killed_process_frees_the_job_at_once(log: JobLog, owner: OwnerInfo) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        victim = replace(owner, pid=child.pid, started=process_start_token(child.pid) or "")
        log.acquire(victim)
        with pytest.raises(JobRunningError, match=f"process {child.pid}"):
            log.acquire(owner)
        child.kill()
        # Dead but not reaped yet is dead: wait for the end without reaping.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_known_dead(victim)
        assert log.acquire(owner).term == 2
    finally:
        child.kill()
        child.communicate()
    assert is_known_dead(victim)


def test_a_reused_pid_is_another_process(log: JobLog, owner: OwnerInfo) -> None:
    log.acquire(replace(owner, started="an-earlier-boot:1"))
    assert log.acquire(owner).term == 2


def test_nothing_is_known_of_processes_on_other_hosts(elsewhere: OwnerInfo) -> None:
    assert not is_known_dead(replace(elsewhere, pid=2**22 + 1))


def test_this_process_is_the_current_owner() -> None:
    owner = current_owner("r")
    assert (owner.pid, owner.run_id) == (os.getpid(), "r")
    assert owner.started == process_start_token(os.getpid())
