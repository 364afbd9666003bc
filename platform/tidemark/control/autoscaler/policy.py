"""The autoscaler's policy: from samples of a job's load to a decision. Pure.

Parallelism follows Flink's rule (DS2): a driver's *true processing rate* is what it processes while an epoch runs, and is taken to grow
with the parallelism; the target is the parallelism at which the input, and its backlog within the catch-up time, need the target
utilization. Intake follows the pace: if epochs are short although a backlog stands, an epoch may read more; if they take longer than the
trigger's interval, less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidemark.control.autoscaler.measuring import Measure, measure, peak_needed_rate, same_configuration
from tidemark.control.model.autoscaler_records import LoadSample, ScalingDecision, ScalingEvaluation, ScalingKind
from tidemark.control.model.autoscaler_settings import DAY_MS, AutoscalerSettings
from tidemark.durations import short_duration
from tidemark.spark.sources.intake_limits import MAX_SHARE

MIN_EPOCHS: Final = 3
"""How many epochs a rate is measured over at least."""

MIN_GOAL_MS: Final = 700
"""An epoch's intake is not adapted to a shorter time, which would be mostly the fixed cost of an epoch."""

INEFFECTIVE_MS: Final = 7 * DAY_MS
"""How long it does not scale up again where that was ineffective."""

_SHORT: Final = 1.25
_LONG: Final = 1.5
"""By which factor an epoch must be shorter than its goal, or longer than the trigger's interval, before the intake changes."""

_WINDOW_TRIGGERS: Final = 2 * MIN_EPOCHS
_SPAN_SHARE: Final = 3
"""The share of the metrics window that must have been measured: a third."""


@dataclass(frozen=True)
class Situation:
    """What a decision depends on besides the load.

    Args:
        now: milliseconds.
        trigger_ms: the interval between epochs.
        cores: of the driver, None if unknown.
        max_intake: the greatest share at which its epochs may read more.
        adaptive_intake: whether the driver itself adapts the intake.
        generation: of the job's spec.
        pending: why the driver does not have the spec's values yet; empty if it does.
    """

    now: int
    trigger_ms: int
    cores: int | None = None
    max_intake: float = MAX_SHARE
    adaptive_intake: bool = False
    generation: int = 0
    pending: str = ""


@dataclass(frozen=True)
class Outcome:
    """What the policy found, the decision if one is due, and the earlier decisions, with their gain as far as it is known."""

    evaluation: ScalingEvaluation
    decision: ScalingDecision | None
    earlier: tuple[ScalingDecision, ...]


@dataclass(frozen=True)
class _Target:
    """What parallelism and intake should be, and why."""

    parallelism: int
    intake: float
    reason: str


@dataclass(frozen=True)
class _Load:
    """The measured load of a job with what its target depends on."""

    samples: Sequence[LoadSample]
    stable: Sequence[LoadSample]
    found: Measure
    decisions: tuple[ScalingDecision, ...]
    settings: AutoscalerSettings
    situation: Situation

    @property
    def last(self) -> LoadSample:
        """The newest sample."""
        return self.samples[-1]

    @property
    def utilization(self) -> float | None:
        """The share of what the driver can process that is needed; None if it processed nothing."""
        return self.found.needed_rate(self.settings) / self.found.processing_rate if self.found.processing_rate else None

    @property
    def need(self) -> str:
        """The need as text."""
        if self.utilization is None:
            return "there is no input"
        backlog = f" and a backlog of {self.found.backlog_rows:,} rows" if self.found.standing_rows else ""
        share = f"{self.utilization:.0%} of what parallelism {self.last.parallelism} processes"
        return f"{self.found.input_rate:,.0f} rows/s{backlog} need {share}"

    def intake_was_ineffective(self) -> bool:
        """Return whether the change to the current intake let epochs read no more, as when another bound holds."""
        last, rows = self.last, self.found.rows_per_epoch
        made = next((made for made in reversed(self.decisions) if made.intake == last.intake != made.intake_before), None)
        if made is None or made.intake < made.intake_before or not made.rows_per_epoch or not rows:
            return False
        expected = made.intake / made.intake_before - 1
        return rows / made.rows_per_epoch - 1 < self.settings.effectiveness_threshold * expected


