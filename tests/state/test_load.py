"""What a driver's load says: share of time, rows, how long catching up takes; and how it is kept."""

from __future__ import annotations

import pytest

from tidemark.errors import EngineError
from tidemark.state.heartbeat import Heartbeat, read_heartbeat, write_heartbeat
from tidemark.state.load import EPOCHS, EpochSample, LoadGauge, Waiting, catch_up_ms, load_of
from tidemark.state.pulse import Pulse
from tidemark.state.records import OwnerInfo
from tidemark.state.status import JobStatus, read_status, write_failure, write_status
from tidemark.state.store import JobStore
from tidemark.testing.manual_clock import ManualClock

MINUTE = 60_000


def every(interval: int, took: int, epochs: int) -> list[EpochSample]:
    return [EpochSample(number * interval, number * interval + took, 100, 5) for number in range(epochs)]


def test_a_share_of_the_time() -> None:
    load = load_of(every(10_000, 4_000, 11), 10_000)
    assert load.busy_share == pytest.approx(0.42, abs=0.01)
    assert (load.epoch_ms, load.rows_in, load.rows_out, load.span_ms) == (4_000, 1_100, 55, 104_000)
    assert load_of(every(15_000, 15_000, 5), 10_000).busy_share == 1
    assert load_of([EpochSample(7, 7, 0, 0)], 10_000).busy_share == 0


def test_the_gauge_keeps_the_last_epochs_only() -> None:
    gauge = LoadGauge(10_000)
    gauge.waiting, gauge.intake = {"trips": Waiting(files=3)}, 0.5
    loads = [gauge.add(sample) for sample in every(10_000, 4_000, 3 * EPOCHS)]
    assert [load.epochs for load in loads] == [*range(1, EPOCHS + 1), *[EPOCHS] * 2 * EPOCHS]
    assert (loads[-1].waiting, loads[-1].intake) == ({"trips": Waiting(files=3)}, 0.5)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (60 * MINUTE, 50 * MINUTE, 5 * MINUTE),
        (60 * MINUTE, 60 * MINUTE, None),
        (60 * MINUTE, 61 * MINUTE, None),
        # Watermarks jitter.
        (60 * MINUTE, 60 * MINUTE - 5_000, None),
        # It is there.
        (60 * MINUTE, 20_000, None),
        (None, MINUTE, None),
        (MINUTE, None, None),
    ],
)
def test_how_long_catching_up_takes(before: int | None, now: int | None, expected: int | None) -> None:
    first, last = EpochSample(0, 0, 0, 0, before), EpochSample(MINUTE, MINUTE, 0, 0, now)
    assert catch_up_ms(first, last, 10_000) == expected
    assert catch_up_ms(first, first, 10_000) is None


def test_the_status_keeps_load_and_error(root: JobStore) -> None:
    load = load_of(every(10_000, 4_000, 3), 10_000, intake=0.25, waiting={"trips": Waiting(files=3, bytes=10)})
    status = JobStatus("taxi", "a1", "running", 0, 0, load=load)
    write_status(root, status)
    assert read_status(root, "taxi") == status
    owner = OwnerInfo("host-a", 1, "", "attempt-2")
    error = EngineError("the epoch failed", fix="wait", epoch=7)
    write_failure(root, "taxi", error, owner=owner, at=5)
    found = read_status(root, "taxi")
    assert found is not None
    assert (found.error, found.error_code, found.error_transient, found.error_epoch) == (str(error), "TM502", True, 7)
    assert (found.load, found.owner, found.state) == (None, owner, "failed")
    assert found.with_error(None) == JobStatus("taxi", "a1", "failed", 5, 5, owner=owner)


def test_how_long_an_epoch_takes_does_not_follow_the_time_of_day() -> None:
    clock = ManualClock(1_000_000)
    pulse = Pulse(clock)
    seen = [pulse.busy_ms]
    with pulse.epoch(clock.now_ms()):
        clock.advance(70)
        clock.set(0)
        seen.append(pulse.busy_ms)
    seen.append(pulse.busy_ms)
    assert seen == [None, 70, None]


def test_a_pulse_says_what_is_at_hand(root: JobStore) -> None:
    pulse = Pulse()
    with pulse.epoch(5):
        at_hand = pulse.busy_since, pulse.looked_at
    assert at_hand == (5, 5)
    assert (pulse.busy_since, pulse.looked_at) == (None, 5)
    pulse.looked(9)
    beat = Heartbeat(1, OwnerInfo("host-a", 1), 10, 0, busy_since=5, looked_at=9)
    write_heartbeat(root, beat)
    assert read_heartbeat(root) == beat
    write_heartbeat(root, Heartbeat(1, OwnerInfo("host-a", 1), 10, 0))
    assert b"busy_since" not in root.get("heartbeat.json")
