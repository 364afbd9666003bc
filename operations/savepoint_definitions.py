"""Dagster jobs and schedules for savepoints, rewinds, forks and upgrades; they can be launched with their default config.

Their implementation loads the Delta library. It is imported when one of them runs, so that loading a code location does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import dagster as dg

from tidemark.assets.streams.translator import TidemarkTranslator, group_of
from tidemark.assets.values.metadata_values import MetadataItem
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import Launcher, launchers_here
from tidemark.graph import Job
from tidemark.operations.control_jobs import require_store
from tidemark.operations.launchpad import Operation, single_job
from tidemark.operations.savepoint_config import (
    DiffForm,
    DiscardForm,
    DisposeForm,
    ExportForm,
    ForkForm,
    JobForm,
    MaintenanceForm,
    PromoteForm,
    RescaleForm,
    RestoreForm,
    RewindForm,
    SavepointForm,
    UpgradeForm,
    job_form,
)
from tidemark.sensors.store_sensor import open_root
from tidemark.state import newest_epoch

if TYPE_CHECKING:
    from tidemark.control import Judge
    from tidemark.operations.savepoint_ops import SavepointOperator

CarryOut = Callable[..., Mapping[str, MetadataItem]]

EVERY_SIX_HOURS = "0 */6 * * *"
EVERY_NIGHT = "30 3 * * *"

_VERBS: Mapping[str, tuple[type[JobForm], str]] = {
    "savepoint": (SavepointForm, "Takes a savepoint of {job}, whether it runs or not, and observes its outputs with it."),
    "dispose_savepoints": (DisposeForm, "Disposes of savepoints of {job}: named ones, or those that retention no longer keeps."),
    "export_savepoint": (ExportForm, "Copies a savepoint of {job} with all its files into one folder."),
    "rewind": (RewindForm, "Rewinds {job} to a savepoint with its tables; by default only reports the plan."),
    "restore": (RestoreForm, "Restores {job} from a savepoint; its tables are not reverted."),
    "fork": (ForkForm, "Starts a variant of {job} from a savepoint, with separate tables."),
    "diff": (DiffForm, "Compares rows of {job}'s tables with those of its fork's, or of another job's."),
    "discard": (DiscardForm, "Deletes a stopped fork of {job}, with its tables; it has to be named."),
    "promote": (PromoteForm, "Upgrades {job} to the code of its fork: it rewinds to where the fork began, and resumes with it."),
    "rescale": (RescaleForm, "Changes the parallelism of {job} from its next epoch on, without a restart."),
    "upgrade": (UpgradeForm, "Upgrades {job}: check the new code, stop, savepoint, start, watch; rolls back if it is unhealthy."),
    "maintenance": (MaintenanceForm, "Disposes of old savepoints of {job}, and deletes files that are no longer needed."),
}


SCHEDULED: Final = ("savepoint", "maintenance")
"""Operations that schedules launch, so that they are always Dagster jobs."""


def operation_names(job: str, *, single_jobs: bool = True) -> frozenset[str]:
    """Return the names of the Dagster jobs on savepoints and code of a streaming job, all or the scheduled ones."""
    return frozenset(f"{group_of(job)}_{verb}" for verb in (_VERBS if single_jobs else SCHEDULED))


def savepoint_jobs(
    job: Job | None = None,
    *,
    store: str | dg.EnvVar | None = None,
    translator: TidemarkTranslator | None = None,
    savepoint_cron: str = EVERY_SIX_HOURS,
    maintenance_cron: str = EVERY_NIGHT,
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    clock: Clock = SYSTEM_CLOCK,
    judge: Judge | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.Definitions:
    """Return the Dagster jobs ``<job>_savepoint``, ``_rewind``, ``_fork``, ``_upgrade`` and so on, and schedules for two of them.

    They merge with those of ``control_jobs``::

        defs = dg.Definitions.merge(defs, control_jobs(job, store=store), savepoint_jobs(job, store=store))

    ``build_operations`` has them all in one Dagster job. Without a job they are called ``tidemark_savepoint`` and so on, ask for the name
    of any job of the store, and have no schedules.

    Args:
        job: the job.
        store: folder or bucket of the job stores; the job's own by default.
        translator: gives the job's outputs their asset keys.
        savepoint_cron: when periodic savepoints are taken, which retention disposes of later.
        maintenance_cron: when old savepoints and files are deleted.
        launchers: returns launchers of drivers, by name; called in a run.
        clock: processing time.
        judge: checks new code against stored state; in a separate process by default.
        default_status: whether the schedules run as soon as they are deployed.

    Raises:
        DefinitionError: no store is known.
    """
    given = require_store(job, store)
    operations = savepoint_operations(job, store=given, translator=translator, launchers=launchers, clock=clock, judge=judge)
    return scheduled_definitions(operations, job, store=given, crons=(savepoint_cron, maintenance_cron), default_status=default_status)


def scheduled_definitions(
    operations: Sequence[Operation],
    job: Job | None,
    *,
    store: str | dg.EnvVar,
    crons: tuple[str, str],
    default_status: dg.DefaultScheduleStatus,
) -> dg.Definitions:
    """Return a Dagster job for each of some operations, with the schedules of a job's savepoints and maintenance.

    Args:
        operations: the operations, ``savepoint`` and ``maintenance`` among them.
        job: the job.
        store: folder or bucket of the job stores.
        crons: when periodic savepoints are taken, and when old savepoints and files are deleted.
        default_status: whether the schedules run as soon as they are deployed.
    """
    name = job.name if job is not None else None

    def has_epoch(_: dg.ScheduleEvaluationContext) -> bool:
        root = open_root(store)
        return name is not None and newest_epoch(root, name) is not None

    jobs = {each.verb: single_job(each, name) for each in operations}
    return dg.Definitions(
        jobs=list(jobs.values()), schedules=[] if name is None else _schedules(name, jobs, crons, has_epoch, default_status)
    )


def savepoint_operations(
    job: Job | None,
    *,
    store: str | dg.EnvVar,
    translator: TidemarkTranslator | None,
    launchers: Callable[[], Mapping[str, Launcher]],
    clock: Clock,
    judge: Judge | None,
) -> list[Operation]:
    """Return the operations on a job's savepoints and code; the arguments are those of ``savepoint_jobs``."""

    def carried_out(verb: str) -> CarryOut:
        from tidemark.control import judge_code
        from tidemark.operations.savepoint_ops import SavepointOperator

        keys = translator or TidemarkTranslator()
        return _carried_out(SavepointOperator(lambda: open_root(store), launchers, job, keys, clock, judge or judge_code))[verb]

    name = job.name if job is not None else None
    return [
        Operation(verb, job_form(form, name), help_, partial(_carry_out, carried_out, verb), _chooses(form))
        for verb, (form, help_) in _VERBS.items()
    ]


