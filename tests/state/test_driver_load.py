"""What a driver's load says: share of time, rows, how long catching up takes; and how it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tidemark.errors import EngineError
from tidemark.state.log.driver_activity import DriverActivity
from tidemark.state.log.heartbeat import Heartbeat, read_heartbeat, write_heartbeat
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.driver_load import EPOCHS, Backlog, BacklogSample, EpochSample, LoadGauge, Recent, Work, catch_up_ms, load_of
from tidemark.state.status.status import JobStatus, read_status, write_failure, write_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


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
    gauge.waiting, gauge.intake = {"trips": Backlog(files=3)}, 0.5
    loads = [gauge.add(sample) for sample in every(10_000, 4_000, 3 * EPOCHS)]
    assert [load.epochs for load in loads] == [*range(1, EPOCHS + 1), *[EPOCHS] * 2 * EPOCHS]
    assert (loads[-1].waiting, loads[-1].intake) == ({"trips": Backlog(files=3)}, 0.5)


@dataclass(frozen=True)
class Driver:
    """A simulated driver: a trigger, what an epoch reads at most, how long one takes, and when how much arrives."""

    trigger: int
    bound: int
    took: int
    arrivals: Callable[[int], int]
    """How much has arrived by a time, in all."""

    def run(self, until: int) -> list[tuple[BacklogSample, bool]]:
        """Return what is seen after each epoch, and whether it read all there was."""
        now, read, seen = 0, 0, []
        while now < until:
            there = self.arrivals(now) - read
            if there:
                taken = min(there, self.bound)
                read, now = read + taken, now + self.took
                seen.append((BacklogSample(now, {"trips": self.arrivals(now) - read}, {"trips": taken}), taken == there))
            now = max(now, -(-(now + 1) // self.trigger) * self.trigger) if self.took < self.trigger or not there else now
        return seen

    def estimates(self, until: int) -> list[tuple[int, int | None, int | None]]:
        """Return after each epoch: the amount that waits, what the gauge says, and how long it takes in truth (None: it never ends)."""
        seen = self.run(until)
        gauge, found = LoadGauge(self.trigger), []
        for number, (look, _) in enumerate(seen):
            gauge.observe_backlog(look.at, {name: Backlog(files=amount) for name, amount in look.waiting.items()}, read=look.read)
            ends = (later.at - look.at for later, all_read in seen[number + 1 :] if all_read)
            found.append((look.waiting["trips"], gauge.catch_up_ms, next(ends, None)))
        return found


def burst(time: int) -> int:
    """Two a second, and 600 at once after ten minutes."""
    return time // 500 + (600 if time >= 600_000 else 0)


SIMULATED = {
    "a backlog that nobody adds to": Driver(2_000, 2, 500, lambda _: 40),
    "slower than its trigger": Driver(2_000, 2, 3_100, lambda _: 400),
    "a backlog, and steady input": Driver(10_000, 50, 4_000, lambda time: 2_000 + time // 500),
    "a backlog, and input in steps": Driver(10_000, 50, 4_000, lambda time: 2_000 + 60 * (time // 20_000)),
    "a burst into steady input": Driver(10_000, 50, 4_000, burst),
    "a large backlog, no pause between epochs": Driver(1_000, 30, 1_700, lambda time: 3_000 + time // 200),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_the_time_to_catch_up_is_within_a_factor_of_two(name: str) -> None:
    found = SIMULATED[name].estimates(3_600_000)
    behind = [(said, true) for amount, said, true in found if amount > SIMULATED[name].bound]
    shown = [(said, true) for said, true in behind if said is not None]
    assert all(true is not None and true / 2 <= said <= 2 * true for said, true in shown), shown
    # It is known soon: after a burst too, of which the first epochs say nothing.
    assert len(shown) >= len(behind) - 4
    assert len(shown) > 5
    assert all(said is None for amount, said, _ in found if amount <= SIMULATED[name].bound)


@pytest.mark.parametrize(
    "driver",
    [
        Driver(10_000, 50, 4_000, lambda time: 1_000 + time // 100),
        Driver(10_000, 50, 4_000, lambda time: time // 1_000),
        Driver(10_000, 50, 4_000, lambda time: 60 * (time // 60_000)),
    ],
    ids=["more arrives than is read", "all is read each time", "small bursts are read at once"],
)
def test_nothing_is_said_of_what_does_not_shrink_or_is_no_backlog(driver: Driver) -> None:
    assert {said for _, said, _ in driver.estimates(3_600_000)} == {None}


def test_one_source_that_is_behind_at_an_unknown_pace_leaves_all_unknown() -> None:
    shrinking = [BacklogSample(second * 1000, {"trips": 40 - 2 * second, "bikes": 0}, {"trips": 2}) for second in range(5)]
    assert catch_up_ms(shrinking) == 16_000
    growing = [replace(look, waiting={**look.waiting, "bikes": 100 + look.at}) for look in shrinking]
    assert catch_up_ms(growing) is None
    # The slowest counts.
    slow = [replace(look, waiting={**look.waiting, "bikes": 1_000 - look.at // 100}) for look in shrinking]
    assert catch_up_ms(slow) == 96_000


def test_a_pace_that_is_long_ago_says_nothing() -> None:
    gauge = LoadGauge(1_000)
    for second in range(5):
        gauge.observe_backlog(second * 1000, {"trips": Backlog(files=40 - 2 * second)}, read={"trips": 2})
    gauge.observe_backlog(8_000, {"trips": Backlog(files=32)})
    assert gauge.catch_up_ms == 16_000
    gauge.observe_backlog(8_001, {"trips": Backlog(files=32)})
    assert gauge.catch_up_ms is None


def test_the_figures_of_a_job_that_rests_fall_to_nothing() -> None:
    load = load_of(every(2_000, 1_600, EPOCHS), 2_000)
    recent = load.recent(since_ms=3_999)
    assert (recent.busy_share, recent.rows_in, recent.rows_out) == pytest.approx((0.8, 50, 2.5), rel=0.1)
    shares = [load.recent(since_ms=pause).busy_share for pause in range(4_001, 80_000, 1_000)]
    assert shares == sorted(shares, reverse=True)
    assert load.recent(since_ms=load.span_ms) == Recent(0, 0, 0)
    # One long epoch is work, though no other ends.
    assert load.recent(since_ms=30_000, epoch_ms=30_000).busy_share > 0.8
    assert load.recent(since_ms=90_000, epoch_ms=90_000) == Recent(1, 0, 0)
    assert load_of([EpochSample(0, 900, 10, 1)], 2_000).recent(since_ms=4_001) == Recent(0, 0, 0)


def test_the_status_keeps_load_and_error(root: JobStore) -> None:
    load = load_of(every(10_000, 4_000, 3), 10_000, intake=0.25, waiting={"trips": Backlog(files=3, bytes=10)})
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
    activity = DriverActivity(clock)
    seen = [activity.busy_ms]
    with activity.epoch(clock.now_ms()):
        clock.advance(70)
        clock.set(0)
        seen.append(activity.busy_ms)
    seen.append(activity.busy_ms)
    assert seen == [None, 70, None]


def test_a_pulse_says_what_is_at_hand(root: JobStore) -> None:
    activity = DriverActivity()
    with activity.epoch(5):
        at_hand = activity.busy_since, activity.polled_at
    assert at_hand == (5, 5)
    assert (activity.busy_since, activity.polled_at) == (None, 5)
    activity.polled(9)
    beat = Heartbeat(1, OwnerInfo("host-a", 1), 10, 0, busy_since=5, looked_at=9)
    write_heartbeat(root, beat)
    assert read_heartbeat(root) == beat
    write_heartbeat(root, Heartbeat(1, OwnerInfo("host-a", 1), 10, 0))
    assert b"busy_since" not in root.get("heartbeat.json")


def rows_waiting(gauge: LoadGauge) -> int | None:
    return gauge.work.backlog_rows


def test_work_counts_on_and_estimates_the_backlog_in_rows() -> None:
    gauge = LoadGauge(10_000, cores=lambda: 8, max_intake=16.0)
    sources = {"trips": 100, "rides": 50}
    for number in range(3 * EPOCHS):
        work = gauge.add(EpochSample(number * 10_000, number * 10_000 + 4_000, 150, 5, sources), parallelism=2).work
        # A source that reports nothing makes the whole unknown.
        assert work == Work(number + 1, 4_000 * (number + 1), 150 * (number + 1), parallelism=2, cores=8, max_intake=16.0)
    gauge.observe_backlog(1, {"rides": Backlog(rows=70)}, read={"rides": 50})
    assert rows_waiting(gauge) is None
    files = Backlog(files=3, bytes=10)
    gauge.observe_backlog(2, {"trips": files, "rides": Backlog(rows=70)}, read={"trips": 4, "rides": 50})
    assert rows_waiting(gauge) == 70 + 3 * 100 // 4
    gauge.add(EpochSample(0, 1, 0, 0, {"trips": 0, "rides": 0}), parallelism=2)
    gauge.observe_backlog(3, {"trips": files, "rides": Backlog(rows=70)}, read={"trips": 4, "rides": 0})
    assert rows_waiting(gauge) == 145, "an epoch without rows says nothing of files"
    gauge.observe_backlog(4, {"trips": Backlog(files=0), "rides": Backlog(rows=0)})
    assert rows_waiting(gauge) == 0


def test_the_first_backlog_of_files_is_unknown_in_rows() -> None:
    gauge = LoadGauge(10_000)
    gauge.add(EpochSample(0, 1, 0, 0, {"trips": 0}), parallelism=1)
    gauge.observe_backlog(1, {"trips": Backlog(files=3)}, read={"trips": 0})
    assert rows_waiting(gauge) is None
