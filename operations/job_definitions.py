"""Assets, checks, sensors, operations and schedules of jobs, in one call; a job whose code fails to load does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

import dagster as dg

from tidemark.assets.checks.check import OutputCheck, require_checks
from tidemark.assets.checks.conservation import Conservation
from tidemark.assets.checks.state_compatible import StateFits
from tidemark.assets.definitions.broken_code import broken_check, broken_spec
from tidemark.assets.definitions.continuous import Partitions, build_output_asset_specs
from tidemark.assets.definitions.job_health import build_health_checks
from tidemark.assets.definitions.page_link import page_links
from tidemark.assets.definitions.standalone_checks import build_asset_checks
from tidemark.assets.definitions.start_operations import STORE_STEM
from tidemark.assets.definitions.streaming import build_source_asset_specs, streaming_assets
from tidemark.assets.streams.translator import TidemarkTranslator, group_of
from tidemark.assets.values.store_location import store_location
from tidemark.control import RULES, JobSpec, Launcher, checked_spec, launchers_here, load_job, with_definition
from tidemark.errors import DefinitionError, TidemarkError
from tidemark.graph import DescribedJob, Job
from tidemark.operations.drain_schedule import build_drain_schedule
from tidemark.operations.operate import build_operations
from tidemark.operations.savepoint_definitions import operation_names
from tidemark.operations.savepoint_names import known_savepoints
from tidemark.resources.run_events import StreamingEvent
from tidemark.resources.runner import TidemarkResource
from tidemark.resources.spark import SparkResource
from tidemark.sensors.health.check_verdicts import build_check_sensor
from tidemark.sensors.health.job_health import build_job_health_sensor
from tidemark.sensors.job_sensor import SensorOptions
from tidemark.sensors.late_data import build_late_data_sensor
from tidemark.sensors.reconcile import build_reconcile_sensor
from tidemark.sensors.reports.progress import build_progress_sensor
from tidemark.sensors.watermark_lag import build_watermark_lag_sensor
from tidemark.state import redacted


@dataclass(frozen=True)
class LoadedJobs:
    """The jobs whose code loads, with their assets, by the code's name; and the errors of the others."""

    jobs: Mapping[str, Job] = field(default_factory=dict)
    specs: tuple[dg.AssetSpec, ...] = ()
    sources: tuple[dg.AssetSpec, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


EVERY_QUARTER_HOUR: Final = "*/15 * * * *"


def build_job_definitions(
    *codes: str | Job,
    store: str | dg.EnvVar,
    continuous: bool = True,
    spec: Callable[[str, Job], JobSpec] | None = None,
    partitions: Callable[[Job], Partitions] | None = None,
    checks: Callable[[Job], Sequence[OutputCheck]] | None = None,
    translator: TidemarkTranslator | None = None,
    operations: Literal["each", "store"] = "each",
    single_jobs: bool = False,
    savepoints: bool = True,
    own_sensors: bool = False,
    sources: bool = True,
    cron: str | None = None,
    spark_config: Mapping[str, str] | None = None,
    alert_key: str | None = "alerts",
    ui_url: str | None = None,
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    default_status: dg.DefaultSensorStatus | None = None,
) -> dg.Definitions:
    """Return assets, checks, sensors, operations and schedules of streaming jobs, to be merged with other definitions.

    A code that cannot be loaded is an asset ``broken/<code>``, with the error in its description and a check ``code_loads`` that fails;
    the health sensor reports it, too::

        defs = dg.Definitions.merge(
            build_job_definitions("rides.job:job", "fares.job:job", continuous=True, store="s3://lake/jobs"),
            dg.Definitions(resources={"alerts": LogAlert()}),
        )

    Args:
        codes: the jobs' codes, ``module:job`` each, or ``path.yaml`` of a job in YAML, with ``:name`` if the file has several; or
            described jobs (``tidemark graph --json``), whose code is imported in runs only. Jobs that are not continuous can be given
            themselves, too.
        store: folder or bucket of the job stores; a job that is not continuous and names a store itself keeps its state there.
        continuous: the jobs' drivers are processes outside Dagster, which run until they are stopped, and are started by the operation
            ``start`` of the Dagster job ``<job>_operate``. False for jobs that a run reads to the end of their input, as a schedule
            launches it.
        spec: the spec with which a job's operation ``start`` submits it; by default its code with default settings. Of a file of YAML it
            holds what the file says when definitions load.
        partitions: time partitions of a job's outputs.
        checks: checks of a job's outputs, run apart from materializations.
        translator: turns streams into asset specs.
        operations: ``each`` job has its own operations (``build_operations``), or the ``store`` has one set that asks for a job's name,
            for very many jobs.
        single_jobs: also have a Dagster job for each operation, such as ``<job>_start``, and not only ``<job>_operate``.
        savepoints: have the operations on savepoints and code, too, and the check ``state_fits`` of each job; where ``each`` job has its
            own operations, also a savepoint every six hours and maintenance every night.
        own_sensors: have sensors that look after these jobs only, named ``<job>_progress`` and so on after the first that loads, so that
            several calls for one store can be merged; by default they look after all jobs of the store, as one call has them.
        sources: have the jobs' sources as external assets; False where another call has them.
        cron: when jobs that are not continuous read their input; every quarter of an hour by default.
        spark_config: Spark settings of runs of jobs that are not continuous.
        alert_key: key of the resource that alerts go through; None sends none.
        ui_url: the address of `tidemark ui` as browsers reach it; each output's metadata then has a link to its job's page.
        launchers: launchers of drivers, by name.
        default_status: whether the sensors and schedules run as soon as they are deployed. By default the sensors do, since without them
            a driver that died stays dead unnoticed, and the schedules do not. If several deployments load the code location, pass
            ``DefaultSensorStatus.STOPPED`` to all but one.

    Raises:
        DefinitionError: partitions, checks or the spec of a job that loads do not fit it; ``ui_url`` is no address; or an argument is given
            that belongs to the other kind of jobs.
    """
    kinds = {
        True: {
            "spec": spec is not None,
            "partitions": partitions is not None,
            "operations": operations != "each",
            "single_jobs": single_jobs,
            "savepoints": not savepoints,
            "own_sensors": own_sensors,
            "launchers": launchers is not launchers_here,
        },
        False: {"cron": cron is not None, "spark_config": spark_config is not None},
    }
    link = page_links(ui_url)
    _require_none([name for name, given in kinds[not continuous].items() if given], continuous=continuous)
    if continuous and spec is None:
        _require_code(codes)
    if not continuous:
        return _drained_definitions(
            _without_sources(load_jobs(codes, translator=translator), keep=sources),
            checks or (lambda _: ()),
            spark_config=dict(spark_config or {}),
            translator=translator,
            options=SensorOptions(store=store, alert_key=alert_key, default_status=default_status),
            cron=cron or EVERY_QUARTER_HOUR,
            link=link,
        )
    found = load_jobs(codes, partitions=partitions, translator=translator, single_jobs=single_jobs, submitted=operations == "each")
    loaded = _without_sources(found, keep=sources)
    broken = [broken_spec(code, error) for code, error in loaded.broken.items()]
    status = default_status if default_status is not None else dg.DefaultSensorStatus.RUNNING
    made = [
        check for job in loaded.jobs.values() for check in build_health_checks(job, store=store, translator=translator, launchers=launchers)
    ]
    made += [
        each
        for job in loaded.jobs.values()
        for each in build_asset_checks(
            job, _checks(_given_checks(checks, job) if checks is not None else (), verdict=savepoints), store=store, translator=translator
        )
    ]
    own = [job.name for job in loaded.jobs.values()] if own_sensors else None
    stem = group_of(own[0]) if own else STORE_STEM
    sensors = [
        build_progress_sensor(loaded.specs, name=f"{stem}_progress", options=SensorOptions(store=store, default_status=status)),
        build_reconcile_sensor(store, jobs=own, name=f"{stem}_reconcile", launchers=launchers, default_status=status),
        build_job_health_sensor(
            store,
            jobs=own,
            name=f"{stem}_job_health",
            rules=RULES,
            broken=loaded.broken,
            alert_key=alert_key,
            launchers=launchers,
            default_status=status,
        ),
        build_check_sensor(store, jobs=own, name=f"{stem}_checks", default_status=status),
    ]
    definitions = dg.Definitions(
        assets=[*loaded.sources, *map(link, loaded.specs), *broken],
        asset_checks=[*made, *(broken_check(code) for code in loaded.broken)],
        sensors=sensors,
    )
    named: Mapping[str, Job | None] = {"": None} if operations == "store" else loaded.jobs
    wanted = spec or (lambda code, job: JobSpec(job.name, code))
    specs = {code: wanted(code, job) if job is not None else None for code, job in named.items()}
    known = known_savepoints(store, [job.name for job in named.values() if job is not None]) if savepoints else {}
    operating = [
        build_operations(
            job,
            spec=specs[code],
            store=store,
            translator=translator,
            savepoints=savepoints,
            single_jobs=single_jobs,
            health_check=False,
            launchers=launchers,
            default_status=dg.DefaultScheduleStatus(default_status.value if default_status is not None else "STOPPED"),
            names=known.get(job.name, ()) if job is not None else (),
        )
        for code, job in named.items()
    ]
    return dg.Definitions.merge(definitions, *operating)


build_continuous_definitions = build_job_definitions
"""The former name of ``build_job_definitions``."""


def _require_none(given: Sequence[str], *, continuous: bool) -> None:
    """Make sure that no argument of the other kind of jobs is given: it would have no effect."""
    if given:
        what = f"{' and '.join(f'`{name}`' for name in given)} belong{'s' if len(given) == 1 else ''} to"
        if continuous:
            fix = "leave that out (Spark settings of a continuous job are `conf` of its `spec`), or pass continuous=False"
            raise DefinitionError(f"{what} jobs that a run drains", fix=fix)
        raise DefinitionError(f"{what} continuous jobs", fix="leave that out, or pass continuous=True")


def _without_sources(loaded: LoadedJobs, *, keep: bool) -> LoadedJobs:
    return loaded if keep else replace(loaded, sources=())


def _require_code(codes: Sequence[str | Job]) -> None:
    """Make sure that the driver of each job, a process outside Dagster, can import its code."""
    for given in codes:
        if isinstance(given, Job) and not isinstance(given, DescribedJob):
            raise DefinitionError(
                "a continuous job is given without its code, which its driver imports",
                fix="pass MODULE:JOB or PATH.yaml, or a spec",
                job=given.name,
            )


def _drained_definitions(
    loaded: LoadedJobs,
    checks: Callable[[Job], Sequence[OutputCheck]],
    *,
    spark_config: Mapping[str, str],
    translator: TidemarkTranslator | None,
    options: SensorOptions,
    cron: str,
    link: Callable[[dg.AssetSpec], dg.AssetSpec],
) -> dg.Definitions:
    """Return the definitions of jobs that runs drain, each with a resource of its own, so that two calls can be merged."""
    status = dg.DefaultScheduleStatus(options.default_status.value if options.default_status is not None else "STOPPED")
    assets, sensors = list[dg.AssetsDefinition](), list[dg.SensorDefinition]()
    for job in loaded.jobs.values():
        given = _with_conservation(_given_checks(checks, job))
        # A run keeps a job's state where the job says.
        own = replace(options, store=job.store or options.store)
        assets.append(_drained_assets(job, given, translator, own.store, spark_config).map_asset_specs(link))
        sensors += [build_watermark_lag_sensor(job, options=own), build_late_data_sensor(job, options=own)]
    return dg.Definitions(
        assets=[*loaded.sources, *assets, *(broken_spec(code, error) for code, error in loaded.broken.items())],
        asset_checks=[broken_check(code) for code in loaded.broken],
        sensors=sensors,
        schedules=[build_drain_schedule(each, cron, default_status=status) for each in assets],
    )


def _drained_assets(
    job: Job,
    checks: Sequence[OutputCheck],
    translator: TidemarkTranslator | None,
    store: str | dg.EnvVar | None,
    spark_config: Mapping[str, str],
) -> dg.AssetsDefinition:
    @streaming_assets(job=job, name=group_of(job.name), checks=checks, translator=translator)
    def drain(context: dg.AssetExecutionContext) -> Iterator[StreamingEvent]:
        place = store_location(store, job.name) if store is not None else None
        resource = TidemarkResource(store=place, spark=SparkResource(spark_config=dict(spark_config)))
        yield from resource.run(context=context)

    return drain


def _given_checks(checks: Callable[[Job], Sequence[OutputCheck]], job: Job) -> Sequence[OutputCheck]:
    found = checks(job)
    require_checks(job, found)
    return found


def _with_conservation(given: Sequence[OutputCheck]) -> Sequence[OutputCheck]:
    return given if any(isinstance(check, Conservation) for check in given) else (*given, Conservation())


def _checks(given: Sequence[OutputCheck], *, verdict: bool) -> Sequence[OutputCheck]:
    """Return the checks of a job, with ``StateFits`` added if it is not among them."""
    return (*given, StateFits()) if verdict and not any(isinstance(check, StateFits) for check in given) else given


def load_jobs(
    codes: Sequence[str | Job],
    *,
    partitions: Callable[[Job], Partitions] | None = None,
    translator: TidemarkTranslator | None = None,
    single_jobs: bool = False,
    submitted: bool = False,
) -> LoadedJobs:
    """Load jobs one by one, and return those that load and the errors of the others.

    Args:
        codes: ``module:job`` or ``path.yaml`` each, or jobs, which have the code that they were described from, else their name.
        partitions: time partitions of a job's outputs.
        translator: turns streams into asset specs.
        single_jobs: whether each operation on a job is a Dagster job, whose names must differ.
        submitted: whether an operation submits them, with a spec.
    """
    jobs: dict[str, Job] = {}
    specs: list[dg.AssetSpec] = []
    owners: dict[dg.AssetKey, Job] = {}
    broken: dict[str, str] = {}
    for given in dict.fromkeys(codes):
        code = given if isinstance(given, str) else given.code if isinstance(given, DescribedJob) else given.name
        try:
            job = load_job(given) if isinstance(given, str) else given
            if isinstance(given, str | DescribedJob):
                # The job's spec holds what a file of YAML says: one that cannot be read, or has a secret, is this job's error.
                spec = with_definition(JobSpec(job.name, code))
                if submitted:
                    checked_spec(spec)
            _require_new(job, jobs, single_jobs=single_jobs)
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


def _require_new(job: Job, jobs: Mapping[str, Job], *, single_jobs: bool) -> None:
    names = partial(operation_names, single_jobs=single_jobs)
    for code, other in jobs.items():
        if group_of(other.name) == group_of(job.name) or names(other.name) & names(job.name):
            raise DefinitionError(
                f"the job of {code} has the same name, or one that Dagster cannot distinguish from it",
                fix="rename one of them",
                job=job.name,
            )
