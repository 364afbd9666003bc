"""The metadata of a late-data asset: what would have kept its rows, and the windows and partitions that they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

import dagster as dg

from tidemark.assets.report.complete_partitions import partition_at
from tidemark.assets.report.run_report import RunReport
from tidemark.assets.streams.job_streams import StreamData, emitter, late_operators_of, output_streams
from tidemark.assets.values.markdown import as_plain
from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.clock import format_ms
from tidemark.durations import format_duration
from tidemark.graph import StatefulNode, kind_of
from tidemark.semantics import Shortfalls

MAX_WINDOWS: Final = 20
"""So many windows are shown, those with the most late rows; and so many partitions, the newest."""

_KEPT_COLUMNS: Final = (
    dg.TableColumn("setting", description="What to set."),
    dg.TableColumn("more_seconds", "float", "By how much that is more than today's."),
    dg.TableColumn("rows_kept", "int", "How many of the late rows it would have kept."),
    dg.TableColumn("share", "string", "Their share."),
    dg.TableColumn("advised", "bool", "Whether it is the least that would have kept nearly all."),
)


@dataclass(frozen=True)
class _Results:
    """The asset of a main output that late rows would have been in, and its partitions if it has any."""

    name: str
    key: dg.AssetKey
    partitions_def: dg.TimeWindowPartitionsDefinition | None

    def partition_of(self, start: int) -> str | None:
        """Return the partition that a window is in, None where there is none."""
        return None if self.partitions_def is None else partition_at(self.partitions_def, start)

    def link(self, partition: str) -> str:
        """Return a link in Markdown to a partition's page in Dagster's UI."""
        path = "/".join(quote(part, safe="") for part in self.key.path)
        return f"[{as_plain(partition)}](/assets/{path}?{urlencode({'view': 'partitions', 'partition': partition})})"


def late_row_metadata(
    stream: StreamData,
    report: RunReport,
    keys: Mapping[str, dg.AssetKey],
    partitions: Mapping[str, dg.TimeWindowPartitionsDefinition],
) -> MetadataValues:
    """Return the metadata of a side output of late rows; nothing for other outputs, and without late rows.

    ``tidemark/late_advice`` says what would have kept how many, ``tidemark/late_rows_kept`` for each step of lateness,
    ``tidemark/advised_more_seconds`` is the advised one. ``tidemark/late_windows`` has the windows with the most late rows,
    ``tidemark/late_partitions`` the partitions that they start in, and ``tidemark/results_<output>`` links the asset of each main output
    that the rows would have been in.

    Args:
        stream: the output.
        report: the epochs.
        keys: asset keys of the job's outputs.
        partitions: those of them that have time partitions.
    """
    found = _late_operator(stream)
    if found is None:
        return {}
    operator, counter = found
    results = [
        _Results(each.name, keys[each.name], partitions.get(each.name))
        for each in output_streams(stream.job)
        if each.name in keys and _comes_of(each, operator)
    ]
    metadata: dict[str, MetadataItem] = {}
    shortfalls = _shortfalls(report, operator, counter)
    if shortfalls is not None:
        metadata |= _advice(shortfalls)
    metadata |= _windows(report, operator, results)
    if metadata:
        metadata |= {f"tidemark/results_{each.name}": dg.MetadataValue.asset(each.key) for each in results}
    return metadata


def _late_operator(stream: StreamData) -> tuple[StatefulNode, str] | None:
    """Return the operator whose late rows a stream has, and their counter."""
    emitting, tag = (None, None) if stream.output is None else emitter(stream.output.node) or (None, None)
    if not isinstance(emitting, StatefulNode) or tag is None:
        return None
    counter = emitting.counter_of(tag)
    return (emitting, counter) if counter in kind_of(emitting).late_counters(emitting) else None


def _comes_of(stream: StreamData, operator: StatefulNode) -> bool:
    """Return whether an output has results of an operator, or of what follows it."""
    return stream.kind == "main" and stream.output is not None and operator in late_operators_of(stream.output.node)


def _shortfalls(report: RunReport, operator: StatefulNode, counter: str) -> Shortfalls | None:
    """Return the shortfalls of the late rows of a report's epochs, since the allowed lateness was changed last."""
    total: Shortfalls | None = None
    for epoch in report.epochs:
        progress = epoch.operators.get(operator.uid or "")
        more = progress.shortfalls.get(counter) if progress is not None else None
        if more is not None:
            total = more if total is None else total + more
    return total


def _advice(found: Shortfalls) -> dict[str, MetadataItem]:
    advised = found.advised
    metadata: dict[str, MetadataItem] = {"tidemark/late_advice": dg.MetadataValue.text(str(found))}
    if advised is not None:
        rows = [
            dg.TableRecord(
                {
                    "setting": found.setting(more),
                    "more_seconds": more / 1000,
                    "rows_kept": kept,
                    "share": found.share(kept),
                    "advised": more == advised,
                }
            )
            for more, kept in found.steps
        ]
        metadata["tidemark/late_rows_kept"] = dg.MetadataValue.table(rows, dg.TableSchema(columns=list(_KEPT_COLUMNS)))
        metadata["tidemark/advised_more_seconds"] = advised / 1000
        metadata["tidemark/advised_setting"] = dg.MetadataValue.text(found.setting(advised))
    return metadata


def _windows(report: RunReport, operator: StatefulNode, results: Sequence[_Results]) -> dict[str, MetadataItem]:
    rows: Counter[tuple[int, int]] = Counter()
    starts: set[int] = set()
    for epoch in report.epochs:
        progress = epoch.operators.get(operator.uid or "")
        if progress is not None:
            starts |= set(progress.late_windows)
            for window in progress.most_late:
                rows[window.start, window.end] += window.rows
    metadata: dict[str, MetadataItem] = {}
    if rows:
        metadata["tidemark/late_windows"] = dg.MetadataValue.md(_window_table(rows, results))
    if partitions := list(_partition_links(starts, results)):
        metadata["tidemark/late_partitions"] = dg.MetadataValue.md("\n".join(partitions))
    return metadata


def _window_table(rows: Mapping[tuple[int, int], int], results: Sequence[_Results]) -> str:
    linked = [each for each in results if each.partitions_def is not None]
    most = sorted(rows.items(), key=lambda item: (-item[1], item[0]))
    lines = [
        "| " + " | ".join(("from", "length", "late rows", *(f"partition of {as_plain(each.name)}" for each in linked))) + " |",
        "|---|---|---:|" + "---|" * len(linked),
    ]
    for (start, end), count in most[:MAX_WINDOWS]:
        links = [each.link(key) if (key := each.partition_of(start)) is not None else "" for each in linked]
        lines.append("| " + " | ".join((format_ms(start), format_duration(end - start), f"{count:,}", *links)) + " |")
    if len(most) > MAX_WINDOWS:
        lines.append(f"\nand {len(most) - MAX_WINDOWS} more")
    return "\n".join(lines)


def _partition_links(starts: set[int], results: Sequence[_Results]) -> Iterator[str]:
    for each in results:
        found = dict.fromkeys(key for start in sorted(starts, reverse=True) if (key := each.partition_of(start)) is not None)
        if found:
            more = f", and {len(found) - MAX_WINDOWS} more" if len(found) > MAX_WINDOWS else ""
            yield f"- {as_plain(each.name)}: {', '.join(map(each.link, list(found)[:MAX_WINDOWS]))}{more}"