def window_ms(settings: AutoscalerSettings, trigger_ms: int) -> int:
    """Return the metrics window in milliseconds: of a job with a long trigger long enough for some epochs."""
    return max(settings.window_ms, _WINDOW_TRIGGERS * trigger_ms)


def evaluate(
    samples: Sequence[LoadSample], decisions: Sequence[ScalingDecision], settings: AutoscalerSettings, situation: Situation
) -> Outcome:
    """Return what the load of a job asks for, and the decision if one is due.

    Args:
        samples: of the job's load, oldest first; there is one at least.
        decisions: that were made before, oldest first.
        settings: of the job's autoscaler; its mode is not ``off``.
        situation: what else matters.
    """
    last, now = samples[-1], situation.now
    stable = same_configuration(samples)
    window = window_ms(settings, situation.trigger_ms)
    found = _measured(stable, situation, window)
    if now - stable[0].at < settings.stabilization_ms or found is None or not _is_enough(found, settings, window):
        reason = f"measuring: {short_duration(now - stable[0].at)} with parallelism {last.parallelism} and intake {last.intake:.3g}"
        nothing = ScalingEvaluation(
            now, last.parallelism, last.parallelism, last.intake, last.intake, reason, backlog_rows=last.backlog_rows
        )
        return Outcome(nothing, None, tuple(decisions))
    load = _Load(samples, stable, found, tuple(decisions), settings, situation)
    earlier = _with_gain(load)
    target = _target(replace(load, decisions=earlier))
    evaluation = _evaluation(target, load, now)
    kind: ScalingKind = "scaled" if settings.mode == "act" else "advised"
    if not evaluation.has_advice or (kind == "advised" and _was_advised(evaluation, earlier)):
        return Outcome(evaluation, None, earlier)
    held = situation.pending or _held(evaluation, [made for made in earlier if made.kind == kind], settings, now)
    if held:
        return Outcome(replace(evaluation, held=held), None, earlier)
    made = ScalingDecision(
        now,
        kind,
        last.parallelism,
        target.parallelism,
        last.intake,
        target.intake,
        target.reason,
        found.processing_rate,
        found.rows_per_epoch,
        situation.generation,
    )
    return Outcome(evaluation, made, earlier)


def _measured(stable: Sequence[LoadSample], situation: Situation, window: int) -> Measure | None:
    """Return the rates of the metrics window; of all samples of the configuration if epochs are so long that it has too few."""
    recent = measure([sample for sample in stable if sample.at >= situation.now - window], situation.trigger_ms)
    return recent if recent is not None and recent.epochs >= MIN_EPOCHS else measure(stable, situation.trigger_ms)


def _is_enough(found: Measure, settings: AutoscalerSettings, window: int) -> bool:
    """Return whether a measure shows the load: of enough epochs, or of none because there is no input."""
    if found.span_ms * _SPAN_SHARE < min(window, settings.window_ms):
        return False
    return found.epochs >= MIN_EPOCHS or (found.epochs == 0 and not found.backlog_rows)


def _target(load: _Load) -> _Target:
    last = load.last
    parallelism = _parallelism(load)
    intake = _Target(parallelism.parallelism, last.intake, "")
    if not load.situation.adaptive_intake:
        intake = _intake(load, parallelism.parallelism)
    reasons = [parallelism.reason] if parallelism.parallelism != last.parallelism or not intake.reason else []
    return replace(intake, reason="; ".join(filter(None, (*reasons, intake.reason))))


