"""Counts and maxima of rows, observed in a pass that reads the rows anyway.

A counter is an observation on a DataFrame: it costs no extra job. Its values are those of the first action on that DataFrame that
ran to its end. Spark adds a re-run task of a shuffle stage twice, so the epoch compares each counter with the exact counts of staged
rows (``tidemark.spark.epoch.conservation``) and recounts where they differ. A window operator that groups the rows anyway counts them
by group, after its shuffle, where nothing is added twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.graph.model.nodes import SourceNode
from tidemark.semantics.watermarks.watermarks import SplitObservation
from tidemark.spark.columns.expressions import ROW_STATUS, ROWS, SPLIT, START, TIME, text_literal
from tidemark.spark.frame_steps import FrameSteps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MAX_OBSERVED_SPLITS = 16
"""Beyond so many splits their maxima come from a small groupBy instead, since an observation is interpreted per row."""

PASSING = 0
"""The status of a row that passes."""

MALFORMED = 1
"""The status of a malformed row."""

FILTERED_START = -(2**62)
"""The start of groups of rows that reached no window, plus their status: far below the start of any window."""

_TOTAL = "total"
_STATUS = "verdict_"
_UNKNOWN = "unknown_splits"


@dataclass(frozen=True)
class RowCounts:
    """The values of a counter: rows in total, rows by status, and for a source the observation of each split.

    ``unknown_splits`` counts well-formed rows of splits that the observation did not include.
    """

    total: int
    by_status: Mapping[int, int]
    splits: Mapping[str, SplitObservation]
    unknown_splits: int = 0

    @property
    def passing(self) -> int:
        """Rows that pass."""
        return self.by_status.get(PASSING, 0)


class RowCounter:
    """Counts of one DataFrame whose rows have a status.

    Args:
        statuses: that occur besides PASSING.
        source: the source whose event times are wanted, if the rows come straight from one.
        splits: names of its known splits.
    """

    def __init__(self, statuses: Sequence[int], source: SourceNode | None = None, splits: Sequence[str] = ()) -> None:
        self._statuses = (PASSING, *statuses)
        self._source = source
        self._splits = tuple(splits)
        self._observation = Observation()
        self._columns: Sequence[str] = ()
        self._found: RowCounts | None = None

    @property
    def observation(self) -> Observation:
        """The observation that has the values."""
        return self._observation

    @property
    def by_group(self) -> bool:
        """Whether splits need a separate groupBy.

        Many splits would be slow in an observation, and an observation does not allow FILTER, which a generator's own metrics need.
        """
        return len(self._splits) > MAX_OBSERVED_SPLITS or bool(self._source and self._source.watermarks.generator.metrics)

    def attach(self, rows: DataFrame) -> DataFrame:
        """Return the DataFrame with the observation; the first action on it, or on a frame made from it, counts."""
        return self.attached(rows, rows.columns).frame()

    def attached(self, rows: DataFrame, columns: Sequence[str]) -> FrameSteps:
        """Return the same for further steps; ``columns`` are the DataFrame's."""
        self._columns = columns
        return FrameSteps(rows).observe(self._observation, *self._expressions(columns))

    def group_metrics(self, latest: str, observation: Observation) -> list[str]:
        """Return the metrics, as SQL, to add to an observation of grouped rows, which becomes this counter's.

        Only for rows without splits. ``latest`` names the column with each group's latest event time.
        """
        self._observation, self._columns = observation, (ROW_STATUS,)
        good = f"{START} <> {FILTERED_START + MALFORMED}L"
        counts = {_TOTAL: "true", f"{_STATUS}{PASSING}": f"{START} > {FILTERED_START + 10**6}L"}
        counts |= {f"{_STATUS}{status}": f"{START} = {FILTERED_START + status}L" for status in self._statuses if status != PASSING}
        if self._source is not None:
            counts["rows_0"] = good
        summed = [f"sum(CASE WHEN {rows} THEN {ROWS} END) AS {name}" for name, rows in counts.items()]
        return [*summed, f"max(CASE WHEN {good} THEN {latest} END) AS time_0"]

    def set_counts(self, observed: Mapping[str, object]) -> None:
        """Set the counts to the values of this counter's metrics, or of ``group_metrics``, which a pass without a DataFrame observed."""
        self._columns = (ROW_STATUS, SPLIT) if _UNKNOWN in observed else (ROW_STATUS,)
        self._found = self._read(observed)

    def counts(self) -> RowCounts:
        """Return the counts; the action must have succeeded before."""
        if self._found is None:
            self._found = self._read(self._observation.get)
        return self._found

    def recount(self, rows: DataFrame) -> RowCounts:
        """Count again, exactly, by a separate aggregation; for when tasks were run twice."""
        self._found = self._read(FrameSteps(rows).group((), *self._expressions(self._columns)).frame().first().asDict())  # type: ignore[union-attr]
        return self._found

    def _expressions(self, columns: Sequence[str]) -> list[str]:
        metrics = [f"count(1) AS {_TOTAL}"]
        if ROW_STATUS in columns:
            metrics += [f"count_if({ROW_STATUS} = {status}) AS {_STATUS}{status}" for status in self._statuses]
        if self._source is None:
            return metrics
        good = f"{ROW_STATUS} <> {MALFORMED}"
        if self.by_group:
            return metrics
        if SPLIT not in columns:
            return metrics + _of_split("0", good)
        split = f"coalesce({SPLIT}, '')"
        for number, name in enumerate(self._splits):
            metrics += _of_split(str(number), f"{good} AND {split} = {text_literal(name)}")
        known = ", ".join(map(text_literal, self._splits))
        unknown = f"{good} AND {split} NOT IN ({known})" if known else good
        return [*metrics, f"count_if({unknown}) AS {_UNKNOWN}"]

    def _read(self, values: Mapping[str, object]) -> RowCounts:
        numbers = {name: value if isinstance(value, int) else 0 for name, value in values.items()}
        total = numbers[_TOTAL]
        by_status = {v: numbers[f"{_STATUS}{v}"] for v in self._statuses if f"{_STATUS}{v}" in values}
        found: dict[str, SplitObservation] = {}
        keys = {"": "0"} if "rows_0" in values and not self._splits else {n: str(i) for i, n in enumerate(self._splits)}
        for name, key in keys.items():
            if f"rows_{key}" in values:
                time = values[f"time_{key}"]
                found[name] = SplitObservation(numbers[f"rows_{key}"], time if isinstance(time, int) else None)
        return RowCounts(total, by_status or {PASSING: total}, found, numbers.get(_UNKNOWN, 0))


def observe_splits(rows: DataFrame, source: SourceNode) -> dict[str, SplitObservation]:
    """Return the observation of each split of a source, by a groupBy: for splits that are new, or too many to observe."""
    wanted = source.watermarks.generator.metrics
    split = F.coalesce(F.col(SPLIT), F.lit("")) if SPLIT in rows.columns else F.lit("")
    grouped = (
        rows.where(F.col(ROW_STATUS) != MALFORMED)
        .groupBy(split.alias("split"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.max(TIME).alias("time"),
            *(F.expr(sql).alias(f"metric_{name}") for name, sql in wanted.items()),
        )
    )
    return {
        row["split"]: SplitObservation(row["rows"], row["time"], {name: row[f"metric_{name}"] for name in wanted})
        for row in grouped.collect()
    }


def _of_split(key: str, rows: str) -> list[str]:
    return [f"count_if({rows}) AS rows_{key}", f"max(CASE WHEN {rows} THEN {TIME} END) AS time_{key}"]
