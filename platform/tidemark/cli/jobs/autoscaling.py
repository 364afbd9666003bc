"""``tidemark autoscale``: shows what a job's autoscaler recommends and did, and changes its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict, Unpack

import click

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import DURATION, echo_json, existing_store, json_option, request_options, store_option
from tidemark.clock import format_ms
from tidemark.control.autoscaler.autoscaler_config import load_autoscaler_config
from tidemark.control.client.autoscaler_change import AutoscalerChange
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.autoscaler_records import AutoscalerRecord, ScalingDecision, ScalingEvaluation
from tidemark.control.model.autoscaler_settings import MODES, AutoscalerMode, AutoscalerSettings
from tidemark.control.view.job_views import views
from tidemark.durations import short_duration
from tidemark.state.encoding.codec import to_jsonable


class Given(TypedDict):
    """The command's options by name."""

    mode: AutoscalerMode | None
    config: str | None
    min_parallelism: int | None
    max_parallelism: int | None
    utilization: float | None
    catch_up: int | None
    max_changes: int | None
    quiet: tuple[str, ...]
    zone: str | None


@click.command(
    cls=DocumentedCommand,
    examples=(
        "tidemark autoscale rides",
        "tidemark autoscale rides --mode act --max-parallelism 8 --quiet 'Mon-Fri 08:00-18:00' --zone Europe/Berlin",
    ),
)
@click.argument("job")
@store_option
@click.option("--mode", type=click.Choice(MODES), default=None, help="advise: recommend only; act: change the job's spec; off.")
@click.option("--config", type=click.Path(dir_okay=False), default=None, help="TOML file with all settings; others are back at default.")
@click.option("--min-parallelism", type=click.IntRange(min=1), default=None, help="Lower bound.")
@click.option("--max-parallelism", type=click.IntRange(min=1), default=None, help="Upper bound.  [default: the driver's cores]")
@click.option("--utilization", type=float, default=None, help="Share of the time in which epochs should run, such as 0.7.")
@click.option("--catch-up", type=DURATION, default=None, help="How long it may take to read a backlog.")
@click.option("--max-changes", type=click.IntRange(min=0), default=None, help="Changes in 24 hours at most.")
@click.option("--quiet", multiple=True, metavar="[DAYS ]HH:MM-HH:MM", help="A time without changes; may be repeated; '' for none.")
@click.option("--zone", default=None, help="Time zone of the quiet times, such as Europe/Berlin.")
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="How many decisions to show.")
@request_options
@json_option
def autoscale(job: str, store: str | None, *, limit: int, by: str, why: str, as_json: bool, **given: Unpack[Given]) -> None:
    """Show what a job's autoscaler recommends and did, or change its settings. JOB is a job's name.

    A supervisor, or Dagster's reconcile sensor, evaluates the load of running jobs. By default the autoscaler advises only. With --mode act
    it changes parallelism and intake in the job's spec, which a driver applies at its next epoch, without a restart.
    """
    root = existing_store(store)
    require_spec(root, job)
    change = _change_of(given)
    if not change.is_empty:
        JobClient(root, by).autoscale(job, change, why)
    [(seen, _)] = views(root, job)
    settings = (seen.generation or require_spec(root, job)).spec.autoscaler
    record = seen.autoscaler or AutoscalerRecord(job)
    if as_json:
        shown = replace(record, samples=(), decisions=record.decisions[-limit:])
        echo_json({"settings": to_jsonable(settings), **to_jsonable(shown)})
        return
    click.echo("\n".join((f"{job}: autoscaler {settings.mode}", *(f"  {line}" for line in _lines(settings, record, limit)))))


def _change_of(given: Given) -> AutoscalerChange:
    """Return the change that options describe."""
    return AutoscalerChange(
        load_autoscaler_config(given["config"]) if given["config"] is not None else None,
        mode=given["mode"],
        min_parallelism=given["min_parallelism"],
        max_parallelism=given["max_parallelism"],
        utilization=given["utilization"],
        catch_up_ms=given["catch_up"],
        max_changes=given["max_changes"],
        quiet_times=tuple(filter(None, given["quiet"])) if given["quiet"] else None,
        zone=given["zone"],
    )


def _lines(settings: AutoscalerSettings, record: AutoscalerRecord, limit: int) -> Iterator[str]:
    band = f"{settings.utilization_min:g} to {settings.utilization_max:g}"
    yield f"goal: utilization {settings.utilization_target:g} ({band}), a backlog read within {short_duration(settings.catch_up_ms)}"
    most = "the driver's cores" if settings.max_parallelism is None else settings.max_parallelism
    intake = f"intake {settings.min_intake:.3g} to {settings.max_intake:g}"
    yield f"bounds: parallelism {settings.min_parallelism} to {most}, {intake}, {settings.max_changes_per_day} changes in 24 hours"
    if settings.quiet_times:
        yield f"quiet times: {', '.join(settings.quiet_times)} ({settings.zone})"
    if record.evaluation is None:
        if settings.mode != "off":
            yield "nothing was measured yet: a running job is sampled by `tidemark supervise` or Dagster's reconcile sensor"
    else:
        yield from _evaluation(record.evaluation)
    for made in record.decisions[-limit:]:
        yield _decision(made)


def _evaluation(found: ScalingEvaluation) -> Iterator[str]:
    yield f"at {format_ms(found.at)}: {found.reason}"
    yield f"recommends: {found.text or 'no change'}" + (f" (not now: {found.held})" if found.held else "")


def _decision(made: ScalingDecision) -> str:
    gain = f" (it changed the processing rate by {made.gain:+.0%})" if made.gain is not None else ""
    return f"{format_ms(made.at)}  {made.kind}  {made.text}: {made.reason}{gain}"
