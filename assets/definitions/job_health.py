"""The check ``job_runs``: whether a submitted job is healthy, shown on each of its outputs in Dagster's UI.

A killed driver writes nothing, so no run and no epoch shows that it is dead. Sensors therefore read the jobs' small files and report
this check, which turns the assets red; executed manually it reads them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import dagster as dg

from tidemark.assets.definitions.reconcile_sensors import ReconcileSensor, find_reconcile_sensor
from tidemark.assets.definitions.start_operations import start_operation
from tidemark.assets.streams.job_streams import output_streams
from tidemark.assets.streams.translator import TidemarkTranslator, group_of
from tidemark.assets.values.annotations import with_types
from tidemark.assets.values.markdown import as_plain
from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.assets.values.store_location import store_location
from tidemark.clock import SYSTEM_CLOCK, Clock, format_ms
from tidemark.control import UNHEALTHY, Health, JobView, Launcher, Lifecycle, lagging_sources, launchers_here, observe, view_of
from tidemark.errors import DefinitionError, TidemarkError
from tidemark.graph import Job
from tidemark.state import JobStore, redacted

HEALTH_CHECK: Final = "job_runs"
HEALTH_KEY: Final = "tidemark/health"
"""Metadata key of an evaluation: the health that it reports."""

_MAX_TEXT: Final = 1_000
_WATCH: Final = "{watch}"
_SUPERVISE: Final = "run `tidemark supervise --store {store}`"
_START: Final = "`tidemark start {job} --store {store}`{operation}"
_MEANING: Final[Mapping[Health, tuple[str, str]]] = {
    "silent": ("it should run, and its driver sends no heartbeat", f"a reconciler restarts it: {_WATCH}"),
    "unwatched": ("no reconciler acts on it", f"{_WATCH}; or start it once: {_START}"),
    "hung": ("its driver seems to hang", f"a reconciler kills it and starts another: {_WATCH}"),
    "failing": ("its driver failed, and another one is to be started", "`tidemark logs {job} --store {store}` shows its log"),
    "failed": ("it failed and is not restarted", f"fix the cause, then {_START}"),
    "damaged": ("its state is unknown", "its driver writes its status again; if it does not, `tidemark restart {job} --store {store}`"),
}
"""The meaning of each health, and its fix."""

_LAGGING: Final = "`tidemark status {job} --store {store}` shows its backlog and what holds its watermark back"
_LAGS: Final = "lagging"
_NEAR: Final = 0.8
"""The part of the limit below which a job that lagged no longer does."""

_ENDING: Final = frozenset[Lifecycle](("draining", "upgrading"))
_ENDS_WITHIN_MS: Final = 120_000
"""How long a driver that was asked to end may send no heartbeat: a sensor sees its end within a minute."""

_ENDS_NOT: Final = ("it was asked to end, and its driver sends no heartbeat", f"a reconciler ends it: {_WATCH}")
_UNSUBMITTED: Final = "start it with the same command, or submit it: `tidemark submit` keeps it running"


@dataclass(frozen=True)
class HealthVerdict:
    """The check's verdict on a job.

    ``settled`` is False for a transitional verdict, as for a job that restarts after a failure: a failed verdict then stays until the job
    runs, and a passed one stays, too. ``keeps`` is the health whose failed verdict this one does not end, empty for none.
    """

    health: str
    passed: bool
    description: str
    metadata: MetadataValues = field(default_factory=dict)
    settled: bool = True
    keeps: str = ""

    @property
    def result(self) -> Mapping[str, object]:
        """The common arguments of a result and an evaluation of the check."""
        return {
            "passed": self.passed,
            "severity": dg.AssetCheckSeverity.ERROR,
            "description": self.description,
            "metadata": {HEALTH_KEY: self.health, **self.metadata},
        }


def health_verdict(view: JobView, store: str, sensor: Callable[[], ReconcileSensor | None], *, operation: str = "") -> HealthVerdict:
    """Return the verdict on a job that can be read.

    Args:
        view: the job's view.
        store: the root store, for the commands in fixes.
        sensor: returns the reconcile sensor of the job, None if the code location has none; called for a fix that depends on it.
        operation: how to launch the operation that starts the job (``start_operation``); empty if there is none.
    """
    metadata = dict(_metadata(view))
    if view.health == "silent" and view.driver_lifecycle in _ENDING and (view.heartbeat_age_ms or 0) < _ENDS_WITHIN_MS:
        # Its process has just ended as requested; a reconciler is about to see that.
        return HealthVerdict("stopping", passed=True, description="its driver is being stopped", metadata=metadata, settled=False)
    if lags := lagging_sources(view):
        way_out = _LAGGING.format(job=view.job, store=redacted(store))
        metadata["tidemark/way_out"] = dg.MetadataValue.md(way_out)
        text = f"{as_plain('; '.join(lags))}. {way_out}"
        return HealthVerdict(_LAGS, passed=False, description=text, metadata=metadata)
    if view.health not in UNHEALTHY:
        text = _WELL.get(view.health, "its driver runs")
        # A job near its limit of lag stays as it was reported, so that the check does not change at each tick.
        keeps = _LAGS if lagging_sources(view, ratio=_NEAR) else ""
        return HealthVerdict(view.health, passed=True, description=text, metadata=metadata, settled=view.health != "starting", keeps=keeps)
    said, way_out = _MEANING.get(view.health, (f"it is {view.health}", _START))
    if view.health == "silent" and view.driver_lifecycle in _ENDING:
        said, way_out = _ENDS_NOT
    if view.spec is None:
        way_out = _UNSUBMITTED
    if _WATCH in way_out:
        way_out = way_out.replace(_WATCH, _watch(sensor()))
    command = way_out.format(job=view.job, store=redacted(store), operation=f", or {operation}" if operation else "")
    error = f"{view.error.code} {view.error.message}" if view.error is not None else ""
    why = [as_plain(_short(text)) for text in (_driver(view), view.reason, error) if text]
    metadata["tidemark/way_out"] = dg.MetadataValue.md(command)
    return HealthVerdict(view.health, passed=False, description=f"{'. '.join((said, *why))}. Fix: {command}", metadata=metadata)


def _watch(sensor: ReconcileSensor | None) -> str:
    """Return how to get a reconciler to act."""
    if sensor is None:
        return f"turn on the sensor of build_reconcile_sensor, or {_SUPERVISE}"
    if not sensor.is_on:
        return f"turn on {sensor}, or {_SUPERVISE}"
    return f"{sensor}, is on; if it does not act, see its ticks, or {_SUPERVISE}"


def unreadable_verdict(error: TidemarkError) -> HealthVerdict:
    """Return the verdict on a job whose files are damaged or of a newer release: no reconciler acts on such a job."""
    text = as_plain(_short(str(error)))
    return HealthVerdict("unreadable", passed=False, description=text, metadata={"tidemark/error_code": error.code})


UNKNOWN: Final = HealthVerdict("unknown", passed=True, description="nothing is stored of it yet: it was never started", settled=False)
"""The verdict on a job that was never submitted and has never run."""

_WELL: Final[Mapping[Health, str]] = {
    "ok": "its driver runs",
    "starting": "its driver is starting",
    "stopped": "it is stopped as requested, or its input has ended",
}


def build_health_checks(
    job: Job,
    *,
    store: str | dg.EnvVar | None = None,
    translator: TidemarkTranslator | None = None,
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    clock: Clock = SYSTEM_CLOCK,
) -> list[dg.AssetChecksDefinition]:
    """Return the check ``job_runs`` on each output of a submitted job.

    ``build_reconcile_sensor`` and ``build_job_health_sensor`` report it when it changes; executed manually, it observes the job itself.
    ``build_operations``, ``control_jobs`` and ``build_job_definitions`` include it.

    Args:
        job: the job.
        store: folder or bucket of job stores; the job's own by default.
        translator: gives the job's outputs their asset keys.
        launchers: returns launchers that can probe drivers, by name; called when the check is executed.
        clock: processing time.

    Raises:
        DefinitionError: no store is known.
    """
    given = store if store is not None else job.store
    if given is None:
        raise DefinitionError("the health check has no job store", fix="pass store=..., or Job(store=...)", job=job.name)
    chosen = translator or TidemarkTranslator()
    keys = [chosen.get_asset_spec(stream).key for stream in output_streams(job)]

    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        found, repository = _read_view(store_location(given, job.name), job.name, launchers(), clock), _repository(context)
        sensor = partial(_reconcile_sensor, context, repository, given, job.name)
        operation = start_operation(repository, job.name)
        verdict = (
            health_verdict(found, store_location(given, job.name), sensor, operation=operation) if isinstance(found, JobView) else found
        )
        for key in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(asset_key=key.asset_key, check_name=key.name, **verdict.result)  # type: ignore[arg-type]

    text = (
        f"The job `{job.name}` runs and keeps up with its input, or is stopped as requested: its driver is alive, and a reconciler "
        "restarts it when it fails."
    )
    specs = [dg.AssetCheckSpec(HEALTH_CHECK, asset=key, description=text) for key in keys]
    decorate = dg.multi_asset_check(name=f"{group_of(job.name)}_{HEALTH_CHECK}", specs=specs, can_subset=True)
    return [decorate(with_types(check))]


def _repository(context: dg.AssetCheckExecutionContext) -> dg.RepositoryDefinition | None:
    try:
        return context.repository_def
    except Exception:  # noqa: BLE001 - Dagster has no public class for a run without a code location, such as execute_in_process
        return None


def _reconcile_sensor(
    context: dg.AssetCheckExecutionContext, repository: dg.RepositoryDefinition | None, store: str | dg.EnvVar, job: str
) -> ReconcileSensor | None:
    if repository is None:
        return None
    origin = context.run.remote_job_origin
    return find_reconcile_sensor(context.instance, repository, store, job, location=origin.location_name if origin is not None else None)


def _read_view(store: str, job: str, launchers: Mapping[str, Launcher], clock: Clock) -> JobView | HealthVerdict:
    """Return the job's view; the verdict on a job that has none."""
    try:
        seen = observe(JobStore.open(store), job, launchers)
    except TidemarkError as error:
        if error.transient:
            raise
        return unreadable_verdict(error)
    if seen.generation is None and seen.driver is None:
        return UNKNOWN
    return view_of(seen, clock.now_ms())


