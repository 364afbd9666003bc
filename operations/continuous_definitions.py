"""Assets, sensors and operations of many submitted jobs in one code location; a job whose code fails to load does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import dagster as dg

from tidemark.assets.checks.check import OutputCheck
from tidemark.assets.checks.state_compatible import StateFits
from tidemark.assets.definitions.broken_code import broken_check, broken_spec
from tidemark.assets.definitions.continuous import Partitions, build_output_asset_specs
from tidemark.assets.definitions.job_health import build_health_checks
from tidemark.assets.definitions.standalone_checks import build_asset_checks
from tidemark.assets.definitions.streaming import build_source_asset_specs
from tidemark.assets.streams.translator import TidemarkTranslator, group_of
from tidemark.control import RULES, JobSpec, Launcher, launchers_here, load_job
from tidemark.errors import DefinitionError, TidemarkError
from tidemark.graph import Job
from tidemark.operations.control_jobs import control_jobs
from tidemark.operations.savepoint_definitions import operation_names, savepoint_jobs
from tidemark.sensors.health.check_verdicts import build_check_sensor
from tidemark.sensors.health.job_health import build_job_health_sensor
from tidemark.sensors.job_sensor import SensorOptions
from tidemark.sensors.reconcile import build_reconcile_sensor
from tidemark.sensors.reports.progress import build_progress_sensor
from tidemark.state import redacted


@dataclass(frozen=True)
class LoadedJobs:
    """The jobs whose code loads, with their assets, by the code's name; and the errors of the others."""

    jobs: Mapping[str, Job] = field(default_factory=dict)
    specs: tuple[dg.AssetSpec, ...] = ()
    sources: tuple[dg.AssetSpec, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


def build_continuous_definitions(
    *codes: str,
    store: str | dg.EnvVar,
    spec: Callable[[str, Job], JobSpec] | None = None,
    partitions: Callable[[Job], Partitions] | None = None,
    checks: Callable[[Job], Sequence[OutputCheck]] | None = None,
    translator: TidemarkTranslator | None = None,
    operations: Literal["each", "store"] = "each",
    savepoints: bool = True,
    alert_key: str | None = "alerts",
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    default_status: dg.DefaultSensorStatus | None = None,
) -> dg.Definitions:
    """Return assets, checks, sensors and operations of submitted jobs, to be merged with other definitions.

    A code that cannot be loaded is an asset ``broken/<code>``, with the error in its description and a check ``code_loads`` that fails;
    the health sensor reports it, too::

        defs = dg.Definitions.merge(
            build_continuous_definitions("rides.job:job", "fares.job:job", store="s3://lake/jobs"),
            dg.Definitions(resources={"alerts": LogAlert()}),
        )

    Args:
        codes: the jobs' codes, ``module:job`` each.
        store: folder or bucket of the job stores.
        spec: the spec with which a job's operation ``start`` submits it; by default its code with default settings.
        partitions: time partitions of a job's outputs.
        checks: checks of a job's outputs, run apart from materializations.
        translator: turns streams into asset specs.
        operations: ``each`` job has its own operations, or the ``store`` has one set that asks for a job's name, for very many jobs.
        savepoints: add the operations on savepoints and code (``savepoint_jobs``), and the check ``state_fits`` of each job; where ``each``
            job has its own operations, also a savepoint every six hours and maintenance every night.
        alert_key: key of the resource that alerts go through; None sends none.
        launchers: launchers of drivers, by name.
        default_status: whether the sensors and schedules run as soon as they are deployed. By default the sensors do, since without them
            a driver that died stays dead unnoticed, and the schedules do not. If several deployments load the code location, pass
            ``DefaultSensorStatus.STOPPED`` to all but one.

    Raises:
        DefinitionError: partitions, checks or the spec of a job that loads do not fit it.
    """
    loaded = load_jobs(codes, partitions=partitions, translator=translator)
    broken = [broken_spec(code, error) for code, error in loaded.broken.items()]
    status = default_status if default_status is not None else dg.DefaultSensorStatus.RUNNING
    made = [
        check for job in loaded.jobs.values() for check in build_health_checks(job, store=store, translator=translator, launchers=launchers)
    ]
    made += [
        each
        for job in loaded.jobs.values()
        for each in build_asset_checks(
            job, _checks(checks(job) if checks is not None else (), verdict=savepoints), store=store, translator=translator
        )
    ]
    sensors = [
        build_progress_sensor(loaded.specs, options=SensorOptions(store=store, default_status=status)),
        build_reconcile_sensor(store, launchers=launchers, default_status=status),
        build_job_health_sensor(store, rules=RULES, broken=loaded.broken, alert_key=alert_key, launchers=launchers, default_status=status),
        build_check_sensor(store, default_status=status),
    ]
    definitions = dg.Definitions(
        assets=[*loaded.sources, *loaded.specs, *broken],
        asset_checks=[*made, *(broken_check(code) for code in loaded.broken)],
        sensors=sensors,
    )
    named: Mapping[str, Job | None] = {"": None} if operations == "store" else loaded.jobs
    wanted = spec or (lambda code, job: JobSpec(job.name, code))
    specs = {code: wanted(code, job) if job is not None else None for code, job in named.items()}
    operating = [
        control_jobs(job, spec=specs[code], store=store, translator=translator, health_check=False, launchers=launchers)
        for code, job in named.items()
    ]
    if savepoints:
        schedules = dg.DefaultScheduleStatus(default_status.value if default_status is not None else "STOPPED")
        operating += [
            savepoint_jobs(job, store=store, translator=translator, launchers=launchers, default_status=schedules) for job in named.values()
        ]
    return dg.Definitions.merge(definitions, *operating)


def _checks(given: Sequence[OutputCheck], *, verdict: bool) -> Sequence[OutputCheck]:
    """Return the checks of a job, with ``StateFits`` added if it is not among them."""
    return (*given, StateFits()) if verdict and not any(isinstance(check, StateFits) for check in given) else given


def load_jobs(
    codes: Sequence[str], *, partitions: Callable[[Job], Partitions] | None = None, translator: TidemarkTranslator | None = None
) -> LoadedJobs:
    """Load jobs one by one, and return those that load and the errors of the others.

    Args:
        codes: ``module:job`` each.
        partitions: time partitions of a job's outputs.
        translator: turns streams into asset specs.
    """
    jobs: dict[str, Job] = {}
    specs: list[dg.AssetSpec] = []
    owners: dict[dg.AssetKey, Job] = {}
    broken: dict[str, str] = {}
    for code in dict.fromkeys(codes):
        try:
            job = load_job(code)
            _require_new(job, jobs)
            keys = {spec.key for spec in build_source_asset_specs(job, translator=translator)}
            # A source with the asset key of an earlier job's source but another location is this job's error.
            build_source_asset_specs(*(owners[key] for key in keys if key in owners), job, translator=translator)
            specs += build_output_asset_specs(job, partitions=partitions(job) if partitions is not None else None, translator=translator)
        # DagsterError: a translator returned something that Dagster rejects.
        except (TidemarkError, dg.DagsterError) as error:
            broken[code] = redacted(str(error))
            continue
        jobs[code] = job
        owners = {**dict.fromkeys(keys, job), **owners}
    return LoadedJobs(jobs, tuple(specs), tuple(build_source_asset_specs(*jobs.values(), translator=translator)), broken)


def _require_new(job: Job, jobs: Mapping[str, Job]) -> None:
    for code, other in jobs.items():
        if group_of(other.name) == group_of(job.name) or operation_names(other.name) & operation_names(job.name):
            raise DefinitionError(
                f"the job of {code} has the same name, or one that Dagster cannot distinguish from it",
                fix="rename one of them",
                job=job.name,
            )
