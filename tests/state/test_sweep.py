from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from obstore.store import MemoryStore

from tidemark.errors import CorruptStoreError, FencedError, InvalidNameError
from tidemark.locations import Location
from tidemark.state.gc.pins import Pins
from tidemark.state.gc.retention import retire
from tidemark.state.gc.sweep import plan_sweep, referenced_files, sweep
from tidemark.state.log.epoch_intent import EpochIntent, TableVersion, read_intent, write_intent
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, OwnerInfo, SourceLogFile, SourceLogRef, StateFile
from tidemark.state.store.layout import pin_path, record_path
from tidemark.state.store.store import JobStore, ListedFile

MakeRecord = Callable[..., EpochRecord]
MakeFile = Callable[..., StateFile]
LEASE = 30_000


class Clock(Protocol):
    now: int

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@pytest.fixture
def ahead(clock: Clock) -> Clock:
    """A clock far ahead of the disk's, so that files count as old."""
    clock.now = 4_000_000_000_000
    return clock


def listed(*paths: str, at: int = 0) -> list[ListedFile]:
    return [ListedFile(path, 1, at) for path in paths]


def test_an_unused_file_is_marked_then_deleted_after_a_lease() -> None:
    files = listed("a", "b")
    first = plan_sweep(files, {"b"}, {}, now_ms=100_000, lease_ms=LEASE)
    assert (first.delete, first.marked) == ((), {"a": 100_000})
    early = plan_sweep(files, {"b"}, first.marked, now_ms=130_000, lease_ms=LEASE)
    assert (early.delete, early.marked) == ((), {"a": 100_000})
    late = plan_sweep(files, {"b"}, early.marked, now_ms=130_001, lease_ms=LEASE)
    assert (late.delete, late.marked) == (("a",), {})


def test_a_marked_file_that_is_used_again_is_kept_and_unmarked() -> None:
    plan = plan_sweep(listed("a"), {"a"}, {"a": 0}, now_ms=10**9, lease_ms=LEASE)
    assert (plan.delete, plan.marked) == ((), {})


def test_files_younger_than_a_lease_are_not_even_marked() -> None:
    plan = plan_sweep(listed("a", at=1_000), set(), {"a": 0}, now_ms=31_000, lease_ms=LEASE)
    assert (plan.delete, plan.marked) == ((), {})


def test_checksum_files_live_with_their_file() -> None:
    files = listed("state/u/.a.parquet.crc", "state/u/.b.parquet.crc", ".c.crc")
    plan = plan_sweep(files, {"state/u/a.parquet", "c"}, {}, now_ms=10**9, lease_ms=LEASE)
    assert set(plan.marked) == {"state/u/.b.parquet.crc"}


def test_orphans_of_all_folders_go_and_what_is_needed_stays(
    log: JobLog, owner: OwnerInfo, ahead: Clock, make_record: MakeRecord, make_file: MakeFile
) -> None:
    driver = log.acquire(owner)
    record = make_record(0, files=tuple(make_file(number) for number in range(300)))
    driver.append(record)
    needed = referenced_files(log)
    assert {file.path for file in record.operators["hourly"].files} < needed
    assert "sources/trips/1-3" in needed
    for path in (*needed, "state/hourly/orphan.parquet", "state/gone/x.parquet", "segments/orphan.json", "sources/trips/old"):
        if not log.store.exists(path):
            log.store.put(path, b"x")
    log.store.put("elements/0.json", b"x")
    assert sweep(driver).deleted == ()
    ahead.now += LEASE + 1
    report = sweep(driver)
    assert set(report.deleted) == {
        "state/hourly/orphan.parquet",
        "state/gone/x.parquet",
        "segments/orphan.json",
        "sources/trips/old",
    }
    assert all(log.store.exists(path) for path in needed)
    assert log.store.exists("elements/0.json")
    ahead.now += LEASE + 1
    assert sweep(driver) == replace(report, deleted=())