def _driver(view: JobView) -> str:
    """Return the state of the driver's process and its last heartbeat; with instants, so that the text stays the same."""
    process = view.process
    dead = f"process {process.pid} on host {process.host} is dead" if process is not None and view.process_state == "gone" else ""
    beat = f"last heartbeat {format_ms(view.heartbeat_at)}" if view.heartbeat_at is not None else ""
    again = f"next start {format_ms(view.next_start_at)}" if view.next_start_at is not None else ""
    return ", ".join(part for part in (dead, beat, again) if part)


def _metadata(view: JobView) -> Iterator[tuple[str, MetadataItem]]:
    yield "tidemark/lifecycle", view.lifecycle
    yield "tidemark/attempt", view.attempt
    if view.epoch is not None:
        yield "tidemark/epoch", view.epoch
    if view.heartbeat_at is not None:
        yield "tidemark/last_sign_of_life", dg.MetadataValue.timestamp(view.heartbeat_at / 1000)
    if view.standby is not None:
        yield "tidemark/standby", str(view.standby)
    if view.reason:
        yield "tidemark/reason", _short(view.reason)
    if view.error is not None:
        yield "tidemark/error_code", view.error.code
        yield "tidemark/error", _short(view.error.message)


def _short(text: str) -> str:
    shown = redacted(text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…"
