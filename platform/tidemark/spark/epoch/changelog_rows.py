"""Between streams and changelogs: rows taken as changes, and changes taken as elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from tidemark.graph.checks.changelogs import changelog_keys, is_net
from tidemark.graph.model.nodes import ChangelogNode, ElementsNode, Expression
from tidemark.semantics.changelog.row_kinds import NAMES, SIGNS, RowKind
from tidemark.spark.columns.changes import ADDS, AFTER, BEFORE, CHANGE_TYPE, as_changes, changed, kind_names, net_changes
from tidemark.spark.columns.expressions import CHANGE, POSITION, SPLIT, TIME, column, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SEQUENCE: Final = "__tm_sequence"


def converted(node: ChangelogNode | ElementsNode, rows: DataFrame) -> DataFrame:
    """Return the rows of a node that makes a changelog of a stream, or a stream of a changelog."""
    return rows_as_changes(node, rows) if isinstance(node, ChangelogNode) else changes_as_elements(node, rows)


def rows_as_changes(node: ChangelogNode, rows: DataFrame) -> DataFrame:
    """Return the rows of a stream as changes: all inserts, or the net change of what their operations say, in order.

    The order is that of the sequence, or else of the source, never of event times: the rows of a log are in the order in which it has them.

    An operation that is none fails the epoch with the names of those that there are.
    """
    rows = rows.drop(SPLIT)
    if node.operation is None:
        return rows.withColumn(CHANGE, F.lit(int(RowKind.INSERT)).cast(CHANGE_TYPE))
    marked = rows.withColumn(CHANGE, _kind(node.operation))
    names = [name for name in marked.columns if name != CHANGE]
    if node.sequence is not None:
        marked = marked.withColumn(_SEQUENCE, column(node.sequence))
    adds = f"__tm_row.{CHANGE} IN ({int(RowKind.INSERT)}, {int(RowKind.UPDATE_AFTER)})"
    # Of two rows at one place, which are the pair of an update, the one before comes first.
    order = f"struct({', '.join([*(name for name in (_SEQUENCE, POSITION, TIME) if name in marked.columns), f'{ADDS} AS adds'])})"
    whole = f"struct({CHANGE}, struct({', '.join(map(quoted, names))}) AS row)"
    grouped = marked.groupBy(*map(quoted, node.keys)).agg(
        F.expr(f"min_by({whole}, {order})").alias("__tm_first"), F.expr(f"max_by({whole}, {order})").alias("__tm_last")
    )
    first, last = (adds.replace("__tm_row", name) for name in ("__tm_first", "__tm_last"))
    pairs = grouped.select(
        F.expr(f"if({first}, NULL, __tm_first.row)").alias(BEFORE), F.expr(f"if({last}, __tm_last.row, NULL)").alias(AFTER)
    )
    return as_changes(changed(pairs))


def changes_as_elements(node: ElementsNode, rows: DataFrame) -> DataFrame:
    """Return the net changes of a changelog as elements, with the name of their kinds."""
    net = rows if is_net(node.input) else net_changes(rows, changelog_keys(node.input) or ())
    return net.withColumn(node.operation, F.expr(kind_names())).drop(CHANGE)


def _kind(operation: Expression) -> Column:
    names = {**NAMES, **SIGNS}
    given = column(operation)
    cases = F.when(F.lit(False), F.lit(0).cast(CHANGE_TYPE))
    for name, kind in names.items():
        cases = cases.when(given == name, F.lit(int(kind)).cast(CHANGE_TYPE))
    message = F.concat(F.lit("as_changelog: "), F.coalesce(F.to_json(F.struct(given.alias("operation"))), F.lit("null")))
    wrong = F.raise_error(F.concat(message, F.lit(f" is none of {', '.join(NAMES)}")))
    return cases.otherwise(wrong.cast(CHANGE_TYPE))
