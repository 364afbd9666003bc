"""Writes the Grafana dashboard, ``tidemark.json`` beside this file, from the list of metrics.

Run it from the top of the checkout: ``scripts/run python -m docs.grafana.dashboard``.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemark.control.metrics.metric_registry import ALL_METRICS
from tidemark.control.metrics.metric_types import MetricGroup, MetricInfo

PLACE = Path(__file__).with_name("tidemark.json")

GROUPS: Sequence[MetricGroup] = ("Jobs", "Time", "Rows", "Epochs", "State", "Resources", "Supervisor")
_UNITS: Mapping[str, str] = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_JOBS = 'job=~"$job"'
_WIDTH, _HEIGHT, _STAT_HEIGHT = 8, 7, 4

# At a glance: what is wrong, before the lines say how it came.
_STATS: Sequence[tuple[str, str, str]] = (
    ("Jobs", "count(tidemark_job_healthy{%s})", "none"),
    ("Not healthy", "count(tidemark_job_healthy{%s} == 0) or vector(0)", "none"),
    ("Greatest lag", "max(tidemark_watermark_lag_seconds{%s})", "s"),
    ("Rows read per second", "sum(rate(tidemark_source_rows_total{%s}[$__rate_interval]))", "none"),
    (
        "Late rows",
        (
            "sum(rate(tidemark_operator_late_rows_total{%s}[$__rate_interval]))"
            " / sum(rate(tidemark_operator_rows_total{%s}[$__rate_interval]))"
        ),
        "percentunit",
    ),
    ("Errors that go on", 'sum(tidemark_alerts_firing{severity="error",%s}) or vector(0)', "none"),
)


def query(metric: MetricInfo) -> str:
    """Return what a panel asks for: of counters how fast they grow, of instants how long ago they were."""
    series = f"{metric.name}{{{_JOBS}}}" if "job" in metric.labels else metric.name
    if metric.kind == "counter":
        return f"rate({series}[$__rate_interval])"
    return f"time() - {series}" if metric.stem.endswith("_timestamp") else series


def dashboard() -> dict[str, object]:
    """Return the dashboard."""
    panels: list[dict[str, object]] = []
    top = 0
    for column, (title, expression, unit) in enumerate(_STATS):
        place = {"x": column * 4, "y": top, "w": 4, "h": _STAT_HEIGHT}
        panels.append(_panel("stat", title, expression.replace("%s", _JOBS), unit=unit, place=place, legend=""))
    top += _STAT_HEIGHT
    for group in GROUPS:
        panels.append({"type": "row", "title": group, "collapsed": False, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []})
        metrics = [metric for metric in ALL_METRICS if metric.group == group]
        for number, metric in enumerate(metrics):
            row, column = divmod(number, 24 // _WIDTH)
            place = {"x": column * _WIDTH, "y": top + 1 + row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_of_metric(metric, place))
        top += 1 + _HEIGHT * -(-len(metrics) // (24 // _WIDTH))
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "title": "Tidemark",
        "uid": "tidemark",
        "tags": ["tidemark", "streaming"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource_variable(), _job_variable()]},
        "panels": panels,
    }


def text() -> str:
    """Return the dashboard as the file has it."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def _of_metric(metric: MetricInfo, place: Mapping[str, int]) -> dict[str, object]:
    unit = _UNITS.get(metric.unit, "none")
    title = metric.text.rstrip(".").partition(";")[0]
    if metric.kind == "counter":
        title += ", per second"
    elif metric.stem.endswith("_timestamp"):
        title += ": how long ago"
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels)
    return _panel("timeseries", title, query(metric), unit=unit, place=place, legend=legend) | {
        "description": f"{metric.name}: {metric.text}"
    }


def _panel(kind: str, title: str, expression: str, *, unit: str, place: Mapping[str, int], legend: str) -> dict[str, object]:
    return {
        "type": kind,
        "title": title,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [{"refId": "A", "datasource": _SOURCE, "expr": expression, "legendFormat": legend}],
    }


def _datasource_variable() -> dict[str, object]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _job_variable() -> dict[str, object]:
    asked = "label_values(tidemark_job_healthy, job)"
    return {
        "name": "job",
        "label": "Job",
        "type": "query",
        "datasource": _SOURCE,
        "definition": asked,
        "query": {"query": asked, "refId": "jobs"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
    }


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
