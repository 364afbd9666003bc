"""What a query may consist of: each part is covered if it is listed here, and refused by its name otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.graph.sql.refusals import QuerySite, shown

if TYPE_CHECKING:
    from sqlglot import exp

_COVERED: Final[Mapping[str, frozenset[str]]] = {
    "Select": frozenset({"with_", "expressions", "distinct", "from_", "joins", "where", "group", "having"}),
    "Union": frozenset({"with_", "this", "expression"}),
    "Subquery": frozenset({"with_", "this", "alias"}),
    "With": frozenset({"expressions"}),
    "CTE": frozenset({"this", "alias"}),
    "From": frozenset({"this"}),
    "Table": frozenset({"this", "alias"}),
    "TableAlias": frozenset({"this"}),
    "Join": frozenset({"this", "side", "kind", "method", "on", "using"}),
    "Where": frozenset({"this"}),
    "Having": frozenset({"this"}),
    "Group": frozenset({"expressions"}),
    "Distinct": frozenset({"expressions"}),
    "Window": frozenset({"this", "partition_by", "order", "over"}),
    "Order": frozenset({"this", "expressions"}),
    "Ordered": frozenset({"this", "desc", "nulls_first"}),
    "Star": frozenset(),
    "Alias": frozenset({"this", "alias"}),
    "Column": frozenset({"this", "table"}),
}
"""By the kind of a part, the parts of it that are read. Values of rows, which Spark computes, have all of theirs."""

_NAMES: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("", "order"): ("ORDER BY", "a stream has no end to order it at: sort what reads the table"),
    ("", "sort"): ("SORT BY", "a stream has no end to order it at: sort what reads the table"),
    ("", "distribute"): ("DISTRIBUTE BY", "leave it out: operators distribute rows by their keys"),
    ("", "cluster"): ("CLUSTER BY", "leave it out: operators distribute rows by their keys"),
    ("", "limit"): ("LIMIT", "the first rows of groups are ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) <= n in an outer query"),
    ("", "offset"): ("OFFSET", "leave it out"),
    ("", "qualify"): ("QUALIFY", "write an outer query: SELECT * FROM (SELECT ..., ROW_NUMBER() ... AS nth) WHERE nth <= 3"),
    ("", "laterals"): ("LATERAL VIEW", "explode before: stream.explode(...)"),
    ("", "pivots"): ("PIVOT", "write aggregates with CASE"),
    ("", "windows"): ("WINDOW", "write the window after OVER"),
    ("", "sample"): ("TABLESAMPLE", "filter before: stream.filter('hash(id) % 10 = 0')"),
    ("", "hint"): ("a hint", "leave it out"),
    ("Union", "distinct"): ("UNION without ALL", "write UNION ALL, or SELECT DISTINCT over it"),
    ("Union", "by_name"): ("UNION BY NAME", "write the columns of both queries in the same order"),
    ("With", "recursive"): ("WITH RECURSIVE", "leave RECURSIVE out"),
    ("Table", "version"): (
        "VERSION AS OF and TIMESTAMP AS OF",
        "start the source where it should begin; for FOR SYSTEM_TIME AS OF write rides.join_asof(prices, ...)",
    ),
    ("Table", "db"): ("a table of a database", "name a stream that is passed: tm.sql('... FROM rides', rides=rides)"),
    ("Table", "joins"): ("a join in parentheses", "write the joins one after the other, or a subquery"),
    ("TableAlias", "columns"): ("a list of columns after an alias", "name the columns in the query: SELECT id AS ride"),
    ("Distinct", "on"): (
        "DISTINCT ON",
        "the first rows are those of ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1 in an outer query",
    ),
    ("Group", "grouping_sets"): ("GROUP BY GROUPING SETS", "name the expressions of the groups"),
    ("Group", "cube"): ("GROUP BY CUBE", "name the expressions of the groups"),
    ("Group", "rollup"): ("GROUP BY ROLLUP", "name the expressions of the groups"),
    ("Group", "all"): ("GROUP BY ALL", "name the expressions of the groups"),
    ("Window", "spec"): (
        "ROWS or RANGE after OVER",
        "ROW_NUMBER() has no frame; aggregates of the rows so far are .key_by('zone').running_aggregate(total=tm.sum('fare'))",
    ),
    ("Window", "alias"): ("a named window", "write PARTITION BY and ORDER BY after OVER"),
    ("Star", "except_"): ("* EXCEPT", "name the columns"),
    ("Column", "db"): ("a name of three parts", "the field of a struct in a table is written (rides.trip).miles"),
}
"""What a part that is not covered is named, of one kind or of any (``""``), and what to write instead."""


def require_covered(query: exp.Expr, site: QuerySite) -> None:
    """Check that a query has only parts that are covered.

    Raises:
        ExpressionError: it names the first other one.
    """
    from sqlglot import exp

    for node in query.walk(bfs=False):
        for part in _uncovered(node):
            name, fix = _NAMES.get((type(node).__name__, part)) or _NAMES.get(("", part)) or (_words(node, part), "leave it out")
            raise site.refused(f"{name} is not covered", fix)
        # Where a query stands in place of a table it is one; elsewhere it would be a value.
        tables = (exp.From, exp.Join, exp.CTE, exp.Subquery, exp.SetOperation)
        if isinstance(node, exp.Query) and node is not query and not isinstance(node.parent, tables):
            raise site.refused(
                f"the subquery in {shown(node.parent or node)} is not covered", "write a join, LEFT SEMI JOIN or LEFT ANTI JOIN"
            )


def _uncovered(node: exp.Expr) -> Iterator[str]:
    """Yield the names of parts that are there and not covered."""
    covered = _COVERED.get(type(node).__name__)
    if covered is None:
        return
    for part, value in node.args.items():
        if value is not None and value is not False and value != [] and part not in covered:
            yield part


def _words(node: exp.Expr, part: str) -> str:
    return f"{part.strip('_').replace('_', ' ').upper()} of {shown(node)}"
