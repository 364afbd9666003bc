"""One Dagster job for all operations on a streaming job; those that schedules launch are jobs of their own, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from tidemark.assets.definitions.job_health import build_health_checks
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import JobSpec, Launcher, launchers_here
from tidemark.graph import Job
from tidemark.operations.control_jobs import control_operations, require_store
from tidemark.operations.launchpad import operate_job, single_job
from tidemark.operations.savepoint_definitions import EVERY_NIGHT, EVERY_SIX_HOURS, SCHEDULED, savepoint_operations, scheduled_definitions
from tidemark.operations.savepoint_names import known_savepoints
from tidemark.operations.status_op import status_operation

if TYPE_CHECKING:
    from tidemark.control import Judge


def build_operations(
    job: Job | None = None,
    *,
    spec: JobSpec | None = None,
    store: str | dg.EnvVar | None = None,
    translator: TidemarkTranslator | None = None,
    savepoints: bool = True,
    single_jobs: bool = False,
    health_check: bool = True,
    savepoint_cron: str = EVERY_SIX_HOURS,
    maintenance_cron: str = EVERY_NIGHT,
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    clock: Clock = SYSTEM_CLOCK,
    judge: Judge | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
    names: Sequence[str] | None = None,
) -> dg.Definitions:
    """Return the Dagster job ``<job>_operate``, whose config chooses an operation: start, stop, savepoint, rewind, fork, upgrade and so on.

    Its default config only shows the job's status. An operation with settings, in the launchpad or as a run's config::

        ops: {operate_taxi: {config: {do: {stop: {how: drain, why: maintenance}}}}}

    Savepoints and maintenance are Dagster jobs of their own, too, ``<job>_savepoint`` and ``<job>_maintenance``, with a schedule each.
    Without a job it is called ``tidemark_operate``, asks for the name of any job of the store, and there are no schedules.

    Args:
        job: the job.
        spec: its spec; with it ``start`` submits a job that was never submitted. A file of YAML that it names is read now.
        store: folder or bucket of the job stores; the job's own by default.
        translator: gives the job's outputs their asset keys.
        savepoints: add the operations on savepoints and code, with their schedules.
        single_jobs: also add a Dagster job for each operation, ``<job>_start`` and so on (``control_jobs``, ``savepoint_jobs``).
        health_check: add the check ``job_runs``; False where ``build_health_checks`` adds it.
        savepoint_cron: when periodic savepoints are taken, which retention disposes of later.
        maintenance_cron: when old savepoints and files are deleted.
        launchers: returns launchers of drivers, by name; called in a run.
        clock: processing time.
        judge: checks new code against stored state; in a separate process by default.
        default_status: whether the schedules run as soon as they are deployed.
        names: savepoints that the help names, newest first; those in the store by default.

    Raises:
        DefinitionError: no store is known, or the spec is invalid or another job's.
    """
    given, name = require_store(job, store), job.name if job is not None else None
    control = control_operations(job, spec=spec, store=given, translator=translator, launchers=launchers, clock=clock)
    saving = (
        savepoint_operations(job, store=given, translator=translator, launchers=launchers, clock=clock, judge=judge) if savepoints else []
    )
    if names is None:
        names = known_savepoints(given, [name]).get(name, ()) if name is not None and savepoints else ()
    status = status_operation(name, store=given, launchers=launchers, clock=clock)
    jobs = [operate_job([status, *control, *saving], name, savepoints=names)]
    jobs += [single_job(each, name) for each in control] if single_jobs else []
    checks = build_health_checks(job, store=given, translator=translator, launchers=launchers, clock=clock) if job and health_check else []
    definitions = dg.Definitions(jobs=jobs, asset_checks=checks)
    # Of a store without a job nothing is scheduled.
    apart = [each for each in saving if single_jobs or (name is not None and each.verb in SCHEDULED)]
    if not apart:
        return definitions
    crons = (savepoint_cron, maintenance_cron)
    return dg.Definitions.merge(definitions, scheduled_definitions(apart, job, store=given, crons=crons, default_status=default_status))
