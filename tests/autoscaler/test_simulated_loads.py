"""The autoscaler over whole loads, by simulation: it converges, keeps its bounds, catches up in time, and changes little."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.autoscaler.simulated_job import DAY, HOUR, MINUTE, MONDAY, SimulatedJob, levels, with_settings
from tests.autoscaler.taxi_weeks import MONTHS, by_half_hours, generated_rides, real_rides

CATCH_UP = 30 * MINUTE
REACTION = 12 * MINUTE
"""Until two changes are made: twice the stabilization interval, and the time until a rate is known."""


@pytest.mark.parametrize(
    ("rides", "minutes"),
    [
        pytest.param(generated_rides, 4, id="generated"),
        pytest.param(
            real_rides,
            2,
            id="real",
            marks=pytest.mark.skipif(not MONTHS.is_dir(), reason=f"the months of taxi records are not at {MONTHS}"),
        ),
    ],
)
def test_a_week_of_taxi_rides_is_followed_with_four_changes_a_day(rides: Callable[[], Iterator[int]], minutes: int) -> None:
    """Rides that end, by half hours of a week, 60 rows for each; at the peak ten times what one partition does."""
    job = SimulatedJob(by_half_hours(rides(), rows_per_ride=60)).run(7 * DAY)
    # On the first day four changes from one partition on may not be enough for the evening; what is left is read first on the second.
    assert max(rows for at, rows in job.backlogs if at > DAY + 2 * HOUR) < 10_000 * 60 * minutes, "never more than minutes of the peak"
    begins = [made.at - MONDAY for made in job.decisions]
    assert max(job.changes_in(begin, begin + DAY) for begin in begins) <= 4
    assert max(job.parallelisms) >= 12, "it follows the peaks"
    assert sum(made.parallelism < made.parallelism_before for made in job.decisions) >= 5, "and the nights"
    mean = sum(found.parallelism for found in job.evaluations) / len(job.evaluations)
    assert mean < 0.8 * max(job.parallelisms), "a fifth less than the peak needs"


def test_a_burst_is_caught_up_and_given_back_when_it_is_over() -> None:
    job = SimulatedJob(levels((0, 500), (60, 6_000), (120, 500))).run(3 * DAY)
    assert max(job.parallelisms) >= 6
    assert job.backlog_at(HOUR + REACTION + CATCH_UP + 10 * MINUTE) < 60_000, "the burst goes on, and nothing is left behind"
    assert job.parallelism == 1
    assert len(job.decisions) <= 6


def test_an_overload_beyond_the_bounds_is_said_and_not_acted_on_again() -> None:
    job = SimulatedJob(levels((0, 9_000)), cores=4).run(2 * DAY)
    assert job.parallelism == 4
    assert [made.parallelism for made in job.decisions if made.scales_up] == [4]
    assert all(made.at - MONDAY < HOUR for made in job.decisions)
    assert "parallelism 4 is its upper bound" in job.evaluations[-1].reason
    assert not job.evaluations[-1].has_advice
    busy = [later.busy_ms - before.busy_ms for before, later in zip(job.samples, job.samples[1:], strict=False)]
    assert sum(busy) >= 0.99 * (job.samples[-1].at - job.samples[0].at), "a shorter epoch must not slow an overloaded job down"


def test_an_oscillating_load_moves_it_once() -> None:
    """Ten minutes below what one partition does, ten minutes above."""
    job = SimulatedJob(lambda at: 700.0 + 600 * (at // (10 * MINUTE) % 2)).run(4 * DAY)
    assert job.parallelisms == [2]


@pytest.mark.parametrize("backlog", [3_000_000, 5_000_000, 9_000_000])
def test_a_backlog_after_an_outage_is_read_within_the_catch_up_time(backlog: int) -> None:
    settings = with_settings(scale_up_max_factor=16.0)
    job = SimulatedJob(levels((0, 600)), settings, backlog=backlog).run(2 * HOUR)
    assert job.backlog_at(REACTION + CATCH_UP) < 60_000
    assert job.changes_in(0, 20 * MINUTE) <= 2


def test_epochs_may_read_more_if_they_are_short_and_a_backlog_stands() -> None:
    """Four partitions would process 4,000 rows/s, and an epoch may read 5,000 in ten seconds."""
    job = SimulatedJob(levels((0, 400)), backlog=2_000_000, rows_per_epoch=5_000, parallelism=4).run(45 * MINUTE)
    assert (job.parallelism, job.intake) == (4, 4.0)
    assert job.backlog_at(REACTION + CATCH_UP) < 30_000
    assert "an epoch takes 1.4 s only though a backlog" in job.decisions[0].reason


def test_epochs_read_less_if_they_are_long() -> None:
    job = SimulatedJob(levels((0, 600)), backlog=3_000_000, cores=1).run(HOUR)
    [made] = job.decisions
    assert "an epoch takes 100.2 s, its goal is 10.0 s" in made.reason
    later = [found for found in job.samples if found.at > made.at + 5 * MINUTE]
    assert (later[-1].busy_ms - later[0].busy_ms) / (later[-1].epochs - later[0].epochs) == pytest.approx(10_000, rel=0.1)


def test_a_bound_that_intake_cannot_raise_is_noticed() -> None:
    job = SimulatedJob(levels((0, 300)), backlog=3_000_000, rows_per_epoch=5_000, own_bound=5_000, parallelism=4).run(DAY)
    assert [made.intake for made in job.decisions if made.intake != made.intake_before] == [4.0]


def test_a_hot_key_is_noticed_and_scaling_up_not_repeated() -> None:
    job = SimulatedJob(levels((0, 3_000)), capacity=lambda parallelism: 1_000.0 + 20 * parallelism).run(6 * DAY)
    assert [made.parallelism for made in job.decisions if made.scales_up] == [4]
    assert job.decisions[0].gain == pytest.approx(0.06, abs=0.01)
    assert "parallelism 1 -> 4 raised the processing rate by 6% only" in job.evaluations[-1].reason


def test_a_change_that_helped_may_be_followed_by_another_one() -> None:
    job = SimulatedJob(levels((0, 900), (120, 2_700), (240, 8_000))).run(6 * HOUR)
    assert job.parallelisms == sorted(job.parallelisms)
    assert job.parallelism >= 9
    assert all(made.gain is None or made.gain > 0.2 for made in job.decisions)


def test_without_input_it_goes_down_to_the_lower_bound() -> None:
    settings = with_settings(min_parallelism=2)
    job = SimulatedJob(levels((0, 5_000), (180, 0)), settings, parallelism=8).run(2 * DAY)
    assert job.parallelism == 2
    assert "there is no input" in job.decisions[-1].reason


def test_small_factors_change_a_small_parallelism_by_one() -> None:
    settings = with_settings(scale_up_max_factor=1.5, scale_down_max_factor=0.2)
    job = SimulatedJob(levels((0, 1_500), (120, 100)), settings, backlog=100_000).run(DAY)
    assert job.parallelisms == [2, 1]
    job = SimulatedJob(levels((0, 100)), with_settings(scale_down_max_factor=0.0), parallelism=3).run(DAY)
    assert job.parallelisms == []


def test_a_source_that_reports_no_backlog_is_followed_by_how_busy_the_job_is() -> None:
    job = SimulatedJob(levels((0, 3_000)), cores=8, knows_backlog=False).run(3 * HOUR)
    assert 4 <= job.parallelism <= 8
    assert job.backlog < 60_000
    assert len(job.decisions) <= 4


def test_it_changes_nothing_in_a_quiet_time_and_acts_when_it_is_over() -> None:
    settings = with_settings(quiet_times=("Mon-Fri 08:00-18:00",), zone="Europe/Berlin")
    # 06:30 to 18:00 in Berlin, in winter.
    job = SimulatedJob(levels((0, 500), (390, 3_000), (1020, 500)), settings).run(DAY)
    quiet = (7 * HOUR, 17 * HOUR)
    assert job.changes_in(*quiet) == 0
    job = SimulatedJob(levels((0, 500), (450, 3_000)), settings).run(DAY)
    assert job.changes_in(*quiet) == 0
    held = [found for found in job.evaluations if found.held]
    assert held[0].held == "quiet time Mon-Fri 08:00-18:00 (Europe/Berlin)"
    assert held[0].recommended_parallelism > 1, "what it would do is said"
    assert job.decisions[0].at - MONDAY == 17 * HOUR


def test_advice_changes_nothing_and_is_given_once() -> None:
    job = SimulatedJob(levels((0, 700)), with_settings(mode="advise"), backlog=100_000).run(3 * HOUR)
    assert job.decisions == []
    job = SimulatedJob(lambda _: 3_000.0, with_settings(mode="advise"), cores=4).run(3 * HOUR)
    assert (job.parallelism, job.intake) == (1, 1.0)
    assert [made.kind for made in job.decisions] == ["advised"] * len(job.decisions)
    assert job.decisions[0].parallelism == 4
    assert len(job.decisions) <= 2, "the second with another intake"
    assert job.evaluations[-1].recommended_parallelism == 4


def test_another_driver_is_measured_from_its_start() -> None:
    job = SimulatedJob(levels((0, 800))).run(2 * HOUR)
    job.restart()
    job.load = levels((0, 3_000))
    began = job.now
    job.run(HOUR)
    assert job.decisions[0].at - began >= job.settings.stabilization_ms
    assert job.parallelism >= 4