def _chooses(form: type[JobForm]) -> tuple[str, ...]:
    """Return the fields that name savepoints which exist; ``name`` is that of one to take."""
    return tuple(name for name in ("savepoint", "names") if name in form.model_fields)


def _carried_out(operator: SavepointOperator) -> Mapping[str, CarryOut]:
    from tidemark.operations.upgrade_ops import UpgradeOperator

    upgrades = UpgradeOperator(operator)
    return {
        "savepoint": operator.take,
        "dispose_savepoints": operator.dispose,
        "export_savepoint": operator.export,
        "rewind": operator.rewind,
        "restore": operator.restore,
        "fork": operator.fork,
        "diff": operator.diff,
        "discard": operator.discard,
        "promote": upgrades.promote,
        "rescale": operator.rescale,
        "upgrade": upgrades.upgrade,
        "maintenance": operator.maintain,
    }


def _carry_out(carried_out: Callable[[str], CarryOut], verb: str, context: dg.OpExecutionContext, config: JobForm) -> None:
    context.add_output_metadata({"tidemark/job": config.job, **carried_out(verb)(context, config)})


def _schedules(
    job: str,
    jobs: Mapping[str, dg.JobDefinition],
    crons: tuple[str, str],
    has_epoch: Callable[[dg.ScheduleEvaluationContext], bool],
    status: dg.DefaultScheduleStatus,
) -> Sequence[dg.ScheduleDefinition]:
    stem = group_of(job)
    periodic = {"ops": {f"savepoint_{stem}": {"config": {"job": job, "kind": "periodic", "why": "periodic"}}}}
    return [
        dg.ScheduleDefinition(
            name=f"{stem}_savepoint_schedule",
            job=jobs["savepoint"],
            cron_schedule=crons[0],
            run_config=periodic,
            # A job without an epoch has nothing to save; a run would fail.
            should_execute=has_epoch,
            default_status=status,
            description=f"Takes a savepoint of `{job}`; retention disposes of old ones.",
        ),
        dg.ScheduleDefinition(
            name=f"{stem}_maintenance_schedule",
            job=jobs["maintenance"],
            cron_schedule=crons[1],
            default_status=status,
            description=f"Disposes of old savepoints of `{job}`, and deletes files that are no longer needed.",
        ),
    ]
