"""A schedule that drains a streaming job: each tick reads what has arrived since the last, then stops."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import dagster as dg

from tidemark.assets.definitions.bound_job import bound_job
from tidemark.assets.streams.translator import group_of

_UNFINISHED = [
    *(dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED),
    # It finishes its epoch before it ends.
    dg.DagsterRunStatus.CANCELING,
]

_LOCATION_OPTION: Final = "--location-name"
_LOCATION_VARIABLE: Final = "DAGSTER_LOCATION_NAME"
"""How a code server is told the name of its code location, of which the context of a schedule does not know."""


def build_drain_schedule(
    assets: dg.AssetsDefinition,
    cron: str,
    *,
    name: str | None = None,
    timezone: str | None = None,
    tags: Mapping[str, str] | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.ScheduleDefinition:
    """Return a schedule that materializes all assets of a job.

    The run uses the assets' pool, so with a pool limit it waits for a run that was launched by hand. A tick while an earlier run of the
    schedule's job is queued or in progress is skipped: the next drain reads what the skipped one would have read, and queued runs would
    only pile up. Runs of a job of the same name in another code location do not count, if this code server was told its own name, as by
    ``dagster dev`` and by ``--location-name``.

    Args:
        assets: assets of ``@streaming_assets``.
        cron: when to drain, such as ``"*/15 * * * *"``.
        name: the schedule's; ``<job>_drain_schedule`` by default. Its Dagster job has the same name without ``_schedule``.
        timezone: of the cron expression; UTC by default.
        tags: tags of the runs.
        default_status: whether the schedule runs as soon as it is deployed.

    Raises:
        DefinitionError: the assets are not a streaming job's.
    """
    stem = (name or f"{group_of(bound_job(assets.specs).job.name)}_drain_schedule").removesuffix("_schedule")
    job = dg.define_asset_job(
        f"{stem}_job" if name == stem else stem,
        selection=dg.AssetSelection.assets(*(spec.key for spec in assets.specs)),
        # Assets and checks share one process and so one JVM; a process each would start Spark for each.
        executor_def=dg.in_process_executor,
        description="Reads what has arrived, writes and checks all outputs, and stops.",
        tags=dict(tags or {}),
    )

    def evaluate(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        unfinished = context.instance.get_runs(dg.RunsFilter(job_name=job.name, statuses=_UNFINISHED))
        found = [run for run in unfinished if _is_of_this_location(run)]
        if found:
            # The record of a run whose process was killed says so for ever, and no tick would say why nothing is read.
            return dg.SkipReason(
                f"a run of {job.name} is queued or in progress, {found[0].run_id}; it or the next tick reads what has arrived. If its "
                "process was killed, terminate it; with `run_monitoring: {enabled: true}` in dagster.yaml Dagster notices that itself"
            )
        return dg.RunRequest(run_key=None, tags=dict(tags or {}))

    return dg.ScheduleDefinition(
        name=name or f"{stem}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone=timezone,
        execution_fn=evaluate,
        default_status=default_status,
    )


def _is_of_this_location(run: dg.DagsterRun) -> bool:
    """Return whether a run is of this code location, also if that is not known of one of the two."""
    here = _location_name()
    there = run.remote_job_origin.location_name if run.remote_job_origin is not None else None
    return here is None or there is None or here == there


def _location_name() -> str | None:
    given = [value for option, value in pairwise(sys.argv) if option == _LOCATION_OPTION]
    given += [option.partition("=")[2] for option in sys.argv if option.startswith(f"{_LOCATION_OPTION}=")]
    return next(iter(given), None) or os.environ.get(_LOCATION_VARIABLE) or None
