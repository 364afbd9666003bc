"""What holds of the autoscaler's decisions for any load and any settings."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.autoscaler.simulated_job import DAY, HOUR, MINUTE, SimulatedJob, levels, with_settings
from tests.seeds import times
from tidemark.control.model.autoscaler_settings import AutoscalerSettings, check_autoscaler

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""A simulation takes too long to be repeated for a lesser example."""

LEVELS = st.lists(st.tuples(st.integers(1, 30 * 60), st.floats(0, 20_000)), max_size=8)
SETTINGS = st.builds(
    lambda low, more, intake, **others: with_settings(
        min_parallelism=low, max_parallelism=None if more is None else low + more, min_intake=intake, **others
    ),
    st.integers(1, 6),
    st.none() | st.integers(0, 12),
    st.sampled_from([1 / 64, 0.5, 1.0]),
    max_intake=st.sampled_from([1.0, 2.0, 16.0]),
    mode=st.sampled_from(["act", "advise"]),
    max_changes_per_day=st.integers(0, 6),
    stabilization_ms=st.sampled_from([0, 5 * MINUTE, 20 * MINUTE]),
    scale_down_interval_ms=st.sampled_from([10 * MINUTE, HOUR]),
    quiet_times=st.sampled_from([(), ("22:00-06:00",), ("Mon 03:00-09:30", "Tue 00:00-24:00")]),
)


@settings(max_examples=times(30, dev=15), deadline=None, phases=PHASES)
@given(
    loads=LEVELS,
    chosen=SETTINGS,
    cores=st.integers(1, 16),
    parallelism=st.integers(1, 20),
    exponent=st.floats(0, 1.2),
    rows_per_epoch=st.sampled_from([500.0, 20_000.0, 1e6]),
    knows_backlog=st.booleans(),
    backlog=st.sampled_from([0.0, 1e6, 1e8]),
)
def test_bounds_limits_and_quiet_times_hold(
    loads: list[tuple[int, float]],
    chosen: AutoscalerSettings,
    *,
    cores: int,
    parallelism: int,
    exponent: float,
    rows_per_epoch: float,
    knows_backlog: bool,
    backlog: float,
) -> None:
    check_autoscaler(chosen)
    load = levels((0, 400), *sorted(loads))
    made = SimulatedJob(
        load,
        chosen,
        cores=cores,
        parallelism=parallelism,
        capacity=lambda count: 1_000 * count**exponent,
        rows_per_epoch=rows_per_epoch,
        knows_backlog=knows_backlog,
        backlog=backlog,
    ).run(30 * HOUR)
    require_bounds(made, parallelism, cores)
    for before, after in zip(made.decisions, made.decisions[1:], strict=False):
        assert after.at - before.at >= chosen.stabilization_ms
    for decision in made.decisions:
        assert decision.text, "it changes something"
        assert decision.reason
        assert chosen.quiet_time_at(decision.at) == ""
        assert sum(decision.at <= later.at < decision.at + DAY for later in made.decisions) <= chosen.max_changes_per_day
        assert decision.kind == ("scaled" if chosen.mode == "act" else "advised")
    if chosen.mode == "advise":
        assert (made.parallelism, made.intake) == (parallelism, 1.0)


def require_bounds(made: SimulatedJob, parallelism: int, cores: int) -> None:
    """Check that nothing is recommended beyond the bounds."""
    chosen = made.settings
    high = chosen.max_parallelism or max(cores, parallelism, chosen.min_parallelism)
    for found in made.evaluations:
        if found.recommended_parallelism != found.parallelism:
            assert chosen.min_parallelism <= found.recommended_parallelism <= high
        if found.recommended_intake != found.intake:
            assert chosen.min_intake <= found.recommended_intake <= chosen.max_intake


@settings(max_examples=times(50, dev=20), deadline=None, phases=PHASES)
@given(
    share=st.floats(0.45, 0.85),
    parallelism=st.integers(1, 16),
    rate=st.floats(50, 5_000),
    trigger_ms=st.sampled_from([1_000, 10_000, 60_000]),
    knows_backlog=st.booleans(),
)
def test_a_steady_load_within_the_band_changes_nothing(
    share: float, parallelism: int, rate: float, *, trigger_ms: int, knows_backlog: bool
) -> None:
    job = SimulatedJob(
        lambda _: share * rate * parallelism,
        parallelism=parallelism,
        capacity=lambda count: rate * count,
        rows_per_epoch=1e12,
        trigger_ms=trigger_ms,
        fixed_ms=0,
        knows_backlog=knows_backlog,
    ).run(5 * HOUR)
    assert job.decisions == []
    assert not any(found.has_advice for found in job.evaluations)


@settings(max_examples=times(50, dev=20), deadline=None, phases=PHASES)
@given(load=st.integers(50, 15_000), rate=st.integers(200, 3_000), cores=st.integers(1, 32), parallelism=st.integers(1, 32))
def test_a_steady_load_converges_to_the_band_or_a_bound(load: int, rate: int, cores: int, parallelism: int) -> None:
    chosen = with_settings(max_changes_per_day=12, scale_up_max_factor=32.0)
    job = SimulatedJob(
        lambda _: load, chosen, cores=cores, parallelism=parallelism, capacity=lambda count: rate * count, rows_per_epoch=60 * load
    ).run(20 * HOUR)
    utilization = load / (rate * job.parallelism)
    assert utilization <= 0.9 or job.parallelism == max(cores, parallelism), job.decisions
    # One fewer would not do; the fixed cost of an epoch, 0.02 of the time, counts as load.
    assert utilization >= 0.37 or job.parallelism == 1 or load / (rate * (job.parallelism - 1)) > 0.67, job.decisions
    assert all(decision.at < job.now - 8 * HOUR for decision in job.decisions), "and stays there"
