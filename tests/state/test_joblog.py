from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import pytest

from tidemark.errors import CorruptStoreError, FencedError, FormatError, JobRunningError, StateMismatchError, StoreError
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.gc.pins import Pins
from tidemark.state.gc.retention import plan_retention, retire
from tidemark.state.gc.sweep import kept_epochs
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.records import EpochRecord, OwnerInfo, ParentRef, StateFile
from tidemark.state.store.layout import HEARTBEAT, floor_path, record_path
from tidemark.state.store.store import JobStore

MakeRecord = Callable[..., EpochRecord]
MakeFile = Callable[..., StateFile]


class Clock(Protocol):
    now: int

    def now_ms(self) -> int: ...
    def monotonic(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


def test_an_empty_log_has_no_head(log: JobLog) -> None:
    head = log.load()
    assert (head.next_slot, head.term, head.epoch) == (0, 0, None)
    assert list(log.epochs()) == []


def test_a_driver_goes_on_from_the_head(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    first = log.acquire(owner)
    assert (first.term, first.head.epoch) == (1, None)
    records = [make_record(epoch) for epoch in range(3)]
    for record in records:
        first.append(record)
    first.release()
    second = log.acquire(owner)
    assert (second.term, second.head.epoch) == (2, records[-1])
    head = log.load()
    assert (head.next_slot, head.term, head.epoch) == (5, 2, records[-1])
    second.append(make_record(3, term=2))
    assert [record.epoch for record in log.epochs()] == [3, 2, 1, 0]
    assert log.read(1) == records[1]
    assert log.read(1, lineage="other") is None
    assert log.read(9) is None


def test_segments_go_on_across_drivers(log: JobLog, owner: OwnerInfo, make_record: MakeRecord, make_file: MakeFile) -> None:
    files = tuple(make_file(number) for number in range(300))
    driver = log.acquire(owner)
    driver.append(make_record(0, files=files))
    written = log.store.list("segments")
    assert len(written) == 1
    driver.release()
    driver = log.acquire(owner)
    driver.append(make_record(1, term=2, files=(*files[10:], make_file(400, epoch=1))))
    # The new driver builds on the segment that the head names and need not write the list again.
    assert log.store.list("segments") == written
    found = JobLog(log.store, "taxi").load().epoch
    assert found is not None
    assert found.operators["hourly"].files == (*files[10:], make_file(400, epoch=1))


def test_a_segment_that_many_epochs_and_pins_build_on_is_decoded_once(
    log: JobLog, owner: OwnerInfo, make_record: MakeRecord, make_file: MakeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(make_file(number) for number in range(300))
    driver = log.acquire(owner)
    for epoch in range(20):
        driver.append(make_record(epoch, files=files[epoch:]))
    for epoch in range(5, 15):
        Pins(log).put(f"p{epoch}", epoch)
    decoded: list[str] = []

    def noting(data: bytes, **given: object) -> object:
        decoded.append(str(given["path"]))
        return decode_envelope(data, **given)  # type: ignore[arg-type]

    monkeypatch.setattr("tidemark.state.log.epoch_codec.decode_envelope", noting)
    kept = kept_epochs(JobLog(log.store, "taxi"))
    assert [each.record.operators["hourly"].files for each in kept.retained] == [files[epoch:] for epoch in reversed(range(20))]
    assert [path for path in decoded if path.startswith("segments/")] == [file.path for file in log.store.list("segments")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"epoch": 5}, "epoch 1 of lineage"),
        ({"epoch": 0}, "epoch 1 of lineage"),
        ({"term": 2}, "term 1"),
        ({"job": "other"}, "job 'taxi'"),
        ({"lineage": "b2"}, "a parent"),
    ],
)
def test_a_record_must_follow_the_last(
    change: dict[str, object], expected: str, log: JobLog, owner: OwnerInfo, make_record: MakeRecord
) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    with pytest.raises(StateMismatchError, match=expected):
        driver.append(replace(make_record(1), **change))  # type: ignore[arg-type]
    assert log.load().next_slot == 2


