"""What an upgrade does next, as a table: the step that was recorded, what is seen, what follows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tidemark.control.model.layout import UPGRADE_TROUBLE, UPGRADES, numbered
from tidemark.control.model.records import Failure
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import (
    Step,
    Upgrade,
    UpgradeCheck,
    UpgradeStep,
    create_step,
    newest_step,
    read_upgrade_checks,
    report_upgrade_check,
)
from tidemark.control.model.upgrade_trouble import UpgradeTrouble, note_trouble, read_trouble
from tidemark.control.upgrade.upgrade_plan import Act, Go, Move, Sight, Wait, decide, with_code_of
from tidemark.errors import EngineError, StoreError
from tidemark.locations import Location
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.upgrade_note import UpgradeNote, read_upgrade, write_upgrade
from tidemark.state.store.layout import UPGRADE
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_700_000_000_000
OLD = JobSpec("fares", "fares:job", trigger_ms=5_000)
NEW = replace(OLD, code="fares_v2:job", version="2", restore=Restore("before-u1", uids={"a": "b"}, identity="u1"))
UPGRADE_1 = Upgrade("u1", "fares", OLD, NEW, "before-u1", NOW, "ada", "a fix", checks=("rows",))
STOPPED = Sight(replace(OLD, wanted="suspended"), 2, lifecycle="suspended")
STOPS = replace(STOPPED, lifecycle="draining")
NEW_STOPPED = replace(STOPPED, spec=replace(NEW, wanted="suspended"))
RUNS = Sight(NEW, 3, "ada", "running", good_epochs=3, passed_checks=frozenset(("rows",)))
FAILED = Failure(NOW, 2, NOW, 7, EngineError.code, "an executor was lost", transient=True)

CASES: dict[str, tuple[Step, Sight, Move]] = {
    "it is to stop": ("stopping", Sight(OLD, 1, lifecycle="running"), Act("suspend")),
    "it stops": ("stopping", STOPS, Wait("its driver ends")),
    "nobody has seen to it yet": ("stopping", replace(STOPPED, lifecycle=None), Wait("its driver ends")),
    "it has stopped": ("stopping", STOPPED, Go("saving")),
    "it had failed for good": ("stopping", replace(STOPPED, lifecycle="failed"), Go("saving")),
    "a savepoint is due": ("saving", STOPPED, Act("save")),
    "a promotion goes back": ("going-back", STOPPED, Act("go-back")),
    "the new code is due": ("starting", STOPPED, Act("switch")),
    "the new code is asked for": ("starting", Sight(NEW, 3), Go("watching")),
    "all is well": ("watching", RUNS, Go("done", "3 good epochs")),
    "an epoch is missing": ("watching", replace(RUNS, good_epochs=2), Wait("2 of 3 good epochs")),
    "a check is missing": ("watching", replace(RUNS, passed_checks=frozenset()), Wait("check rows has not passed")),
    "its input ended": ("watching", replace(RUNS, good_epochs=1, lifecycle="finished"), Go("done", "1 good epochs")),
    "an attempt failed": ("watching", replace(RUNS, failures=(FAILED,)), Go("reverting", "attempt 2 failed: an executor was lost")),
    "the store was gone": (
        "watching",
        replace(RUNS, good_epochs=0, failures=(replace(FAILED, code=StoreError.code),)),
        Wait("0 of 3 good epochs"),
    ),
    "a check failed": ("watching", replace(RUNS, failed_checks=("check rows (7 lost)",)), Go("reverting", "failed: check rows (7 lost)")),
    "it cannot be launched": (
        "watching",
        replace(RUNS, good_epochs=0, lifecycle="failed"),
        Go("reverting", "its driver could not be started"),
    ),
    "somebody stopped it": (
        "watching",
        replace(RUNS, spec=replace(NEW, wanted="suspended"), generation=4, by="bob"),
        Go("reverting", "generation 4 by bob asked for something else meanwhile", stopped=True),
    ),
    "somebody put other code in": (
        "watching",
        replace(RUNS, spec=replace(NEW, code="fares_v3:job"), generation=4, by="bob"),
        Go("reverting", "generation 4 by bob asked for something else meanwhile"),
    ),
    "another parallelism is nothing of ours": ("watching", replace(RUNS, spec=replace(NEW, parallelism=8)), Go("done", "3 good epochs")),
    "somebody accepts it": ("accepting", RUNS, Go("done", "why")),
    "somebody accepts what was stopped": ("accepting", NEW_STOPPED, Act("switch")),
    "somebody accepts it while it is put back": ("accepting", replace(RUNS, rewound="begun"), Act("give-up")),
    "somebody accepts it too late": (
        "accepting",
        replace(RUNS, rewound="done"),
        Go("reverting", "its tables were put back to savepoint 'before-u1' just when it was why"),
    ),
    "it goes back": ("reverting", RUNS, Act("suspend")),
    "it has stopped to go back": ("reverting", NEW_STOPPED, Go("putting-back")),
    "tables and state are due": ("putting-back", NEW_STOPPED, Act("put-back")),
    "the old code is due": ("starting-old", NEW_STOPPED, Act("start-old")),
    "the old code is asked for": ("starting-old", Sight(OLD, 5), Go("rolled-back")),
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
    assert late == Go("reverting", "after 5m: 1 of 3 good epochs, check rows has not passed")
    assert decide(step("reverting", epoch=None), STOPPED, NOW) == Go("starting-old"), "nothing was changed yet"
    stopped = step("starting-old", stopped=True)
    assert decide(stopped, STOPPED, NOW) == Go("rolled-back")
    assert decide(stopped, Sight(OLD, 5), NOW) == Act("start-old")
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
    check, note = UpgradeCheck("u1", "rows", passed=False, at=NOW, text="7 lost"), UpgradeNote("u1", ("before-u1", "good"), NOW)
    create_step(store, kept)
    report_upgrade_check(store, "fares", check)
    write_upgrade(folder, note)
    note_trouble(store, kept, StoreError("the store is away", fix="bring it back"), by="ada", now=NOW)
    paths = {
        "upgrade-1": numbered(UPGRADES, 5),
        "upgrade-check-1": "control/upgrade-checks/u1/rows.json",
        "upgrade-note-1": UPGRADE,
        "upgrade-trouble-1": UPGRADE_TROUBLE,
    }
    for name, path in paths.items():
        assert json.loads((GOLDEN / f"{name}.json").read_bytes()) == json.loads(folder.get(path)), name
        folder.put(path, (GOLDEN / f"{name}.json").read_bytes())
    assert (newest_step(store, "fares"), read_upgrade_checks(store, "fares", "u1"), read_upgrade(folder)) == (kept, (check,), note)
    trouble = UpgradeTrouble(5, NOW, NOW, "ada", StoreError.code, f"[{StoreError.code}] the store is away. Fix: bring it back")
    assert read_trouble(store, kept) == trouble


def test_trouble_is_of_one_step_and_since_it_was_first_seen() -> None:
    store = JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())
    at, away = step("reverting"), StoreError("the store is away", fix="bring it back")
    assert read_trouble(store, at) is None
    for now in (NOW, NOW + 7):
        note_trouble(store, at, away, by="ada", now=now)
    found = read_trouble(store, at)
    assert found is not None
    assert (found.since, found.at) == (NOW, NOW + 7)
    note_trouble(store, at, EngineError("another one", fix="mend it"), by="bob", now=NOW + 9)
    found = read_trouble(store, at)
    assert found is not None
    assert (found.since, found.by, found.code) == (NOW + 9, "bob", EngineError.code)
    assert read_trouble(store, replace(at, number=at.number + 1)) is None
    store.put(f"fares/{UPGRADE_TROUBLE}", b"nonsense")
    assert read_trouble(store, at) is None, "it is only shown"
