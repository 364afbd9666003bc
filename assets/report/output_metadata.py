"""The metadata of one materialization: row counts, progress in numbers that Dagster plots, and the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from tidemark.assets.report.run_report import RunReport
from tidemark.assets.report.summary import SUMMARY_KEY, summary
from tidemark.assets.report.watermark_chart import watermark_chart
from tidemark.assets.streams.job_streams import StreamData, functions_of, late_operators_of, windows_of
from tidemark.assets.streams.spec_metadata import column_lineage
from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.durations import format_duration
from tidemark.state import EpochProgress

CHART_KEY = "tidemark/watermark_and_late_rows"

_ORDER = (
    *(
        "dagster/row_count",
        "rows_added",
        "inserts",
        "updates",
        "deletes",
        "rows_read",
        "rows_per_second",
        "late_rows",
        "late_ratio",
        "rejected_rows",
        "malformed_rows",
    ),
    *("watermark", "watermark_lag", "watermark_lag_seconds", "oldest_open_window", "windows_closed"),
    *("panes_on_time", "panes_late", "panes_early", "keys", "timers", "timers_fired", "state_expired", "failed_rows"),
    *("state_rows", "state_bytes", "state_files"),
    *("epoch", "epochs", "epoch_seconds", "processing_time", "lineage", "bytes_added"),
)
"""Display order: rows, then time, then windows, process functions and their state, then the run."""


def output_metadata(stream: StreamData, report: RunReport, upstream: Mapping[str, dg.AssetKey]) -> MetadataValues:
    """Return the metadata of a run for one output.

    ``dagster/row_count`` is the table's total since the lineage began, ``tidemark/rows_added`` this run's part of it. Outputs that change
    rows have no total, since what they wrote says nothing of the size of their table.

    Args:
        stream: the output.
        report: the run.
        upstream: asset keys of the job's sources by name, for the column lineage.
    """
    metadata: dict[str, MetadataItem] = {
        **chart_metadata(report.history or report.epochs),
        **summarised_metrics(stream, report),
    }
    if stream.output is not None and (columns := column_lineage(stream.output.node, upstream)):
        metadata["dagster/column_lineage"] = columns
    return metadata


def chart_metadata(epochs: Sequence[EpochProgress]) -> MetadataValues:
    """Return the chart over some epochs, oldest first."""
    return {CHART_KEY: dg.MetadataValue.md(watermark_chart(epochs))}


def summarised_metrics(stream: StreamData, report: RunReport) -> MetadataValues:
    """Return the numbers of ``output_metrics`` after their summary for people."""
    found = output_metrics(stream, report)
    return {SUMMARY_KEY: summary(found), **found}


def output_metrics(stream: StreamData, report: RunReport) -> MetadataValues:
    """Return the plain numbers of ``output_metadata``, in the order in which Dagster shows and plots them."""
    found: dict[str, MetadataItem] = {
        "tidemark/rows_added": report.rows_added(stream.name),
        "tidemark/bytes_added": report.bytes_added(stream.name),
        **{f"tidemark/{name}s": count for name, count in report.changes(stream.name).items()},
        **progress_metadata(report),
        **_operator_metadata(stream, report),
    }
    total = report.rows_total(stream.name)
    if total is not None and not stream.changes_rows:
        found["dagster/row_count"] = total
    return {key: found[key] for key in sorted(found, key=_display_order)}


def _display_order(key: str) -> int:
    """Return a key's position in Dagster's UI, which shows metadata and plots in the given order."""
    name = key.removeprefix("tidemark/")
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def progress_metadata(report: RunReport) -> MetadataValues:
    """Return the metadata that all outputs of a run share; also that of observations during it.

    Unknown numbers (a lag before the first event, a rate of a run without epochs) are left out, so that
    Dagster's plots show a gap and not a zero.
    """
    metadata: dict[str, MetadataItem] = {
        "tidemark/lineage": report.lineage,
        "tidemark/epochs": len(report.epochs),
        "tidemark/rows_read": report.rows_read,
        "tidemark/malformed_rows": report.rows_malformed,
        "tidemark/rejected_rows": report.rows_rejected,
        "tidemark/epoch_seconds": round(report.seconds, 3),
    }
    if report.head is not None:
        metadata["tidemark/epoch"] = report.head.epoch
        metadata["tidemark/processing_time"] = dg.MetadataValue.timestamp(report.head.processing_time / 1000)
    if report.rows_per_second is not None:
        metadata["tidemark/rows_per_second"] = round(report.rows_per_second, 1)
    if report.watermark is not None:
        metadata["tidemark/watermark"] = dg.MetadataValue.timestamp(report.watermark / 1000)
    lag = report.watermark_lag_seconds()
    if lag is not None:
        metadata["tidemark/watermark_lag_seconds"] = round(lag, 1)
        metadata["tidemark/watermark_lag"] = dg.MetadataValue.text(format_duration(round(lag) * 1000))
    return metadata


def _operator_metadata(stream: StreamData, report: RunReport) -> MetadataValues:
    if stream.output is None:
        return {}
    windows = tuple(window.uid for window in windows_of(stream.output.node) if window.uid is not None)
    functions = tuple(function.uid for function in functions_of(stream.output.node) if function.uid is not None)
    late = tuple(found.uid for found in late_operators_of(stream.output.node) if found.uid is not None)
    uids = tuple(dict.fromkeys((*windows, *functions, *late)))
    if not uids:
        return {}
    return {
        **(_late_metadata(late, report) if late else {}),
        **(_window_metadata(windows, report) if windows else {}),
        **(_function_metadata(functions, report) if functions else {}),
        "tidemark/state_rows": report.operator_now(uids, lambda operator: operator.state_rows),
        "tidemark/state_bytes": report.operator_now(uids, lambda operator: operator.state_bytes),
        "tidemark/state_files": report.operator_now(uids, lambda operator: operator.state_files),
    }


def _function_metadata(uids: tuple[str, ...], report: RunReport) -> MetadataValues:
    metadata: dict[str, MetadataItem] = {
        "tidemark/keys": report.operator_now(uids, lambda operator: operator.keys),
        "tidemark/timers": report.operator_now(uids, lambda operator: operator.timers),
        "tidemark/timers_fired": report.operator_sum(uids, lambda operator: operator.timers_fired),
        "tidemark/state_expired": report.operator_sum(uids, lambda operator: operator.state_expired),
        "tidemark/failed_rows": report.operator_sum(uids, lambda operator: operator.counters.get("failed", 0)),
    }
    return metadata


def _late_metadata(uids: tuple[str, ...], report: RunReport) -> MetadataValues:
    rows_in = report.operator_sum(uids, lambda operator: operator.rows_in)
    late = report.operator_sum(uids, lambda operator: operator.late)
    metadata: dict[str, MetadataItem] = {"tidemark/late_rows": late}
    if rows_in:
        metadata["tidemark/late_ratio"] = round(late / rows_in, 6)
    return metadata


def _window_metadata(uids: tuple[str, ...], report: RunReport) -> MetadataValues:
    metadata: dict[str, MetadataItem] = {
        "tidemark/panes_early": report.operator_sum(uids, lambda operator: operator.panes_early),
        "tidemark/panes_on_time": report.operator_sum(uids, lambda operator: operator.panes_on_time),
        "tidemark/panes_late": report.operator_sum(uids, lambda operator: operator.panes_late),
        "tidemark/windows_closed": report.operator_sum(uids, lambda operator: operator.windows_closed),
    }
    oldest = report.oldest_open_window(uids)
    if oldest is not None:
        metadata["tidemark/oldest_open_window"] = dg.MetadataValue.timestamp(oldest / 1000)
    return metadata
