"""Whether a running job lags: its watermark is behind, and it does not catch up. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidemark.clock import format_ms
from tidemark.control.alerts.engine.alert_rules import lag_limits
from tidemark.control.model.sanitizing import safe_label
from tidemark.control.model.spec import AlertThresholds
from tidemark.control.model.view import Backpressure, JobView, SourceView
from tidemark.durations import short_duration

_BUSY: Final = 0.9
"""The share of time from which a job's epochs follow one another without a pause worth the name."""


def lagging_sources(view: JobView, *, ratio: float = 1.0) -> tuple[str, ...]:
    """Return a text for each source of a running job that lags; empty if none does, or the job does not run.

    Limits are the error limits of the job's alerts (``AlertThresholds``). With limits of its own in its spec, a job lags as soon as the
    watermark of a source is behind by its limit. With the default limits the age of the data must not count, so the job must also have a
    backlog, have run for as long as the limit, be busy now, and need longer than the limit to catch up, or not catch up at all.

    Args:
        view: the job's view.
        ratio: multiplies the limits and the busy share; below 1 to learn whether a job is near them, also one that has not run for long.
    """
    if view.health != "ok" or view.lifecycle != "running":
        return ()
    return tuple(_lagging(view, ratio))


def _lagging(view: JobView, ratio: float) -> Iterator[str]:
    thresholds = view.spec.alerts if view.spec is not None else AlertThresholds()
    given = thresholds.lag_warn_ms is not None or thresholds.lag_error_ms is not None
    for name, source in view.sources.items():
        limits = lag_limits(thresholds, source)
        most = limits.error if limits.error is not None else limits.warn
        if source.lag_ms is None or most is None or source.lag_ms < most * ratio:
            continue
        if given or _falls_behind(view, most, ratio):
            yield _text(name, source, view.pressure)


def _falls_behind(view: JobView, limit: float, ratio: float) -> bool:
    pressure = view.pressure
    waits = any((pressure.waiting_files, pressure.waiting_bytes, pressure.waiting_rows))
    busy = pressure.busy_share is not None and pressure.busy_share >= _BUSY * ratio
    # A restart does not end a lag.
    long = ratio < 1 or (view.started_at is not None and view.at - view.started_at >= limit)
    return waits and busy and long and (pressure.catch_up_ms is None or pressure.catch_up_ms >= limit * ratio)


def _text(name: str, source: SourceView, pressure: Backpressure) -> str:
    # The watermark and not the age, so that the text changes with the job's progress only.
    held = f", held back by split {safe_label(source.held_by)!r}" if source.held_by else ""
    slow = f", caught up in {short_duration(pressure.catch_up_ms)}" if pressure.catch_up_ms is not None else ""
    return f"source {safe_label(name)!r} lags: its watermark is {format_ms(source.watermark)}{held}{slow}"
