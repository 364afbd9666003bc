"""The autoscaler of a store's jobs: after each pass of a supervisor it samples their load, decides, and acts by their specs.

Any number may run at once. Each result is a numbered record that only one of them creates, and a decision is in the record before it is
acted on: after a crash between the two, the next pass writes the spec, within a metrics window and while no upgrade is under way.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.autoscaler.policy import Situation, evaluate, window_ms
from tidemark.control.desired.spec_store import change_spec, require_spec
from tidemark.control.model.autoscaler_records import KEPT_DECISIONS, AutoscalerRecord, LoadSample, ScalingDecision, create_record
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.observed.observe import Observation
from tidemark.errors import TidemarkError
from tidemark.state.log.joblog import DEFAULT_LEASE_MS
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

ACTOR: Final = "autoscaler"
"""The author of the generations that it writes."""


class Autoscaler:
    """Samples, decides and acts, pass by pass.

    Args:
        store: the root store.
        clock: processing time.
    """

    def __init__(self, store: JobStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._clock = clock
        self._known_errors: dict[str, str] = {}

    def advance(self, observations: Iterable[Observation]) -> Mapping[str, ScalingDecision]:
        """Sample the jobs whose next sample is due; returns the decisions that were made, by job.

        An error of one job is logged, once while it lasts, and does not affect the others.

        Args:
            observations: of the jobs, just made.
        """
        return dict(self._decisions(observations))

    def _decisions(self, observations: Iterable[Observation]) -> Iterator[tuple[str, ScalingDecision]]:
        for seen in observations:
            try:
                made = self._advance(seen)
            except TidemarkError as error:
                if self._known_errors.get(seen.job) != str(error):
                    logger.warning("%s cannot be scaled: %s", seen.job, error)
                self._known_errors[seen.job] = str(error)
                continue
            self._known_errors.pop(seen.job, None)
            if made is not None:
                yield seen.job, made

    def _advance(self, seen: Observation) -> ScalingDecision | None:
        spec = seen.generation
        if spec is None or spec.spec.autoscaler.mode == "off":
            return None
        record = seen.autoscaler or AutoscalerRecord(seen.job)
        last = record.decisions[-1] if record.decisions else None
        now, fresh_ms = self._clock.now_ms(), window_ms(spec.spec.autoscaler, spec.spec.trigger_ms)
        if last is not None and last.kind == "scaled" and last.generation == spec.generation and now - last.at < fresh_ms:
            # Its record was written and its spec was not. Later the load is another one, and is measured again.
            if seen.active_upgrade is None:
                self._act(seen.job, last)
            return None
        sample = sample_of(seen, now)
        # A clock that was set back must not stop the samples.
        if sample is None or 0 <= now - record.at < spec.spec.autoscaler.sample_interval_ms or _waits_for_epoch(seen, record, sample):
            return None
        after, made = _next_record(record, sample, spec, seen)
        if not create_record(self._store, after, seen.autoscaler_number + 1):
            return None
        if made is not None:
            logger.info("%s: %s %s: %s", seen.job, made.kind, made.text, made.reason)
            if made.kind == "scaled":
                self._act(seen.job, made)
        return made

    def _act(self, job: str, made: ScalingDecision) -> None:
        """Write a decision into the job's spec, unless somebody has changed that since."""

        def change(newest: SpecGeneration | None) -> JobSpec:
            found = newest or require_spec(self._store, job)
            return found.spec if found.generation != made.generation else with_decision(found.spec, made)

        change_spec(self._store, job, change, by=ACTOR, why=made.reason, clock=self._clock)


def with_decision(spec: JobSpec, made: ScalingDecision) -> JobSpec:
    """Return a spec with what a decision changes."""
    if made.parallelism != made.parallelism_before:
        spec = replace(spec, parallelism=made.parallelism)
    return replace(spec, intake=made.intake) if made.intake != made.intake_before else spec


def sample_of(seen: Observation, now: int) -> LoadSample | None:
    """Return a sample of a job's load; None if no driver runs that reports it, or an upgrade is under way."""
    spec, driver, beat = seen.generation, seen.current_driver_status, seen.current_heartbeat
    if spec is None or spec.spec.wanted != "running" or seen.active_upgrade is not None or seen.process == "gone":
        return None
    if driver is None or driver.state != "running" or driver.load is None or beat is None or abs(now - beat.at) >= DEFAULT_LEASE_MS:
        return None
    work = driver.load.work
    if work is None or not work.parallelism:
        return None
    run = driver.owner.run_id if driver.owner is not None else ""
    return LoadSample(
        now,
        f"{run}@{driver.started_at}",
        work.epochs,
        work.busy_ms,
        work.rows_in,
        work.parallelism,
        driver.load.intake,
        work.backlog_rows,
    )


def _waits_for_epoch(seen: Observation, record: AutoscalerRecord, sample: LoadSample) -> bool:
    """Return whether the counters stand still only because a long epoch runs."""
    beat = seen.current_heartbeat
    busy = beat is not None and beat.busy_since is not None
    return busy and bool(record.samples) and (record.samples[-1].driver, record.samples[-1].epochs) == (sample.driver, sample.epochs)


def _next_record(
    record: AutoscalerRecord, sample: LoadSample, spec: SpecGeneration, seen: Observation
) -> tuple[AutoscalerRecord, ScalingDecision | None]:
    settings = spec.spec.autoscaler
    kept_ms = max(window_ms(settings, spec.spec.trigger_ms), settings.scale_down_interval_ms) + 2 * settings.sample_interval_ms
    kept = [known for known in record.samples if sample.at - kept_ms <= known.at < sample.at]
    samples = (*kept, sample)
    work = seen.driver.load.work if seen.driver is not None and seen.driver.load is not None else None
    situation = Situation(
        sample.at,
        spec.spec.trigger_ms,
        cores=work.cores if work is not None and work.cores else None,
        max_intake=work.max_intake if work is not None else 1.0,
        adaptive_intake=spec.spec.adaptive_intake,
        generation=spec.generation,
        pending=_pending(spec, sample),
    )
    found = evaluate(samples, record.decisions, settings, situation)
    decisions = (*found.earlier, *([found.decision] if found.decision is not None else []))[-KEPT_DECISIONS:]
    totals = dict(record.totals)
    if found.decision is not None:
        totals[found.decision.kind] = totals.get(found.decision.kind, 0) + 1
    return AutoscalerRecord(record.job, sample.at, samples, found.evaluation, decisions, totals), found.decision


def _pending(spec: SpecGeneration, sample: LoadSample) -> str:
    """Return why a sample does not show the newest spec; empty if it does."""
    wanted = spec.spec
    parallelism = wanted.parallelism not in {None, sample.parallelism}
    share = 1.0 if wanted.intake is None else wanted.intake
    intake = not wanted.adaptive_intake and not math.isclose(share, sample.intake)
    return f"the driver has not applied generation {spec.generation} yet" if parallelism or intake else ""
