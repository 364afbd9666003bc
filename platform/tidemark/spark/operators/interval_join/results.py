"""The results of a join of elements in an epoch: parts that are read from files of state, of few rows by a prepared pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.operators.base.contract import Results
from tidemark.spark.operators.base.tables import StateTables
from tidemark.spark.operators.base.touched_times import CORRECTED
from tidemark.spark.operators.interval_join.columns import ResultColumns
from tidemark.state.log.records import StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

Parts = Callable[[Sequence[int]], Iterable["DataFrame"]]
"""Makes the parts of results, of equal columns, from the numbers that differ between epochs."""


def results_of(
    parts: Parts,
    columns: ResultColumns,
    state: StateTables,
    *,
    numbers: tuple[int, ...],
    scans: Sequence[Sequence[StateFile]],
    shape: str,
    corrected: Callable[[Sequence[int]], str] | None = None,
) -> Results:
    """Return results; the observation that they are made with will have their number, ``results``, and those that are ``CORRECTED``.

    Args:
        parts: makes their parts, one or more, with times.
        columns: theirs.
        state: the operator's files.
        numbers: as of ``Results``.
        scans: the files that each scan reads, in the order in which the parts read them.
        shape: as of ``Results``.
        corrected: makes the aggregate ``CORRECTED``, as SQL, from the numbers; None where no result comes after its time.
    """
    several = tuple(map(state.few_files, scans))
    few = all(several)

    def build(numbers: Sequence[int], observation: Observation) -> DataFrame:
        whole = reduce(lambda one, other: one.union(other), parts(numbers))
        results = columns.with_position(in_one_task(whole) if few else whole)
        more = () if corrected is None else (F.expr(corrected(numbers)),)
        return results.observe(observation, F.expr("count(1) AS results"), *more)

    shape = shape if corrected is None else f"{shape}, {CORRECTED}"
    return Results(build, numbers, tuple(file for each in several for file in each) if few else (), shape, several)