def _parallelism(load: _Load) -> _Target:
    """Return the parallelism that the load asks for."""
    last, settings = load.last, load.settings
    low = settings.min_parallelism
    # A greater one that the user has set stays, unless a bound was set, too.
    high = settings.max_parallelism or max(load.situation.cores or last.parallelism, last.parallelism, low)
    inside = min(max(last.parallelism, low), high)
    if inside != last.parallelism:
        return _Target(inside, last.intake, f"parallelism {last.parallelism} is not between its bounds, {low} and {high}")
    if load.utilization is not None and load.utilization > settings.utilization_max:
        return _scaled_up(load, high)
    if load.utilization is None or load.utilization < settings.utilization_min:
        return _scaled_down(load)
    return _Target(last.parallelism, last.intake, load.need)


def _scaled_up(load: _Load, high: int) -> _Target:
    before, settings, need = load.last.parallelism, load.settings, load.need
    # A load that is still rising counts by its last part.
    end = [sample for sample in load.stable if sample.at >= load.last.at - load.found.span_ms // _SPAN_SHARE]
    parts = filter(None, (load.found, measure(end, load.situation.trigger_ms)))
    needed = max(part.needed_rate(settings, utilization=settings.utilization_target) for part in parts)
    ideal = math.ceil(before * needed / (load.found.processing_rate or needed))
    # Of a small parallelism a factor may be less than the least step.
    wanted = min(ideal, max(math.floor(before * settings.scale_up_max_factor), before + 1), high)
    if wanted <= before:
        return _Target(before, load.last.intake, f"{need}; parallelism {before} is its upper bound")
    ceiling, why = _effective_ceiling(load)
    if ceiling and wanted > ceiling:
        wanted, need = ceiling, f"{need}; {why}"
    return _Target(wanted, load.last.intake, need)


def _scaled_down(load: _Load) -> _Target:
    before, settings, rate = load.last.parallelism, load.settings, load.found.processing_rate
    if before <= settings.min_parallelism:
        return _Target(before, load.last.intake, load.need)
    interval = short_duration(settings.scale_down_interval_ms)
    window = window_ms(settings, load.situation.trigger_ms)
    peak = peak_needed_rate(load.samples, settings, now=load.situation.now, window_ms=window, trigger_ms=load.situation.trigger_ms)
    low = settings.utilization_min / settings.utilization_target
    if peak is None or (peak > low * (rate or 0.0)):
        return _Target(before, load.last.intake, f"{load.need}; before it scales down that must hold for {interval}")
    ideal = math.ceil(before * peak / rate) if rate is not None else 0
    least = math.ceil(before * (1 - settings.scale_down_max_factor))
    if settings.scale_down_max_factor:
        least = min(least, before - 1)
    wanted = max(ideal, least, settings.min_parallelism)
    if wanted >= before:
        return _Target(before, load.last.intake, load.need)
    return _Target(wanted, load.last.intake, f"{load.need}, and in the last {interval} no more than parallelism {wanted} was needed")


def _effective_ceiling(load: _Load) -> tuple[int, str]:
    """Return the greatest parallelism that was not ineffective in the last week, and why it is the greatest; 0 for no such bound."""
    parallelism = load.last.parallelism
    for made in reversed(load.decisions):
        recent = load.situation.now - made.at < INEFFECTIVE_MS
        if recent and parallelism <= made.parallelism and made.is_ineffective(load.settings.effectiveness_threshold):
            gain = f"{made.text} raised the processing rate by {made.gain or 0.0:.0%} only, as with a hot key"
            return max(parallelism, made.parallelism_before), gain
    return 0, ""


def _with_gain(load: _Load) -> tuple[ScalingDecision, ...]:
    """Return the decisions; the newest one has its gain, if the driver has its parallelism and the load is high, so that it shows."""
    made = next((made for made in reversed(load.decisions) if made.parallelism != made.parallelism_before), None)
    rate = load.found.processing_rate
    if made is None or not made.scales_up or made.gain is not None or made.parallelism != load.last.parallelism:
        return load.decisions
    if not made.processing_rate or not rate or (load.utilization or 0.0) <= load.settings.utilization_max:
        return load.decisions
    measured = replace(made, gain=round(rate / made.processing_rate - 1, 4))
    return tuple(measured if item is made else item for item in load.decisions)


def _intake(load: _Load, parallelism: int) -> _Target:
    """Return the intake that epochs of a standing backlog ask for; without one it stays, since epochs then read all there is."""
    last, found, settings = load.last, load.found, load.settings
    unchanged = _Target(parallelism, last.intake, "")
    if not found.epoch_ms or not found.rows_per_epoch or not found.processing_rate or found.standing_rows <= found.rows_per_epoch:
        return unchanged
    # After a change of the parallelism epochs take as much less.
    epoch_ms, rate = found.epoch_ms * last.parallelism / parallelism, found.processing_rate * parallelism / last.parallelism
    spare = found.needed_rate(settings) <= settings.utilization_target * rate
    interval = max(load.situation.trigger_ms, MIN_GOAL_MS)
    goal = max(interval * (settings.utilization_target if spare else 1.0), MIN_GOAL_MS)
    takes = f"{'then ' if parallelism != last.parallelism else ''}an epoch takes {epoch_ms / 1000:.1f} s"
    if epoch_ms * _SHORT < goal and found.read_rate < found.needed_rate(settings):
        if load.intake_was_ineffective():
            return unchanged
        wanted = last.intake * min(goal / epoch_ms, settings.scale_up_max_factor)
        why = f"{takes} only though a backlog of {found.backlog_rows:,} rows stands"
    elif epoch_ms > interval * _LONG and parallelism <= last.parallelism:
        wanted = last.intake * goal / epoch_ms
        why = f"{takes}, its goal is {goal / 1000:.1f} s"
    else:
        return unchanged
    most = min(settings.max_intake, max(load.situation.max_intake, last.intake))
    wanted = round(min(max(wanted, settings.min_intake), most), 6)
    return unchanged if wanted == last.intake else _Target(parallelism, wanted, why)


def _held(evaluation: ScalingEvaluation, made: Sequence[ScalingDecision], settings: AutoscalerSettings, now: int) -> str:
    """Return why a change is not made now, empty if it may be; ``made`` are the decisions of its kind."""
    quiet = settings.quiet_time_at(now)
    if quiet:
        return f"quiet time {quiet} ({settings.zone})"
    # Clocks of machines differ by a little; a decision far ahead is from one that was set back since, and says nothing.
    if made and abs(now - made[-1].at) < settings.stabilization_ms:
        return f"the last change was {short_duration(max(now - made[-1].at, 0))} ago"
    left = settings.max_changes_per_day - sum(abs(now - decision.at) < DAY_MS for decision in made)
    if left <= 0:
        return f"{settings.max_changes_per_day} changes in the last 24 hours"
    grows = evaluation.recommended_parallelism > evaluation.parallelism or evaluation.recommended_intake > evaluation.intake
    if left <= settings.max_changes_per_day // 2 and not grows:
        return f"the last {left} of {settings.max_changes_per_day} changes in 24 hours are kept for scaling up"
    return ""


def _was_advised(evaluation: ScalingEvaluation, decisions: Sequence[ScalingDecision]) -> bool:
    """Return whether the newest decision recommends the same already, or another intake that hardly differs."""
    made = decisions[-1] if decisions else None
    if made is None or made.kind != "advised":
        return False
    current = (evaluation.parallelism, evaluation.recommended_parallelism, evaluation.intake)
    same = (made.parallelism_before, made.parallelism, made.intake_before) == current
    return same and 1 / _LONG < evaluation.recommended_intake / made.intake < _LONG


def _evaluation(target: _Target, load: _Load, now: int) -> ScalingEvaluation:
    last, found = load.last, load.found
    return ScalingEvaluation(
        now,
        last.parallelism,
        target.parallelism,
        last.intake,
        target.intake,
        target.reason,
        utilization=round(load.utilization, 4) if load.utilization is not None else None,
        input_rate=round(found.input_rate, 3),
        processing_rate=round(found.processing_rate, 3) if found.processing_rate is not None else None,
        backlog_rows=last.backlog_rows,
    )