def test_copies_of_tables_stay_as_long_as_the_newest_plan_names_them(
    log: JobLog, owner: OwnerInfo, ahead: Clock, make_record: MakeRecord, make_file: MakeFile
) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    own, of_another, unplanned = (replace(make_file(number), path=f"state/names/{number}.parquet") for number in range(3))
    for file in (own, of_another, unplanned):
        log.store.put(file.path, b"x")
    copy = TableVersion("a", (own, replace(of_another, owner="other")), "{}")
    write_intent(log.store, EpochIntent("line", 1, "input", 0, {"names": copy, "zones": TableVersion("3")}))
    assert read_intent(log.store) == EpochIntent("line", 1, "input", 0, {"names": copy, "zones": TableVersion("3")})
    sweep(driver)
    ahead.now += LEASE + 1
    assert set(sweep(driver).deleted) == {of_another.path, unplanned.path}
    # The next epoch reads no copy, and no record names the one of the epoch before, which failed.
    write_intent(log.store, EpochIntent("line", 1, "other input", 0))
    sweep(driver)
    ahead.now += LEASE + 1
    assert sweep(driver).deleted == (own.path,)


def test_tombstones_outlive_their_driver(log: JobLog, owner: OwnerInfo, ahead: Clock, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    log.store.put("state/hourly/orphan", b"x")
    sweep(driver)
    driver.release()
    ahead.now += LEASE + 1
    assert sweep(log.acquire(owner)).deleted == ("state/hourly/orphan",)


def test_a_fenced_driver_deletes_nothing(
    log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, ahead: Clock, make_record: MakeRecord
) -> None:
    old = log.acquire(owner)
    old.append(make_record(0))
    log.store.put("state/hourly/orphan", b"x")
    sweep(old)
    log.acquire(elsewhere, takeover=True)
    ahead.now += LEASE + 1
    with pytest.raises(FencedError):
        sweep(old)
    assert log.store.exists("state/hourly/orphan")


def test_nothing_is_deleted_while_a_record_cannot_be_read(log: JobLog, owner: OwnerInfo, ahead: Clock, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    driver.append(make_record(1))
    log.store.put("state/hourly/orphan", b"x")
    sweep(driver)
    ahead.now += LEASE + 1
    log.store.put(record_path(1), b"damaged")
    with pytest.raises(CorruptStoreError):
        sweep(driver)
    assert log.store.exists("state/hourly/orphan")


def test_a_pin_holds_its_record_after_the_log_let_it_go(
    log: JobLog, owner: OwnerInfo, make_record: MakeRecord, make_file: MakeFile
) -> None:
    driver = log.acquire(owner)
    pins = Pins(log)
    record = make_record(0, files=tuple(make_file(number) for number in range(300)))
    driver.append(record)
    pin = pins.put("before-upgrade", 0)
    for epoch in range(1, 4):
        driver.append(make_record(epoch))
        retire(driver, retained_epochs=1)
    assert log.read(0) is None
    assert pins.list() == (pin,)
    assert pins.get("before-upgrade").record == record
    assert {file.path for file in record.operators["hourly"].files} < referenced_files(log)
    pins.remove("before-upgrade")
    pins.remove("before-upgrade")
    assert pins.list() == ()
    assert {file.path for file in record.operators["hourly"].files}.isdisjoint(referenced_files(log))


def test_pins_refuse_bad_names_taken_names_and_epochs_that_are_gone(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    pins = Pins(log)
    pins.put("a", 0)
    with pytest.raises(InvalidNameError, match="there is a savepoint 'a' already"):
        pins.put("a", 0)
    with pytest.raises(InvalidNameError):
        pins.put("../a", 0)
    with pytest.raises(CorruptStoreError, match="epoch 9 is not retained"):
        pins.put("b", 9)
    with pytest.raises(CorruptStoreError, match="missing"):
        pins.get("c")
    log.store.put(pin_path("a"), b"{")
    with pytest.raises(CorruptStoreError, match=r"refs/pins/a\.json"):
        pins.list()


def test_an_epoch_retired_while_it_is_pinned_is_not_pinned(
    log: JobLog, owner: OwnerInfo, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = log.acquire(owner)
    for epoch in range(3):
        driver.append(make_record(epoch))
    real = JobStore.create

    def retired_first(self: JobStore, path: str, data: bytes) -> None:
        retire(driver, retained_epochs=1)
        real(self, path, data)

    monkeypatch.setattr(JobStore, "create", retired_first)
    with pytest.raises(CorruptStoreError, match="epoch 0 is not retained"):
        Pins(log).put("late", 0)
    assert Pins(log).list() == ()


class JobFolder(RuleBasedStateMachine):
    """A job's life: epochs, compactions, crashes, takeovers, pins, retention and sweeps in any order, against a model of what is needed."""

    @initialize()
    def begin(self) -> None:
        self.clock = ModelClock()
        self.store = JobStore(Location.parse(str(Path.cwd())), MemoryStore()).at("taxi")
        self.log = JobLog(self.store, "taxi", self.clock)
        self.driver: Driver = self.log.acquire(current_owner())
        self.live: tuple[StateFile, ...] = ()
        self.source: tuple[SourceLogFile, ...] = ()
        self.epoch = 0
        self.number = 0
        self.retained: list[frozenset[str]] = []
        self.pinned: dict[str, frozenset[str]] = {}

    def stage(self) -> StateFile:
        self.number += 1
        path = f"state/u/{self.number:06d}"
        self.store.put(path, b"x")
        return StateFile(path, 1, 1, 0, 0, self.epoch)

    @rule(added=st.integers(0, 90), dropped=st.integers(0, 90))
    def commit(self, added: int, dropped: int) -> None:
        self.live = self.live[dropped:] + tuple(self.stage() for _ in range(added))
        self.number += 1
        log_file = f"sources/s/{self.number}"
        self.store.put(log_file, b"x")
        self.source = (*self.source, SourceLogFile("1", log_file, 1, ""))[-3:]
        progress = EpochProgress("taxi", "a1", self.epoch, 1, 1, 0, 0)
        self.driver.append(
            EpochRecord(
                "taxi",
                "a1",
                None,
                self.driver.term,
                self.epoch,
                1,
                "",
                progress,
                source_logs={"s": SourceLogRef(self.source)},
                operators={"u": OperatorState({}, self.live)},
            )
        )
        self.epoch += 1
        self.retained.append(frozenset([item.path for item in self.live] + [item.path for item in self.source]))

    @rule(count=st.integers(1, 5))
    def crash_while_staging(self, count: int) -> None:
        for _ in range(count):
            self.stage()
        self.driver = self.log.acquire(current_owner(), takeover=True)

    @rule(keep=st.integers(1, 5))
    def retire(self, keep: int) -> None:
        retire(self.driver, retained_epochs=keep)
        self.retained = self.retained[-keep:]

    @precondition(lambda self: self.retained)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        back = data.draw(st.integers(1, len(self.retained)))
        name = f"p{self.number}-{len(self.pinned)}-{back}"
        if name not in self.pinned:
            Pins(self.log).put(name, self.epoch - back)
            self.pinned[name] = self.retained[-back]

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pinned)))
        Pins(self.log).remove(name)
        del self.pinned[name]

    @rule(later=st.sampled_from([0, LEASE, LEASE + 1]))
    def sweep(self, later: int) -> None:
        self.clock.now += later
        sweep(self.driver, lease_ms=LEASE)

    @rule()
    def sweep_thoroughly(self) -> None:
        for _ in range(2):
            self.clock.now += LEASE + 1
            sweep(self.driver, lease_ms=LEASE)
        there = {item.path for folder in ("state", "sources") for item in self.store.list(folder)}
        assert there == self.needed()

    @invariant()
    def all_that_is_needed_is_there(self) -> None:
        there = {item.path for item in self.store.list()}
        assert self.needed() <= there
        fresh = JobLog(self.store, "taxi", self.clock)
        assert [frozenset(referenced(record)) for record in fresh.epochs()] == self.retained[::-1]
        assert {pin.name: frozenset(referenced(pin.record)) for pin in Pins(fresh).list()} == self.pinned

    def needed(self) -> set[str]:
        return {path for paths in (*self.retained, *self.pinned.values()) for path in paths}


class ModelClock:
    now = 4_000_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def referenced(record: EpochRecord) -> list[str]:
    files = [item.path for state in record.operators.values() for item in state.files]
    return files + [item.path for source in record.source_logs.values() for item in source.files]


TestJobFolder = JobFolder.TestCase
TestJobFolder.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
