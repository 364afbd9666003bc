"""The DataFrames of a temporal (as-of) join: what each side keeps, and the answers of an epoch, by native Spark expressions.

Versions and left elements are one frame, sorted by key and time, versions first: one window over it finds the last version before each
element. So the cost is that of sorting, whatever the number of versions of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from tidemark.graph.operators.asof_join.node import LATE_LEFT, LATE_RIGHT, LEFT, AsofJoinNode
from tidemark.graph.operators.join_keys import added_names
from tidemark.graph.operators.state_names import key_column, left_column, right_column
from tidemark.semantics.joins.asof import AsofBounds
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.changes import AFTER, BEFORE, as_changes, changed
from tidemark.spark.columns.expressions import CHANGE, POSITION, START, TIME, column, quoted, visible_of
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.operators.base.touched_times import CORRECTED, late_metric, touched_metric
from tidemark.spark.operators.keyed.columns import EPOCH, TAG
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

RESULT: Final = 0
LATE_LEFT_ROW: Final = 1
LATE_RIGHT_ROW: Final = 2

_COUNTED: Final = {"emitted": RESULT, LATE_LEFT: LATE_LEFT_ROW, LATE_RIGHT: LATE_RIGHT_ROW}

_SIDE: Final = "__tm_side"
_NEW: Final = "__tm_new"
_LEFT: Final = "__tm_left"
_RIGHT: Final = "__tm_right"
_NOW: Final = "__tm_now"
_EARLIER: Final = "__tm_earlier"
_BASE: Final = "__tm_base"
_LONE: Final = "__tm_lone"


@dataclass(frozen=True)
class AsofInput:
    """The rows of a pass: elements and versions that are new in the epoch, and those of earlier ones; None where there are none.

    ``few`` says that they are few, and processed in one task, ``has_late`` that some new ones may be late.
    """

    new_lefts: DataFrame | None
    lefts: DataFrame | None
    new_versions: DataFrame | None
    versions: DataFrame | None
    few: bool = False
    has_late: bool = True


class AsofFrames:
    """The frames of an operator. Nothing runs until a returned frame is written.

    Args:
        node: the operator.
    """

    def __init__(self, node: AsofJoinNode) -> None:
        self.keys = [key_column(key.name) for key in node.on]
        self._node = node

    def rows_of(self, port: str, rows: DataFrame, epoch: int) -> DataFrame:
        """Return the rows of an input as they are kept: keys, columns, time and position, and of versions the epoch that they came in."""
        if port == LEFT:
            return rows.select(*self._keys(0), *_renamed(rows, left_column), *_order(rows))
        return rows.select(*self._keys(1), *_renamed(rows, right_column), *_order(rows), F.lit(epoch).cast("bigint").alias(EPOCH))

    def _keys(self, side: int) -> list[Column]:
        return [column(expression).alias(key) for key, (_, expression) in zip(self.keys, self._node.port_keys[side], strict=True)]

    @property
    def has_null(self) -> str:
        """SQL of whether a kept row's key has a null, so that it matches nothing."""
        return " OR ".join(f"{quoted(key)} IS NULL" for key in self.keys)

    def answers(self, given: AsofInput, before: AsofBounds, lefts: Sequence[str], rights: Sequence[str]) -> DataFrame:
        """Return the rows of a pass: answers, corrections, and late elements, each with its tag.

        Args:
            given: left elements that are answered, or may be corrected, and the versions of their keys.
            before: the bounds after the epoch before.
            lefts: the columns of left elements, as they are kept.
            rights: the columns of versions, as they are kept.
        """
        rows = self._together(given, lefts, rights)
        by_key = Window.partitionBy(*map(quoted, self.keys), _LONE)
        in_order = by_key.orderBy(START, _SIDE, F.col(POSITION).asc_nulls_first(), F.col(EPOCH).asc_nulls_first())
        so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        gone, answered = runtime_literals(before.gone, before.answered)
        found = {_NOW: F.last(_RIGHT, ignorenulls=True).over(so_far)}
        if self._node.corrects:
            found[_EARLIER] = F.last(F.expr(f"if({_NEW}, NULL, {_RIGHT})"), ignorenulls=True).over(so_far)
        late = "true" if before.ended else "false"
        if given.has_late and not before.ended:
            base = F.expr(f"if({_SIDE} = 0 AND NOT {_NEW} AND {START} <= {gone}, {START}, NULL)")
            found[_BASE] = F.max(base).over(in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))
            late = f"({START} <= {gone} AND {_BASE} IS NOT NULL AND {START} < {_BASE})"
        tag = f"CASE WHEN NOT ({_NEW} AND {late}) THEN {RESULT} WHEN {_SIDE} = 1 THEN {LATE_LEFT_ROW} ELSE {LATE_RIGHT_ROW} END"
        tagged = rows.withColumns(found).withColumn(TAG, F.expr(tag)).where(f"{_SIDE} = 1 OR {TAG} <> {RESULT}")
        if self._node.corrects:
            return self._changes(tagged, answered, lefts, rights)
        if self._node.how == "inner":
            tagged = tagged.where(f"{_NOW} IS NOT NULL OR {TAG} <> {RESULT}")
        return tagged.selectExpr(*_fields(lefts, rights, _NOW), f"{START} AS {TIME}", POSITION, TAG)

    def _together(self, given: AsofInput, lefts: Sequence[str], rights: Sequence[str]) -> DataFrame:
        """Return elements and versions as rows of one frame."""
        left, right = (f"struct({', '.join(map(quoted, names))})" for names in (lefts, rights))
        parts = [
            rows.selectExpr(*map(quoted, self.keys), START, POSITION, *more, f"{side} AS {_SIDE}", f"{new} AS {_NEW}")
            for rows, side, new, more in (
                (given.versions, 0, False, [EPOCH, f"{right} AS {_RIGHT}"]),
                (given.new_versions, 0, True, [EPOCH, f"{right} AS {_RIGHT}"]),
                (given.lefts, 1, False, [f"{left} AS {_LEFT}"]),
                (given.new_lefts, 1, True, [f"{left} AS {_LEFT}"]),
            )
            if rows is not None
        ]
        whole_rows = parts[0]
        for part in parts[1:]:
            whole_rows = whole_rows.unionByName(part, allowMissingColumns=True)
        if given.few:
            whole_rows = in_one_task(whole_rows)
        return whole_rows.withColumn(_LONE, F.expr(f"if({self.has_null}, {START}, NULL)"))

    def _changes(self, tagged: DataFrame, answered: str, lefts: Sequence[str], rights: Sequence[str]) -> DataFrame:
        """Return answers and corrections as changes of the left element's row, and late elements as inserts."""
        first = f"({_NEW} OR {START} > {answered})"
        without = "false" if self._node.how == "left" else f"({TAG} = {RESULT} AND {{}} IS NULL)"
        engine = [f"'{TIME}', {START}", f"'{POSITION}', {POSITION}", f"'{TAG}', {TAG}"]
        earlier, now = (f"named_struct({', '.join([*_named(lefts, rights, version), *engine])})" for version in (_EARLIER, _NOW))
        pairs = tagged.selectExpr(
            f"if({first} OR {without.format(_EARLIER)}, NULL, {earlier}) AS {BEFORE}",
            f"if({without.format(_NOW)}, NULL, {now}) AS {AFTER}",
        )
        return as_changes(changed(pairs))

    def pruned(self, versions: DataFrame, gone: int) -> DataFrame:
        """Return the versions that can still be met: all after ``gone``, and of those before it the newest of each key."""
        (bound,) = runtime_literals(gone)
        order = [F.col(name).desc_nulls_last() for name in (START, POSITION, EPOCH)]
        number = F.row_number().over(Window.partitionBy(*map(quoted, self.keys), "__tm_gone").orderBy(*order))
        numbered = versions.withColumn("__tm_gone", F.expr(f"{START} <= {bound}")).withColumn("__tm_number", number)
        return numbered.where("NOT __tm_gone OR __tm_number = 1").drop("__tm_gone", "__tm_number")

    @staticmethod
    def counted(made: DataFrame, observation: Observation, *, behind: int | None, least: int | None) -> DataFrame:
        """Return the rows of a pass; the observation will have their numbers, and the times of late elements and of ``CORRECTED`` answers.

        Args:
            made: from ``answers``.
            observation: as above.
            behind: answers up to this time come, or are corrected, after theirs; None where there are none.
            least: the least time that is not late, as ``least_kept`` returns it; None where there can be no late elements.
        """
        metrics = [f"count_if({TAG} = {tag}) AS {name}" for name, tag in _COUNTED.items()]
        if behind is not None:
            after = f"{TAG} = {RESULT} AND {TIME} <= {runtime_literals(behind, varying=TIME)[0]}"
            metrics.append(touched_metric(after, TIME, CORRECTED))
        if least is not None:
            (kept,) = runtime_literals(least, varying=TIME)
            metrics.append(late_metric(f"{TAG} <> {RESULT}", TIME, f"({kept} - {TIME})"))
        return made.observe(observation, *map(F.expr, metrics))

    def results(self, made: DataFrame, names: Sequence[str] | None) -> DataFrame:
        """Return the results of a pass, with the columns that users see, in the order of ``names``."""
        visible = visible_of(made.columns)
        lefts = [name.removeprefix(left_column("")) for name in visible if name.startswith(left_column(""))]
        rights = [name.removeprefix(right_column("")) for name in visible if name.startswith(right_column(""))]
        stored = {name: left_column(name) for name in lefts} | {name: right_column(name) for name in added_names(self._node.on, rights)}
        ordered = [name for name in names or () if name in stored]
        ordered += [name for name in stored if name not in ordered]
        hidden = [name for name in (TIME, POSITION, CHANGE) if name in made.columns]
        rows = made.where(f"{TAG} = {RESULT}")
        return rows.selectExpr(*(f"{quoted(stored[name])} AS {quoted(name)}" for name in ordered), *hidden)

    @staticmethod
    def late_rows(made: DataFrame, tag: int) -> DataFrame:
        """Return late elements of one side, with the columns of its input."""
        prefix = left_column("") if tag == LATE_LEFT_ROW else right_column("")
        names = [name for name in visible_of(made.columns) if name.startswith(prefix)]
        rows = made.where(f"{TAG} = {tag}")
        return rows.selectExpr(*(f"{quoted(name)} AS {quoted(name.removeprefix(prefix))}" for name in names), TIME, POSITION)


def prefix_of(port: str) -> str:
    """Return what the columns of an input have before their names, as they are kept."""
    return left_column("") if port == LEFT else right_column("")


def _renamed(rows: DataFrame, rename: Callable[[str], str]) -> list[Column]:
    return [F.col(quoted(name)).alias(rename(name)) for name in visible_of(rows.columns)]


def _order(rows: DataFrame) -> list[Column]:
    position = F.col(POSITION) if POSITION in rows.columns else F.lit(None).cast(POSITION_TYPE).alias(POSITION)
    return [F.col(TIME).alias(START), position]


def _fields(lefts: Sequence[str], rights: Sequence[str], version: str) -> list[str]:
    return [f"{struct}.{quoted(name)} AS {quoted(name)}" for struct, name in _places(lefts, rights, version)]


def _named(lefts: Sequence[str], rights: Sequence[str], version: str) -> list[str]:
    return [f"{_text(name)}, {struct}.{quoted(name)}" for struct, name in _places(lefts, rights, version)]


def _places(lefts: Sequence[str], rights: Sequence[str], version: str) -> list[tuple[str, str]]:
    return [*((_LEFT, name) for name in lefts), *((version, name) for name in rights)]


def _text(name: str) -> str:
    """Return a name as an SQL text."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
