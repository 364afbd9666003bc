"""Checks on a table of window results: no pane twice, no window missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg

from tidemark.assets.checks.check import CheckDeclaration, Finding
from tidemark.assets.checks.check_context import CheckContext, table_of
from tidemark.assets.checks.sample_rows import sample_markdown
from tidemark.assets.streams.job_streams import StreamData, result_window
from tidemark.durations import format_duration, to_ms
from tidemark.errors import DefinitionError
from tidemark.graph import VALID_FROM, ConnectorSpec, DeltaSpec, WindowNode, schema_of
from tidemark.semantics import Cumulative, LocalWindows, Sliding, Tumbling, WindowAssigner

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class UniquePanes:
    """A window output has each (key, window, pane) once; an upserted table has each of its keys once.

    Args:
        output: the output; the job's first main output by default.
        columns: the columns that identify a row; by default the window's keys, ``window_start``, ``window_end`` and ``pane_index``, or
            the keys of an upserted table.
        blocking: keep downstream assets from running when it fails.
    """

    output: str | None = None
    columns: tuple[str, ...] | None = None
    blocking: bool = False
    name: str = "unique_panes"

    @property
    def compares_runs(self) -> bool:
        """It looks at the whole table."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the one check.

        Raises:
            DefinitionError: the output has no window results, or those of a function, and no columns are given, or it lacks one.
            SinkError: the output's sink keeps no table that can be read.
        """
        table_of(stream, None)
        columns = self._columns(stream)
        _require_columns(stream, columns, self)
        return (CheckDeclaration(self.name, f"No row twice by {', '.join(columns)}.", self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding, with the first duplicates."""
        columns = self._columns(stream)
        table = context.table(stream).read(columns)
        rows = 0 if table is None else table.num_rows
        twice = [] if table is None else repeated(table, columns)
        yield Finding(
            self.name,
            passed=not twice,
            description=f"{len(twice)} keys occur more than once" if twice else f"{rows} rows, each once",
            metadata={
                "tidemark/rows_checked": rows,
                "tidemark/repeated": len(twice),
                **({"tidemark/sample": dg.MetadataValue.md(sample_markdown(twice))} if twice else {}),
            },
        )

    def _columns(self, stream: StreamData) -> tuple[str, ...]:
        if self.columns:
            return self.columns
        sink = stream.output.sink if stream.output is not None else None
        if isinstance(sink, DeltaSpec) and sink.keys:
            return (*sink.keys, VALID_FROM) if sink.mode == "scd2" else sink.keys
        if isinstance(sink, ConnectorSpec) and sink.row_keys:
            return sink.row_keys
        window = _window(stream, self)
        if window.function is not None:
            raise DefinitionError(
                f"output {stream.name!r} has the results of a window function, which may be several rows per pane",
                fix="pass UniquePanes the columns that identify a row",
                job=stream.job.name,
                uid=window.uid,
            )
        return (*_keys(window), "window_start", "window_end", "pane_index")


