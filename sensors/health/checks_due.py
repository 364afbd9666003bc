"""Which checks of jobs that run on are to be executed: those that were never executed, and those made out of date by what came since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import dagster as dg

RUNS_AT_ONCE = 5
"""Runs of checks that one tick requests, one for each job; the others have their turn at the next."""


def runs_of_checks(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    jobs: Mapping[dg.AssetCheckKey, str],
    *,
    now_ms: int,
    recheck_ms: int,
) -> list[dg.RunRequest]:
    """Return a request for a run of the checks that are due, for each job that has any.

    A check is due when it was never executed, and when its asset was materialized since: at once for the first time, and else not so soon
    after its last execution.
    Without it a page shows "0 / 3 passed" beside a green tick. Checks of assets that runs make are made by these runs.

    Args:
        instance: Dagster's.
        repository: the code location's.
        jobs: the job of each check.
        now_ms: the time.
        recheck_ms: least time between two executions.
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
            # What was executed before there was anything to look at does not wait.
            empty = known.evaluation is not None and known.evaluation.target_materialization_data is None
            if current or (not empty and now_ms - known.create_timestamp * 1000 < recheck_ms):
                continue
        due.setdefault(job, []).append(key)
    return [
        dg.RunRequest(asset_selection=[], asset_check_keys=keys, tags={"tidemark/job": job, "tidemark/reason": "checks out of date"})
        for job, keys in list(due.items())[:RUNS_AT_ONCE]
    ]


def materialized_at(instance: dg.DagsterInstance, keys: Iterable[dg.AssetKey]) -> Mapping[dg.AssetKey, float]:
    """Return when assets were last materialized, in seconds; without those that never were."""
    wanted = sorted(keys)
    entries = [record.asset_entry for record in instance.get_asset_records(wanted)] if wanted else []
    return {
        entry.asset_key: entry.last_materialization_record.timestamp for entry in entries if entry.last_materialization_record is not None
    }
