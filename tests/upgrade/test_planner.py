"""What an upgrade does next, as a table: the step that was recorded, what is seen, what follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tidemark.control.model.paths import UPGRADE_BLOCKER, UPGRADES, numbered
from tidemark.control.model.records import Failure
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_blocker import UpgradeBlocker, read_blocker, record_blocker
from tidemark.control.model.upgrade_records import (
    Step,
    Upgrade,
    UpgradeCheck,
    UpgradeStep,
    create_step,
    newest_step,
    read_upgrade_checks,
    report_upgrade_check,
    with_code_of,
)
from tidemark.control.upgrade.upgrade_plan import Execute, Transition, UpgradeDecision, UpgradeObservation, Wait, decide
from tidemark.errors import EngineError, StoreError
from tidemark.locations import Location
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.upgrade_lock import UpgradeLock, read_upgrade_lock, write_upgrade_lock
from tidemark.state.store.layout import UPGRADE
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_700_000_000_000
OLD = JobSpec("fares", "fares:job", trigger_ms=5_000)
NEW = replace(OLD, code="fares_v2:job", version="2", restore=Restore("before-u1", uids={"a": "b"}, identity="u1"))
UPGRADE_1 = Upgrade("u1", "fares", OLD, NEW, "before-u1", NOW, "ada", "a fix", checks=("rows",))
STOPPED = UpgradeObservation(replace(OLD, wanted="suspended"), 2, lifecycle="suspended")
STOPS = replace(STOPPED, lifecycle="draining")
NEW_STOPPED = replace(STOPPED, spec=replace(NEW, wanted="suspended"))
RUNS = UpgradeObservation(NEW, 3, "ada", "running", good_epochs=3, passed_checks=frozenset(("rows",)))
FAILED = Failure(NOW, 2, NOW, 7, EngineError.code, "an executor was lost", transient=True)

CASES: dict[str, tuple[Step, UpgradeObservation, UpgradeDecision]] = {
    "it is to stop": ("stopping", UpgradeObservation(OLD, 1, lifecycle="running"), Execute("suspend")),
    "it stops": ("stopping", STOPS, Wait("its driver ends")),
    "nobody has seen to it yet": ("stopping", replace(STOPPED, lifecycle=None), Wait("its driver ends")),
    "it has stopped": ("stopping", STOPPED, Transition("saving")),
    "it had failed for good": ("stopping", replace(STOPPED, lifecycle="failed"), Transition("saving")),
    "a savepoint is due": ("saving", STOPPED, Execute("save")),
    "a promotion goes back": ("going-back", STOPPED, Execute("go-back")),
    "the new code is due": ("starting", STOPPED, Execute("switch")),
    "the new code is asked for": ("starting", UpgradeObservation(NEW, 3), Transition("watching")),
    "all is well": ("watching", RUNS, Transition("done", "3 good epochs")),
    "an epoch is missing": ("watching", replace(RUNS, good_epochs=2), Wait("2 of 3 good epochs")),
    "a check is missing": ("watching", replace(RUNS, passed_checks=frozenset()), Wait("check rows has not passed")),
    "its input ended": ("watching", replace(RUNS, good_epochs=1, lifecycle="finished"), Transition("done", "1 good epochs")),
    "an attempt failed": ("watching", replace(RUNS, failures=(FAILED,)), Transition("reverting", "attempt 2 failed: an executor was lost")),
    "the store was gone": (
        "watching",
        replace(RUNS, good_epochs=0, failures=(replace(FAILED, code=StoreError.code),)),
        Wait("0 of 3 good epochs"),
    ),
    "a check failed": (
        "watching",
        replace(RUNS, failed_checks=("check rows (7 lost)",)),
        Transition("reverting", "failed: check rows (7 lost)"),
    ),
    "it cannot be launched": (
        "watching",
        replace(RUNS, good_epochs=0, lifecycle="failed"),
        Transition("reverting", "its driver could not be started"),
    ),
    "somebody stopped it": (
        "watching",
        replace(RUNS, spec=replace(NEW, wanted="suspended"), generation=4, by="bob"),
        Transition("reverting", "generation 4 by bob changed the spec during the upgrade", stopped=True),
    ),
    "somebody put other code in": (
        "watching",
        replace(RUNS, spec=replace(NEW, code="fares_v3:job"), generation=4, by="bob"),
        Transition("reverting", "generation 4 by bob changed the spec during the upgrade"),
    ),
    "another parallelism is nothing of ours": (
        "watching",
        replace(RUNS, spec=replace(NEW, parallelism=8)),
        Transition("done", "3 good epochs"),
    ),
    "somebody accepts it": ("accepting", RUNS, Transition("done", "why")),
    "somebody accepts what was stopped": ("accepting", NEW_STOPPED, Execute("switch")),
    "somebody accepts it while it is put back": ("accepting", replace(RUNS, rewind_state="begun"), Execute("give-up")),
    "somebody accepts it too late": (
        "accepting",
        replace(RUNS, rewind_state="done"),
        Transition("reverting", "its tables were reverted to savepoint 'before-u1' just when it was why"),
    ),
    "it goes back": ("reverting", RUNS, Execute("suspend")),
    "it has stopped to go back": ("reverting", NEW_STOPPED, Transition("putting-back")),
    "tables and state are due": ("putting-back", NEW_STOPPED, Execute("put-back")),
    "the old code is due": ("starting-old", NEW_STOPPED, Execute("start-old")),
    "the old code is asked for": ("starting-old", UpgradeObservation(OLD, 5), Transition("rolled-back")),
    "it has ended": ("done", RUNS, Wait("it has ended")),
    "it has ended in the other way": ("rolled-back", RUNS, Wait("it has ended")),
}


def step(name: Step, **fields: object) -> UpgradeStep:
    made = UpgradeStep(5, name, NOW, "ada", UPGRADE_1, "why", attempt=1, epoch=6, generation=3, until=NOW + 60_000)
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_what_follows(case: str) -> None:
    name, seen, expected = CASES[case]
    assert decide(step(name), seen, NOW) == expected


def test_what_depends_on_more() -> None:
    late = decide(step("watching"), replace(RUNS, good_epochs=1, passed_checks=frozenset()), NOW + 60_000)
    assert late == Transition("reverting", "after 5m: 1 of 3 good epochs, check rows has not passed")
    assert decide(step("reverting", epoch=None), STOPPED, NOW) == Transition("starting-old"), "nothing was changed yet"
    stopped = step("starting-old", stopped=True)
    assert decide(stopped, STOPPED, NOW) == Transition("rolled-back")
    assert decide(stopped, UpgradeObservation(OLD, 5), NOW) == Execute("start-old")
    changed = with_code_of(replace(OLD, parallelism=8, restarts=3, wanted="suspended"), NEW)
    assert changed == replace(NEW, parallelism=8, restarts=4)


def test_only_one_of_two_records_of_a_number_counts() -> None:
    store = JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())
    assert newest_step(store, "fares") is None
    assert create_step(store, step("watching"))
    assert create_step(store, step("watching")), "the answer to a put may be lost"
    assert not create_step(store, step("reverting"))
    assert newest_step(store, "fares") == step("watching")


def test_the_form_of_what_is_kept_is_for_ever() -> None:
    store = JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())
    folder = store.at("fares")
    kept = step("reverting", stopped=True)
    check, lock = UpgradeCheck("u1", "rows", passed=False, at=NOW, text="7 lost"), UpgradeLock("u1", ("before-u1", "good"), NOW)
    create_step(store, kept)
    report_upgrade_check(store, "fares", check)
    write_upgrade_lock(folder, lock)
    record_blocker(store, kept, StoreError("the store is away", fix="bring it back"), by="ada", now=NOW)
    paths = {
        "upgrade-1": numbered(UPGRADES, 5),
        "upgrade-check-1": "control/upgrade-checks/u1/rows.json",
        "upgrade-note-1": UPGRADE,
        "upgrade-trouble-1": UPGRADE_BLOCKER,
    }
    for name, path in paths.items():
        assert json.loads((GOLDEN / f"{name}.json").read_bytes()) == json.loads(folder.get(path)), name
        folder.put(path, (GOLDEN / f"{name}.json").read_bytes())
    assert (newest_step(store, "fares"), read_upgrade_checks(store, "fares", "u1"), read_upgrade_lock(folder)) == (kept, (check,), lock)
    trouble = UpgradeBlocker(5, NOW, NOW, "ada", StoreError.code, f"[{StoreError.code}] the store is away. Fix: bring it back")
    assert read_blocker(store, kept) == trouble


def test_trouble_is_of_one_step_and_since_it_was_first_seen() -> None:
    store = JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())
    at, away = step("reverting"), StoreError("the store is away", fix="bring it back")
    assert read_blocker(store, at) is None
    for now in (NOW, NOW + 7):
        record_blocker(store, at, away, by="ada", now=now)
    found = read_blocker(store, at)
    assert found is not None
    assert (found.since, found.at) == (NOW, NOW + 7)
    record_blocker(store, at, EngineError("another one", fix="mend it"), by="bob", now=NOW + 9)
    found = read_blocker(store, at)
    assert found is not None
    assert (found.since, found.by, found.code) == (NOW + 9, "bob", EngineError.code)
    assert read_blocker(store, replace(at, number=at.number + 1)) is None
    store.put(f"fares/{UPGRADE_BLOCKER}", b"nonsense")
    assert read_blocker(store, at) is None, "it is only shown"