def test_a_new_lineage_may_go_back(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    for epoch in range(3):
        driver.append(make_record(epoch))
    forked = replace(make_record(1, lineage="b2"), parent=ParentRef("a1", 0))
    driver.append(forked)
    assert log.load().epoch == forked
    assert log.read(1) == forked
    assert log.read(1, lineage="a1") == make_record(1)


@pytest.mark.parametrize("damage", [b"", b"{", b"{}"])
def test_a_damaged_newest_record_is_refused_not_skipped(damage: bytes, log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    driver.append(make_record(1))
    driver.release()
    log.store.put(record_path(2), damage)
    for attempt in (log.load, lambda: log.acquire(owner), lambda: next(log.epochs())):
        with pytest.raises(CorruptStoreError, match=r"000000000002.json.*job 'taxi'"):
            attempt()
    assert not log.store.exists(record_path(3))


def test_a_newer_format_is_refused(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    driver.release()
    log.store.put(record_path(1), b'{"format":2}')
    with pytest.raises(FormatError, match="format 2"):
        log.acquire(owner)


def test_a_record_of_another_job_is_refused(log: JobLog, owner: OwnerInfo, root: JobStore, make_record: MakeRecord) -> None:
    other = JobLog(root.at("other"), "other", log.clock).acquire(owner)
    other.append(make_record(0, job="other"))
    log.store.put(record_path(0), root.get(f"other/{record_path(1)}"))
    with pytest.raises(CorruptStoreError, match="belongs to job 'other'"):
        log.load()


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_record_is_an_error(missing: int, log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    for epoch in range(3):
        driver.append(make_record(epoch))
    driver.release()
    log.store.delete([record_path(missing)])
    with pytest.raises(CorruptStoreError, match=f"slot {missing} is missing"):
        log.acquire(owner)


def test_a_missing_newest_record_shows_by_the_heartbeat(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0))
    driver.append(make_record(1))
    driver.release()
    log.store.delete([record_path(2)])
    with pytest.raises(CorruptStoreError, match=r"000000000002.json is missing; the driver of term 1 wrote it"):
        log.acquire(owner)


def test_a_missing_segment_is_an_error(log: JobLog, owner: OwnerInfo, make_record: MakeRecord, make_file: MakeFile) -> None:
    driver = log.acquire(owner)
    driver.append(make_record(0, files=tuple(make_file(number) for number in range(300))))
    driver.release()
    log.store.delete([file.path for file in log.store.list("segments")])
    with pytest.raises(CorruptStoreError, match=r"segments/.* is missing"):
        JobLog(log.store, "taxi", log.clock).acquire(owner)


def test_of_two_drivers_only_one_begins(root: JobStore, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock) -> None:
    for round_ in range(20):
        store, barrier = root.at(f"job{round_}"), threading.Barrier(2)
        outcomes: list[object] = []

        def begin(who: OwnerInfo, store: JobStore = store, barrier: threading.Barrier = barrier, out: list[object] = outcomes) -> None:
            barrier.wait()
            try:
                out.append(JobLog(store, "taxi", clock).acquire(who).term)
            except JobRunningError as error:
                out.append(str(error))

        threads = [threading.Thread(target=begin, args=(who,)) for who in (owner, elsewhere)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(str(outcome)[:9] for outcome in outcomes) == ["1", "[TM410] t"]


def test_of_two_drivers_racing_for_a_slot_one_is_fenced(
    root: JobStore, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock, make_record: MakeRecord
) -> None:
    for round_ in range(20):
        log = JobLog(root.at(f"job{round_}"), "taxi", clock)
        old = log.acquire(owner)
        barrier = threading.Barrier(2)
        outcomes: list[str] = []

        def commit(old: Driver = old, barrier: threading.Barrier = barrier, outcomes: list[str] = outcomes) -> None:
            barrier.wait()
            try:
                old.append(make_record(0))
                outcomes.append("committed")
            except FencedError:
                outcomes.append("fenced")

        thread = threading.Thread(target=commit)
        thread.start()
        barrier.wait()
        new = JobLog(log.store, "taxi", clock).acquire(elsewhere, takeover=True)
        thread.join()
        # Either the epoch was committed before the takeover, and the new driver goes on from it, or it never was.
        assert (outcomes == ["committed"]) == (new.head.epoch is not None)
        with pytest.raises(FencedError):
            old.append(make_record(1 if outcomes == ["committed"] else 0))


def test_a_fenced_driver_learns_by_whom(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, make_record: MakeRecord) -> None:
    old = log.acquire(owner)
    old.append(make_record(0))
    new = log.acquire(elsewhere, takeover=True)
    assert (new.term, new.head.epoch) == (2, make_record(0))
    attempts: tuple[Callable[[], None], ...] = (lambda: old.append(make_record(1)), old.confirm, old.beat)
    for attempt in attempts:
        with pytest.raises(FencedError, match=r"term 2, process 4711 on host 'another-host'.*Fix: "):
            attempt()
    old.release()
    new.append(make_record(1, term=2))
    new.confirm()
    with pytest.raises(JobRunningError, match="another-host"):
        log.acquire(owner)


def test_a_driver_that_slept_through_retention_cannot_commit(
    log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, make_record: MakeRecord
) -> None:
    old = log.acquire(owner)
    new = log.acquire(elsewhere, takeover=True)
    for epoch in range(10):
        new.append(make_record(epoch, term=2))
        retire(new, retained_epochs=3)
    # The old driver's next slot was taken and has been deleted since: it is empty, but not free.
    assert not log.store.exists(record_path(1))
    with pytest.raises(FencedError):
        old.append(make_record(0))
    with pytest.raises(FencedError):
        old.confirm()
    assert not log.store.exists(record_path(1))
    assert [record.epoch for record in log.epochs()] == [9, 8, 7]


def test_the_same_append_again_is_the_same_commit(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    """A put whose answer was lost: the driver appends the same record to the same slot again."""
    driver = log.acquire(owner)
    driver.append(make_record(0))
    data = log.store.get(record_path(1))
    assert log.slots.append(1, data)
    assert not log.slots.append(1, encode_envelope("epoch", {}))
    assert log.store.get(record_path(1)) == data


def test_an_unknown_outcome_then_another_record_is_not_called_fenced(
    log: JobLog, owner: OwnerInfo, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = log.acquire(owner)
    real = JobStore.create

    def lost_answer(self: JobStore, path: str, data: bytes) -> None:
        real(self, path, data)
        raise StoreError("the connection broke", fix="try again")

    with monkeypatch.context() as patch:
        patch.setattr(JobStore, "create", lost_answer)
        with pytest.raises(StoreError):
            driver.append(make_record(0))
    with pytest.raises(StoreError, match="without learning so"):
        driver.append(replace(make_record(0), code_version="other"))
    driver.append(make_record(0))
    assert log.load().epoch == make_record(0)


def test_retention_keeps_the_newest_and_one_contiguous_run(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    for epoch in range(12):
        driver.append(make_record(epoch))
        retire(driver, retained_epochs=5)
    assert [record.epoch for record in log.epochs()] == [11, 10, 9, 8, 7]
    driver.release()
    # A new driver learns the slots from the log.
    driver = log.acquire(owner)
    driver.append(make_record(12, term=2))
    assert retire(driver, retained_epochs=5) == 1
    assert [record.epoch for record in log.epochs()] == [12, 11, 10, 9, 8]
    assert len(log.store.list("log")) == 6 + 2
    log.store.delete([record_path(9)])
    with pytest.raises(CorruptStoreError, match="slot 9 is missing"):
        log.load()


def test_a_crash_inside_retention_is_finished_by_the_next(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    for epoch in range(6):
        driver.append(make_record(epoch))
    log.slots.raise_floor(4)
    log.store.delete([record_path(2)])
    assert [record.epoch for record in log.epochs()] == [5, 4, 3]
    driver.release()
    driver = log.acquire(owner)
    driver.append(make_record(6, term=2))
    retire(driver, retained_epochs=3)
    assert [file.path for file in log.store.list("log") if file.path.endswith(".json")] == [record_path(s) for s in (5, 6, 7, 8)]


def test_a_log_whose_records_are_all_gone_is_not_an_empty_log(log: JobLog, owner: OwnerInfo) -> None:
    log.store.put(floor_path(9), b"")
    with pytest.raises(CorruptStoreError, match="all records from slot 9 on are missing"):
        log.acquire(owner)


def test_a_damaged_old_record_stops_its_readers_but_not_retention(log: JobLog, owner: OwnerInfo, make_record: MakeRecord) -> None:
    driver = log.acquire(owner)
    for epoch in range(4):
        driver.append(make_record(epoch))
    log.store.put(record_path(2), b"damaged")
    with pytest.raises(CorruptStoreError):
        list(log.epochs())
    retire(driver, retained_epochs=2)
    assert [record.epoch for record in log.epochs()] == [3, 2]


def test_a_fenced_driver_retires_nothing(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, make_record: MakeRecord) -> None:
    old = log.acquire(owner)
    for epoch in range(4):
        old.append(make_record(epoch))
    log.acquire(elsewhere, takeover=True)
    with pytest.raises(FencedError):
        retire(old, retained_epochs=1)
    assert len(list(log.epochs())) == 4


@pytest.mark.parametrize(
    ("slots", "retained", "slack", "floor"),
    [
        ((), 5, 0, None),
        ((1, 2, 3), 3, 0, None),
        ((1, 2, 4, 5), 2, 0, 4),
        ((1, 2, 4), 2, 1, None),
        ((1, 2, 4, 5), 2, 1, 4),
        ((1, 2), 0, 0, 2),
    ],
)
def test_plan_retention(slots: tuple[int, ...], retained: int, slack: int, floor: int | None) -> None:
    assert plan_retention(slots, retained_epochs=retained, slack=slack) == floor


def test_releasing_and_a_damaged_heartbeat_do_not_block(log: JobLog, owner: OwnerInfo, elsewhere: OwnerInfo, clock: Clock) -> None:
    log.acquire(elsewhere)
    log.store.put(HEARTBEAT, b"{damaged")
    # The claim itself is still a fresh sign of life.
    with pytest.raises(JobRunningError):
        log.acquire(owner)
    clock.now += 30_000
    assert log.acquire(owner).term == 2
