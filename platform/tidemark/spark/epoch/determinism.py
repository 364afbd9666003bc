"""Whether reading rows twice could give other rows, as far as Spark knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from tidemark.graph.checks.changelogs import changelog_keys, changing_over_changelog
from tidemark.graph.checks.node_expressions import deferred_expressions
from tidemark.graph.expressions.expression_text import describe_expression
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.nodes import Expression, Node, StatefulNode
from tidemark.spark.columns.expressions import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether Spark considers every expression of the plan deterministic (no rand, uuid, …), and none reads the clock."""
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Python has no public way to ask
    jvm = frame.sparkSession.sparkContext._jvm  # noqa: SLF001
    if jvm is None:
        raise ValueError("the session has ended")
    asks_for_time = plan.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE())
    return bool(plan.deterministic()) and not asks_for_time


def require_repeatable(node: Node, given: Node, rows: DataFrame) -> None:
    """Check the functions of a node that make a Column over a changelog; of SQL texts the graph knows it.

    Args:
        node: a step, or an operator.
        given: the node whose rows it takes.
        rows: of it.

    Raises:
        ExpressionError: one may give another value when a row is taken back.
    """
    if changelog_keys(given) is None:
        return
    for site, expression in _functions(node, given):
        alone = rows.sparkSession.createDataFrame([], rows.schema)
        made = alone.select(column(cast("Expression", expression)).alias("value"))
        if not is_deterministic(made):
            raise changing_over_changelog(site, describe_expression(cast("Expression", expression)), "is not deterministic")


def _functions(node: Node, given: Node) -> Iterable[tuple[Site, Callable[[], object]]]:
    if not isinstance(node, StatefulNode) or len(node.inputs) == 1:
        return deferred_expressions(node)
    keys = [named for port in node.ports if port.node is given for named in port.keys]
    return [(Site(f"key {name!r}", node.place, node.uid), each) for name, each in keys if not isinstance(each, str)]
