"""What the pass over groups counts: rows, changes, groups that begin and end, and sums that do not fit their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidemark.errors import UserCodeError
from tidemark.spark.columns.changes import AFTER, BEFORE, differ
from tidemark.spark.columns.expressions import quoted
from tidemark.spark.operators.group_aggregate.columns import EMITS, INPUT, ROWS
from tidemark.spark.operators.group_aggregate.layout import GroupLayout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


class PassCounts:
    """The counts of one pass.

    Args:
        layout: of the state.
        overflows: SQL of whether the value of an aggregate does not fit its type, by name.
    """

    def __init__(self, layout: GroupLayout, overflows: Mapping[str, str]) -> None:
        self._layout = layout
        self._overflows = overflows

    def observed(self, pairs: DataFrame, observation: Observation) -> DataFrame:
        """Return groups as they are, which have their rows of results or the number of their changes; the observation will have the counts.

        ``accepted`` rows of input, ``emitted`` rows of changes, ``touched`` groups, how many more groups there are (``opened``), those
        without rows now (``emptied``), and for each sum that may overflow a group where it does.
        """
        emits = EMITS
        if EMITS not in pairs.columns:
            emits = f"if({differ(pairs)}, CAST({BEFORE} IS NOT NULL AS INT) + CAST({AFTER} IS NOT NULL AS INT), 0)"
        counts = (
            f"coalesce(sum({INPUT}), 0) AS accepted",
            f"coalesce(sum({emits}), 0) AS emitted",
            f"count_if({INPUT} > 0) AS touched",
            f"coalesce(sum(CAST({ROWS} <> 0 AS INT) - CAST(__tm_was AS INT)), 0) AS opened",
            f"count_if(__tm_was AND {ROWS} = 0) AS emptied",
        )
        named = zip(self._layout.keys, self._layout.node.keys, strict=True)
        group = f"to_json(struct({', '.join(f'{quoted(key)} AS {quoted(name)}' for key, (name, _) in named) or '1'}))"
        found = (f"max(if({test}, {group}, NULL)) AS {quoted(f'overflow {name}')}" for name, test in self._overflows.items())
        return pairs.observe(observation, *map(F.expr, (*counts, *found)))

    def check_sums(self, counts: Mapping[str, Any], job: str) -> None:
        """Check that the values of aggregates fit their types.

        Args:
            counts: as observed.
            job: its name.

        Raises:
            UserCodeError: one does not.
        """
        node = self._layout.node
        for name in self._overflows:
            group = counts[f"overflow {name}"]
            if group is not None:
                written = dict(node.aggregates)[name]
                raise UserCodeError(
                    f"the sum of {name!r} = {written.kind}({written.arguments[0]}) of the group {group} has more digits before the point "
                    "than its type",
                    fix=f"keep fewer digits after the point: tm.{written.kind}('CAST({written.arguments[0]} AS DECIMAL(28, 18))')",
                    job=job,
                    uid=node.uid,
                    place=node.place,
                )
