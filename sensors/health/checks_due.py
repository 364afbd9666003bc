"""Determines which checks of submitted jobs are due: those never executed, and those out of date since a materialization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

RUNS_AT_ONCE = 5
"""Maximum runs of checks that one tick requests, one per job; the next tick requests the others."""


def runs_of_checks(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    jobs: Mapping[dg.AssetCheckKey, str],
    *,
    now_ms: int,
    recheck_ms: int,
) -> list[dg.RunRequest]:
    """Return a run request for the due checks of each job that has any.

    A check is due if it was never executed, or if its asset was materialized since: at once the first time, else not before ``recheck_ms``
    after its last execution.
    Without it the UI shows "0 / 3 passed" beside a green tick. Checks of assets that runs materialize are executed by these runs.

    Args:
        instance: the Dagster instance.
        repository: the code location's repository.
        jobs: the job of each check.
        now_ms: processing time, milliseconds.
        recheck_ms: minimum time between two executions.
    """
    graph = repository.asset_graph
    outside = {key: job for key, job in jobs.items() if not graph.get(key.asset_key).is_executable}
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(outside)) if outside else {}
    made = materialized_at(instance, {key.asset_key for key in outside})
    due: dict[str, list[dg.AssetCheckKey]] = {}
    for key, job in outside.items():
        known = latest.get(key)
        if known is not None:
            current = known.evaluation is not None and known.create_timestamp > made.get(key.asset_key, 0.0)
            # A check that was executed before the first materialization does not wait.
            # One whose run has begun has been planned only.
            found = known.evaluation if isinstance(known.evaluation, dg.AssetCheckEvaluation) else None
            empty = found is not None and found.target_materialization_data is None
            if current or (not empty and now_ms - known.create_timestamp * 1000 < recheck_ms):
                continue
        due.setdefault(job, []).append(key)
    return [
        dg.RunRequest(asset_selection=[], asset_check_keys=keys, tags={"tidemark/job": job, "tidemark/reason": "checks out of date"})
        for job, keys in list(due.items())[:RUNS_AT_ONCE]
    ]


def materialized_at(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]) -> Mapping[dg.AssetKey, float]:
    """Return when assets were last materialized, in seconds; without those never materialized."""
    wanted = sorted(keys)
    entries = [record.asset_entry for record in instance.get_asset_records(wanted)] if wanted else []
    return {
        entry.asset_key: entry.last_materialization_record.timestamp for entry in entries if entry.last_materialization_record is not None
    }
