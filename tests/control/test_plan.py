"""The plan as a table: one row per situation, with the actions that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tidemark.control.model.records import Attempt, Claim, ControlStatus, Failure, ProcessHandle, Suspicion
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.observed.observe import Observation
from tidemark.control.reconcile.actions import AbandonAttempt, Action, Kill, LaunchAttempt, RequestStop, WriteStatus
from tidemark.control.reconcile.plan import plan
from tidemark.state.log.heartbeat import Heartbeat
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.status import JobStatus, State

NOW = 1_700_000_000_000
JOB = JobSpec("fares", "fares:job", trigger_ms=10_000)
FIRST = SpecGeneration(1, NOW - 600_000, "ada", "submitted", JOB)
HERE = ProcessHandle("local", "host-a", 4711, started="boot:1")
ATTEMPT = Attempt(1, 1, NOW - 300_000, "ada/1", "submitted")
OWNER = OwnerInfo("host-a", 4711, "boot:1", "attempt-1")
RUNNING = ControlStatus("fares", "running", NOW - 200_000, 1, attempt=1, process=HERE)
DRIVER = JobStatus("fares", "a1", "running", NOW - 3_000, NOW - 200_000, owner=OWNER, last=EpochProgress("fares", "a1", 6, 0, 1, 1, 1))
BEAT = Heartbeat(1, OWNER, NOW - 2_000, 9)
WELL = Observation(
    "fares", FIRST, RUNNING, ATTEMPT, FIRST, Claim(1, NOW - 299_000, "process 4711", HERE), DRIVER, BEAT, handle=HERE, process="alive"
)
GONE = replace(WELL, process="gone")


def wants(seen: Observation, **changes: object) -> Observation:
    """Return what is seen when the spec was changed meanwhile."""
    spec = replace(JOB, **changes)  # type: ignore[arg-type]
    return replace(seen, generation=SpecGeneration(2, NOW - 1_000, "bob", "a change", spec))


def control(seen: Observation, **changes: object) -> Observation:
    return replace(seen, control=replace(seen.control or RUNNING, **changes))  # type: ignore[arg-type]


def beats(seen: Observation, **changes: object) -> Observation:
    return replace(seen, heartbeat=replace(seen.heartbeat or BEAT, **changes))  # type: ignore[arg-type]


def says(seen: Observation, state: State, **changes: object) -> Observation:
    return replace(seen, driver=replace(DRIVER, state=state, **changes))  # type: ignore[arg-type]


def ended(last: EpochProgress | None = DRIVER.last) -> EpochProgress:
    assert last is not None
    return replace(last, end_of_input=True)


NEW = Observation("fares", FIRST)
STARTING = control(replace(WELL, attempt=replace(ATTEMPT, at=NOW - 100_000), heartbeat=None, driver=None), lifecycle="starting")
SILENT = beats(WELL, at=NOW - 31_000)
HANGS = beats(WELL, at=NOW - 1_000, busy_since=NOW - 302_000)
SUSPECTED = Suspicion(NOW - 15_000, NOW - 31_000, "there is no heartbeat since then")
UNLAUNCHED = replace(STARTING, control=replace(RUNNING, lifecycle="starting", process=None), claim=None, handle=None, process=None)
DRAINING = {"lifecycle": "draining", "generation": 2, "asked_at": NOW - 10_000, "asked": "finish"}
FAILED = {"error": "[TM200] gone", "error_code": "TM200", "error_transient": False}
ELSEWHERE = replace(WELL, process="unknown")


@dataclass(frozen=True)
class Row:
    """A situation, and its plan in short: what is done, and the lifecycle that is written."""

    seen: Observation
    does: tuple[str, ...]
    then: Callable[[tuple[Action, ...]], bool] = lambda _: True


def known_of(failure: Failure) -> tuple[int | None, int | None]:
    """Return what a failure says of epochs: the newest committed one, and the one at hand."""
    return failure.committed, failure.epoch


def short(actions: tuple[Action, ...]) -> tuple[str, ...]:
    words = {WriteStatus: "say", LaunchAttempt: "start", RequestStop: "ask", Kill: "kill", AbandonAttempt: "give up"}
    return tuple(
        f"{words[type(action)]} {action.status.lifecycle}"
        if isinstance(action, WriteStatus)
        else f"{words[type(action)]} {action.attempt}"
        if isinstance(action, LaunchAttempt | AbandonAttempt)
        else words.get(type(action), "clean")
        for action in actions
    )


def said(actions: tuple[Action, ...]) -> ControlStatus:
    return next(action.status for action in actions if isinstance(action, WriteStatus | LaunchAttempt))


ROWS = {
    # No driver.
    "submitted": Row(NEW, ("start 1",), lambda plan: said(plan).reason == "submitted (ada)"),
    "submitted, to be suspended": Row(wants(NEW, wanted="suspended"), ("say suspended",)),
    "suspended, and to be": Row(control(wants(GONE, wanted="suspended"), lifecycle="suspended", generation=2, reason="a change (bob)"), ()),
    "suspended, and resumed": Row(control(GONE, lifecycle="suspended"), ("start 2",)),
    "failed, and nobody asked since": Row(control(GONE, lifecycle="failed"), ()),
    "failed, and only thresholds changed": Row(control(wants(GONE, hang_after_ms=700_000), lifecycle="failed"), ("say failed",)),
    "failed, and a restart was asked for": Row(control(wants(GONE, restarts=1), lifecycle="failed"), ("start 2",)),
    "failed, and other code": Row(control(wants(GONE, version="2"), lifecycle="failed"), ("start 2",)),
    "failed, and suspended": Row(control(wants(GONE, wanted="suspended"), lifecycle="failed"), ("say suspended",)),
    "failing, not yet due": Row(control(GONE, lifecycle="failing", next_start_at=NOW + 1), ()),
    "failing, due": Row(control(GONE, lifecycle="failing", next_start_at=NOW), ("start 2",), lambda plan: said(plan).restarts_done == 1),
    "failing, due after the clock was set back": Row(control(GONE, lifecycle="failing", next_start_at=NOW + 3_600_000), ("start 2",)),
    "failing, and other code": Row(control(wants(GONE, version="2"), lifecycle="failing", next_start_at=NOW + 9_000), ("start 2",)),
    "failing, and suspended": Row(control(wants(GONE, wanted="suspended"), lifecycle="failing", next_start_at=NOW), ("say suspended",)),
    "failing, and to be drained": Row(
        control(wants(GONE, wanted="suspended", stop="drain"), lifecycle="failing", next_start_at=NOW), ("start 2",)
    ),
    "finished": Row(control(GONE, lifecycle="finished"), ()),
    "finished, and to be suspended": Row(control(wants(GONE, wanted="suspended"), lifecycle="finished"), ("say finished",)),
    "finished, and a restart was asked for": Row(control(wants(GONE, restarts=1), lifecycle="finished"), ("start 2",)),
    "driven by hand": Row(replace(NEW, heartbeat=replace(BEAT, owner=replace(OWNER, run_id="by hand"))), ("say created",)),
    "driven by hand by who died": Row(
        replace(NEW, heartbeat=replace(BEAT, owner=replace(OWNER, run_id="by hand")), heartbeat_process_gone=True), ("start 1",)
    ),
    "the last driver was killed elsewhere a moment ago": Row(
        control(replace(GONE, process="unknown"), lifecycle="failing", next_start_at=NOW),
        ("start 2",),
        lambda plan: any(isinstance(action, LaunchAttempt) and action.takeover for action in plan),
    ),
    # An attempt whose process nobody knows.
    "about to be launched": Row(replace(UNLAUNCHED, attempt=replace(ATTEMPT, at=NOW - 59_000)), ()),
    "about to be launched, by a clock that is ahead": Row(replace(UNLAUNCHED, attempt=replace(ATTEMPT, at=NOW + 5_000)), ()),
    "never launched": Row(UNLAUNCHED, ("give up 1", "say failing"), lambda plan: said(plan).failures[0].code == "TM601"),
    "never launched, and given up": Row(replace(UNLAUNCHED, claim=Claim(1, NOW, "bob")), ("say failing",)),
    "never launched, and suspended": Row(
        wants(replace(UNLAUNCHED, attempt=replace(ATTEMPT, at=NOW)), wanted="suspended"), ("give up 1", "say suspended")
    ),
    "attempt made, status not yet": Row(
        replace(UNLAUNCHED, attempt=Attempt(2, 1, NOW - 5_000, "ada/1", "restart")), ("say starting",), lambda plan: said(plan).attempt == 2
    ),
    # A driver that lives.
    "launched": Row(STARTING, ()),
    "first heartbeat": Row(control(WELL, lifecycle="starting"), ("say running",)),
    "runs well": Row(WELL, ()),
    "runs well elsewhere": Row(ELSEWHERE, ()),
    "no first heartbeat for too long": Row(replace(STARTING, attempt=replace(ATTEMPT, at=NOW - 300_000)), ("say starting",)),
    "silent for a lease": Row(SILENT, ("say running",), lambda plan: said(plan).suspicion is not None),
    "still silent, too early": Row(control(SILENT, suspicion=replace(SUSPECTED, since=NOW - 14_000)), ()),
    "still silent": Row(control(SILENT, suspicion=SUSPECTED), ("kill",)),
    "silent again": Row(control(beats(SILENT, at=NOW - 40_000), suspicion=SUSPECTED), ("say running",)),
    "no longer silent": Row(control(WELL, suspicion=SUSPECTED), ("say running",), lambda plan: said(plan).suspicion is None),
    "a heartbeat of the future": Row(beats(WELL, at=NOW + 31_000), ("say running",), lambda plan: said(plan).suspicion is not None),
    "an epoch for too long": Row(HANGS, ("say running",)),
    "an epoch for too long, still": Row(control(HANGS, suspicion=Suspicion(NOW - 15_000, NOW - 302_000, "an epoch")), ("kill",)),
    "an epoch for a moment, though the clock was set on since": Row(beats(HANGS, busy_ms=4_000), ()),
    "an epoch for too long, though the clock was set back since": Row(
        beats(WELL, at=NOW - 1_000, busy_since=NOW + 3_000_000, busy_ms=301_000),
        ("say running",),
        lambda plan: said(plan).suspicion is not None,
    ),
    "an epoch for long, and allowed to": Row(wants(control(HANGS, generation=2), hang_after_ms=400_000), ()),
    "ended, its process lives on, and the clock was set back since": Row(
        says(beats(WELL, released=True), "stopped", heartbeat_at=NOW + 3_600_000),
        ("say running",),
        lambda actions: isinstance(actions[0], WriteStatus) and actions[0].status.suspicion is not None,
    ),
    "ended, and its process lives on": Row(says(beats(WELL, released=True), "stopped", heartbeat_at=NOW - 60_000), ("say running",)),
    "elsewhere, silent and still": Row(control(replace(SILENT, process="unknown"), suspicion=SUSPECTED), ("say failing",)),
    # A driver that lives, and a changed spec.
    "to be suspended": Row(wants(WELL, wanted="suspended"), ("say draining", "ask")),
    "to be suspended, asked": Row(control(wants(WELL, wanted="suspended"), **DRAINING), ()),
    "to be suspended, asked long ago": Row(control(wants(WELL, wanted="suspended"), **{**DRAINING, "asked_at": NOW - 300_000}), ("kill",)),
    "to be suspended, asked a while ago": Row(
        control(wants(WELL, wanted="suspended"), **{**DRAINING, "asked_at": NOW - 16_000}),
        ("say draining", "ask"),
        lambda plan: (said(plan).told_at, said(plan).asked_at) == (NOW, NOW - 16_000),
    ),
    "to be suspended, told again": Row(
        control(wants(WELL, wanted="suspended"), **DRAINING | {"told_at": NOW - 14_000, "asked_at": 0}), ("kill",)
    ),
    "to be suspended, asked, and the clock was set back": Row(
        control(wants(WELL, wanted="suspended"), **{**DRAINING, "asked_at": NOW + 3_600_000}),
        ("say draining", "ask"),
        lambda plan: said(plan).asked_at == NOW,
    ),
    "to be suspended, asked a while ago, elsewhere": Row(
        control(wants(ELSEWHERE, wanted="suspended"), **{**DRAINING, "asked_at": NOW - 16_000}), ()
    ),
    "other settings, asked a while ago": Row(
        control(wants(WELL, trigger_ms=1), **{**DRAINING, "asked_at": NOW - 16_000}), ("say draining", "ask")
    ),
    "other settings, told again": Row(
        control(wants(WELL, trigger_ms=1), **{**DRAINING, "asked_at": NOW - 16_000, "told_at": NOW - 1_000}), ()
    ),
    "to be drained": Row(wants(WELL, wanted="suspended", stop="drain"), ("say draining",)),
    "to be drained, for long": Row(control(wants(WELL, wanted="suspended", stop="drain"), **{**DRAINING, "asked_at": NOW - 9_000_000}), ()),
    "to be cancelled": Row(wants(WELL, wanted="suspended", stop="now"), ("say draining", "kill")),
    "cancelled after it was stopped": Row(
        control(wants(WELL, wanted="suspended", stop="now"), **{**DRAINING, "generation": 1}), ("say draining", "kill")
    ),
    "other code": Row(wants(WELL, version="2"), ("say upgrading", "ask")),
    "other settings": Row(wants(WELL, trigger_ms=1), ("say draining", "ask")),
    "other settings while it starts": Row(wants(STARTING, trigger_ms=1), ("say draining", "ask")),
    "other thresholds": Row(wants(WELL, hang_after_ms=700_000), ("say running",), lambda plan: said(plan).generation == 2),
    "other settings, asked long ago": Row(control(wants(WELL, trigger_ms=1), **{**DRAINING, "asked_at": NOW - 300_000}), ("kill",)),
    "other settings, elsewhere, asked long ago": Row(
        control(wants(ELSEWHERE, trigger_ms=1), **{**DRAINING, "asked_at": NOW - 300_000}),
        ("start 2",),
        lambda plan: any(isinstance(action, LaunchAttempt) and action.takeover for action in plan),
    ),
    "resumed while it ends": Row(control(wants(WELL), **{**DRAINING, "generation": 1}), ("say draining",)),
    "resumed while it drains": Row(control(wants(WELL), **{**DRAINING, "generation": 1, "asked": "drain"}), ("say draining", "ask")),
    "stopped while it drains, for long": Row(
        control(wants(WELL, wanted="suspended"), **{**DRAINING, "generation": 1, "asked": "drain", "asked_at": NOW - 9_000_000}),
        ("say draining", "ask"),
    ),
    "other code while it ends": Row(control(wants(WELL, version="2"), **{**DRAINING, "generation": 1}), ("say upgrading",)),
    "to be drained while it ends": Row(
        control(wants(WELL, wanted="suspended", stop="drain"), **{**DRAINING, "generation": 1}), ("say draining",)
    ),
    "to be drained, and ended before": Row(
        control(says(wants(GONE, wanted="suspended", stop="drain"), "stopped"), **DRAINING), ("start 2",)
    ),
    # A driver that is gone.
    "killed": Row(replace(GONE, exit_code=-9), ("say failing",), lambda plan: said(plan).failures[0].epoch is None),
    "killed, and its newest epoch is written down": Row(GONE, ("say failing",), lambda plan: said(plan).failures[0].committed == 6),
    "killed, and its status is damaged": Row(
        beats(replace(GONE, driver=None), busy_since=NOW - 5_000),
        ("say failing",),
        lambda plan: known_of(said(plan).failures[0]) == (None, None),
    ),
    "killed before its first epoch was there": Row(
        beats(replace(GONE, driver=replace(DRIVER, last=None, sources={})), busy_since=NOW - 5_000),
        ("say failing",),
        lambda plan: known_of(said(plan).failures[0]) == (-1, 0),
    ),
    "gone before it began, and nothing else is known of the job": Row(
        says(GONE, "failed", lineage="", last=None, error="[TM400] away", error_code="TM400", error_transient=True),
        ("say failing",),
        lambda plan: known_of(said(plan).failures[0]) == (None, None),
    ),
    "killed in an epoch": Row(beats(GONE, busy_since=NOW - 5_000), ("say failing",), lambda plan: said(plan).failures[0].epoch == 7),
    "gone with an error that passes": Row(says(GONE, "failed", **{**FAILED, "error_transient": True, "error_epoch": 7}), ("say failing",)),
    "gone with an error that does not": Row(says(GONE, "failed", **FAILED), ("say failed",), lambda plan: said(plan).error is not None),
    "gone, and says by its exit code that it is no use": Row(replace(GONE, exit_code=64), ("say failed",)),
    "gone, and says by its exit code that it may pass": Row(replace(GONE, exit_code=75), ("say failing",)),
    "gone, and says by its exit code that somebody took over": Row(replace(GONE, exit_code=70), ("say failing",)),
    "elsewhere, between its run and its drain": Row(
        control(says(beats(wants(ELSEWHERE, wanted="suspended", stop="drain"), released=True), "stopped"), **DRAINING),
        (),
    ),
    "elsewhere, drained": Row(
        control(says(beats(wants(ELSEWHERE, wanted="suspended", stop="drain"), released=True), "finished", last=ended()), **DRAINING),
        ("say finished",),
    ),
    "stopped by somebody else": Row(says(GONE, "stopped"), ("say failing",)),
    "stopped as asked": Row(control(says(wants(GONE, wanted="suspended"), "stopped"), **DRAINING), ("say suspended",)),
    "failed while it was to stop": Row(
        control(says(wants(GONE, wanted="suspended"), "failed", **FAILED), **DRAINING),
        ("say suspended",),
        lambda plan: said(plan).error is not None,
    ),
    "killed, and suspended meanwhile": Row(wants(GONE, wanted="suspended"), ("say suspended",)),
    "drained": Row(control(says(wants(GONE, wanted="suspended", stop="drain"), "finished", last=ended()), **DRAINING), ("say finished",)),
    "killed in its drain": Row(control(wants(GONE, wanted="suspended", stop="drain"), **{**DRAINING, "asked": "drain"}), ("say failing",)),
    "stopped to be upgraded": Row(control(says(wants(GONE, version="2"), "stopped"), **DRAINING), ("start 2",)),
    "released elsewhere": Row(says(beats(ELSEWHERE, released=True), "stopped"), ("say failing",)),
    "gone, and another attempt's error is there": Row(
        says(GONE, "failed", **FAILED, owner=replace(OWNER, run_id="attempt-0")),
        ("say failing",),
        lambda plan: said(plan).failures[0].code == "TM503",
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_each_situation_has_its_plan(row: Row) -> None:
    assert row.seen.generation is not None
    found = plan(row.seen.generation, row.seen, NOW)
    assert short(found) == row.does
    assert row.then(found)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_what_was_written_down_is_not_written_again(row: Row) -> None:
    """A pass that dies after its first step, and one that is made twice, change nothing."""
    assert row.seen.generation is not None
    for action in plan(row.seen.generation, row.seen, NOW):
        if isinstance(action, WriteStatus):
            again = plan(row.seen.generation, replace(row.seen, control=action.status), NOW)
            assert action not in again
