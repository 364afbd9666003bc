"""Routes of a job's autoscaler: what it recommends and did, and changes of its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from tidemark.control.client.autoscaler_change import AutoscalerChange
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.autoscaler_records import ScalingDecision, ScalingEvaluation
from tidemark.control.model.autoscaler_settings import AutoscalerMode, AutoscalerSettings
from tidemark.durations import to_ms
from tidemark.web.api.reads import JOB, LimitForm
from tidemark.web.api.routes import ApiRoute, Call, route
from tidemark.web.api.schemas import Value
from tidemark.web.api.waits import Duration, WhyForm, job_client

_Bound = Annotated[int | None, Value("Shuffle partitions; null leaves the bound.", minimum=1, maximum=100_000)]


@dataclass(frozen=True, kw_only=True)
class AutoscaleForm(WhyForm):
    """Changes of an autoscaler's settings, in effect from its next evaluation on. What is null stays."""

    settings: Annotated[AutoscalerSettings | None, Value("All settings; those that it leaves out are back at their defaults.")] = None
    mode: Annotated[AutoscalerMode | None, Value("advise: recommend only; act: change the job's spec; off.")] = None
    min_parallelism: _Bound = None
    max_parallelism: _Bound = None
    utilization: Annotated[float | None, Value("Share of the time in which epochs should run.", example=0.7)] = None
    catch_up: Duration | None = None
    max_changes: Annotated[int | None, Value("Changes in 24 hours at most.", minimum=0, maximum=100_000)] = None
    quiet: Annotated[tuple[str, ...] | None, Value("Times without changes, such as 'Mon-Fri 08:00-18:00'; an empty list is none.")] = None
    zone: Annotated[str | None, Value("Time zone of the quiet times.", longest=100, example="Europe/Berlin")] = None


@dataclass(frozen=True)
class JobAutoscaler:
    """A job's autoscaler: its settings, its last evaluation and newest decisions, oldest first, and decisions in all by kind."""

    job: str
    settings: AutoscalerSettings
    evaluation: ScalingEvaluation | None
    decisions: tuple[ScalingDecision, ...]
    totals: dict[str, int]


@dataclass(frozen=True)
class ChangedAutoscaler:
    """An autoscaler's settings, and the generation of the job's spec that has them."""

    job: str
    generation: int
    settings: AutoscalerSettings


def get_autoscaler(call: Call, form: LimitForm) -> JobAutoscaler:
    """Show what a job's autoscaler recommends and did, and its settings."""
    seen, _ = call.service.require(call.job)
    settings = require_spec(call.service.store, call.job).spec.autoscaler
    record = seen.autoscaler
    if record is None:
        return JobAutoscaler(call.job, settings, None, (), {})
    return JobAutoscaler(call.job, settings, record.evaluation, record.decisions[-form.limit :], dict(record.totals))


def autoscale_job(call: Call, form: AutoscaleForm) -> ChangedAutoscaler:
    """Change the settings of a job's autoscaler; a running driver is not restarted."""
    call.service.require(call.job)
    change = AutoscalerChange(
        form.settings,
        mode=form.mode,
        min_parallelism=form.min_parallelism,
        max_parallelism=form.max_parallelism,
        utilization=form.utilization,
        catch_up_ms=to_ms(form.catch_up, what="catch_up") if form.catch_up is not None else None,
        max_changes=form.max_changes,
        quiet_times=form.quiet,
        zone=form.zone,
    )
    made = job_client(call).autoscale(call.job, change, form.why)
    return ChangedAutoscaler(call.job, made.generation, made.spec.autoscaler)


AUTOSCALING: Final[tuple[ApiRoute, ...]] = (
    route("GET", f"{JOB}/autoscaler", get_autoscaler, LimitForm, role="viewer", answer=JobAutoscaler),
    route("POST", f"{JOB}/autoscaler", autoscale_job, AutoscaleForm, role="operator", answer=ChangedAutoscaler),
)
