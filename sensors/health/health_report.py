"""Reports the check ``job_runs`` from a sensor's tick: when a job's health has changed, or its last evaluation is out of date."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import dagster as dg

from tidemark.assets.definitions.job_health import HEALTH_CHECK, HEALTH_KEY, HealthVerdict
from tidemark.sensors.health.check_verdicts import jobs_of_checks
from tidemark.sensors.health.checks_due import materialized_at


def health_evaluations(
    context: dg.SensorEvaluationContext, verdict_of: Callable[[str], HealthVerdict | None]
) -> list[dg.AssetCheckEvaluation]:
    """Return the evaluations of the checks ``job_runs`` in the code location that have to be reported.

    Sensors of both kinds may report side by side: an evaluation that Dagster has already is not reported again. A materialization makes
    earlier evaluations out of date in Dagster's UI, so they are then reported again.

    Args:
        context: the tick's context.
        verdict_of: returns the verdict on a job; None if this sensor does not observe it.
    """
    jobs = {key: job for key, (job, _) in jobs_of_checks(context.repository_def).items() if key.name == HEALTH_CHECK}
    verdicts = {key: verdict for key, job in jobs.items() if (verdict := verdict_of(job)) is not None}
    return [_evaluation(key, verdicts[key]) for key in _outdated(context.instance, verdicts)] if verdicts else []


def _evaluation(key: dg.AssetCheckKey, verdict: HealthVerdict) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(asset_key=key.asset_key, check_name=key.name, **verdict.result)  # type: ignore[arg-type]


def _outdated(instance: dg.DagsterInstance, verdicts: Mapping[dg.AssetCheckKey, HealthVerdict]) -> Iterator[dg.AssetCheckKey]:
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(verdicts))
    made = materialized_at(instance, {key.asset_key for key in verdicts})
    for key, verdict in verdicts.items():
        known = latest.get(key)
        said = known.evaluation if known is not None else None
        if known is None or said is None or known.create_timestamp <= made.get(key.asset_key, 0.0):
            # No current evaluation. A job that restarts after a failure is not healthy yet.
            if verdict.settled or said is None or said.passed:
                yield key
            continue
        before = said.metadata.get(HEALTH_KEY)
        health = before.value if before is not None else None
        kept = bool(verdict.keeps) and health == verdict.keeps
        if verdict.settled and not kept and (said.passed != verdict.passed or health != verdict.health):
            yield key