@dataclass(frozen=True)
class NoGaps:
    """Between the first and the last window of an output, no window is missing.

    Use it where every window has rows; windows without rows do not exist and would count as gaps.

    Args:
        output: the output; the job's first main output by default.
        every: distance of the windows' starts; by default that of the output's tumbling, sliding or cumulative windows. Of windows of
            local days the starts are those of their zone; where each element has its own, give ``every``, to which a day that is an hour
            longer or shorter counts as equal.
        by: look for gaps within each value of these columns; over all rows by default.
        blocking: keep downstream assets from running when it fails.
    """

    output: str | None = None
    every: str | timedelta | None = None
    by: tuple[str, ...] = ()
    blocking: bool = False
    name: str = "no_gaps"

    @property
    def compares_runs(self) -> bool:
        """It looks at the whole table."""
        return False

    def declare(self, stream: StreamData) -> Sequence[CheckDeclaration]:
        """Return the one check.

        Raises:
            DefinitionError: the distance of windows is unknown, or the output lacks a column.
            SinkError: the output's sink keeps no table that can be read.
        """
        table_of(stream, None)
        assigner = self._assigner(stream)
        step = format_duration(self._step(stream, assigner))
        _require_columns(stream, (*self.by, "window_start"), self)
        if self.every is None and isinstance(assigner, LocalWindows):
            step += f" in {assigner.zone}"
        scope = f" for each {', '.join(self.by)}" if self.by else ""
        return (CheckDeclaration(self.name, f"A window every {step}{scope}, without gaps.", self.blocking),)

    def evaluate(self, stream: StreamData, context: CheckContext) -> Iterator[Finding]:
        """Yield the finding, with the first gaps."""
        table = context.table(stream).read([*self.by, "window_start"])
        found = [] if table is None else gaps(table, by=self.by, missing_between=self._missing_between(stream))
        missing = sum(int(str(gap["missing"])) for gap in found)
        yield Finding(
            self.name,
            passed=not found,
            description=f"{missing} windows are missing in {len(found)} gaps" if found else "no window is missing",
            metadata={
                "tidemark/gaps": len(found),
                "tidemark/missing_windows": missing,
                **({"tidemark/sample": dg.MetadataValue.md(sample_markdown(found))} if found else {}),
            },
        )

    def _missing_between(self, stream: StreamData) -> Callable[[int, int], int]:
        """Return the function of how many starts are missing between two that follow one another in the table."""
        assigner = self._assigner(stream)
        step = self._step(stream, assigner)
        if not isinstance(assigner, LocalWindows):
            return lambda before, after: (after - before) // step - 1
        if self.every is None:
            return assigner.starts_between
        # Local days are up to some hours longer or shorter than a whole number of steps.
        return lambda before, after: (after - before + step // 2) // step - 1

    def _assigner(self, stream: StreamData) -> WindowAssigner | None:
        """Return the windows of the output; None where ``every`` is given and it has none."""
        if self.every is None:
            return _window(stream, self).assigner
        found = result_window(stream.output.node) if stream.output is not None else None
        return None if found is None else found.assigner

    def _step(self, stream: StreamData, assigner: WindowAssigner | None) -> int:
        if self.every is not None:
            return to_ms(self.every, what="every", minimum=1)
        match assigner:
            case LocalWindows(zone=str()):
                return assigner.distance_ms
            case Tumbling():
                return assigner.size_ms
            case Sliding():
                return assigner.slide_ms
            case Cumulative():
                return assigner.max_size_ms
        raise DefinitionError("windows of this kind have no fixed distance", fix="set NoGaps(every='1 hour')", job=stream.job.name)


def repeated(table: pa.Table, columns: Sequence[str]) -> list[Mapping[str, object]]:
    """Return the combinations of values that occur more than once, with their count."""
    import pyarrow.compute as pc

    counted = table.group_by(list(columns)).aggregate([([], "count_all")])
    twice = counted.filter(pc.greater(counted["count_all"], 1))
    return list(twice.rename_columns({"count_all": "times"}).to_pylist())


def gaps(table: pa.Table, *, by: Sequence[str], missing_between: Callable[[int, int], int]) -> list[Mapping[str, object]]:
    """Return where windows are missing: the group, the windows before and after, and how many are missing between.

    Args:
        table: with ``window_start``.
        by: columns of which each combination of values is a group.
        missing_between: returns how many are missing between two starts, in milliseconds.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = pc.cast(table["window_start"], pa.timestamp("ms"), safe=False)
    known = table.select(list(by)).append_column("window_start", starts).append_column("start_ms", pc.cast(starts, pa.int64()))
    distinct = known.group_by([*by, "window_start", "start_ms"]).aggregate([]).sort_by([(name, "ascending") for name in (*by, "start_ms")])
    found: list[Mapping[str, object]] = []
    before: dict[str, object] | None = None
    for row in distinct.to_pylist():
        if before is not None and all(row[name] == before[name] for name in by):
            missing = missing_between(int(str(before["start_ms"])), row["start_ms"])
            if missing > 0:
                group = {name: row[name] for name in by}
                found.append({**group, "after": before["window_start"], "before": row["window_start"], "missing": missing})
        before = row
    return found


def _require_columns(stream: StreamData, columns: Sequence[str], check: object) -> None:
    """Raise if an output lacks columns, as far as its schema is known."""
    schema = schema_of(stream.output.node) if stream.output is not None else None
    missing = [name for name in columns if schema is not None and schema.find(name) is None]
    if missing:
        raise DefinitionError(
            f"output {stream.name!r} has no {', '.join(missing)}, which {type(check).__name__} needs",
            fix="keep it in the output, or set columns= (UniquePanes) or by= (NoGaps)",
            job=stream.job.name,
        )


def _window(stream: StreamData, check: object) -> WindowNode:
    found = result_window(stream.output.node) if stream.output is not None else None
    if found is None:
        raise DefinitionError(
            f"output {stream.name!r} has no window results, which {type(check).__name__} needs",
            fix="name a window output, or set columns= (UniquePanes) or every= (NoGaps)",
            job=stream.job.name,
        )
    return found


def _keys(window: WindowNode) -> tuple[str, ...]:
    return tuple(name for name, _ in window.keys)
