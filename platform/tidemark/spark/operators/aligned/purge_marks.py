"""Windows that each pane purges: a pane leaves a mark, and rows of elements up to the mark's epoch no longer count.

Stored rows are never changed. The mark is the pane's row in the table of panes: it has the epoch, and what the trigger still uses of all
elements that the window ever had: their counts and the time of the first. So a window's contents are the rows of epochs after its last
mark, and where files are merged, rows up to it are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField

from tidemark.spark.operators.aligned.firing_rules import BEFORE, FIRST_TIME, LATE_BEFORE, LATE_NOW, NOW
from tidemark.spark.operators.aligned.trigger_frames import EPOCH, INDEX, TAKEN, TAKEN_LATE
from tidemark.spark.operators.aligned.two_stacks import END
from tidemark.spark.prepared.runtime_literals import runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARKED = "__tm_marked"
HAD = "__tm_had"
HAD_LATE = "__tm_had_late"
_FIRST = "__tm_marked_first"

MARK_FIELDS = tuple(StructField(name, LongType()) for name in (EPOCH, TAKEN, TAKEN_LATE, FIRST_TIME))
"""Additional columns of a pane's row, where panes purge their windows."""


def with_mark(firing: DataFrame, epoch: int) -> DataFrame:
    """Return firing windows with the mark that their panes leave."""
    made = {EPOCH: runtime_literals(epoch, varying=END)[0], TAKEN: f"{BEFORE} + {NOW}", TAKEN_LATE: f"{LATE_BEFORE} + {LATE_NOW}"}
    return firing.withColumns({name: F.expr(sql) for name, sql in made.items()})


def newest_marks(panes: DataFrame, windows: Sequence[str], pane: str) -> DataFrame:
    """Return the last mark of each key and window.

    Args:
        panes: the rows of panes.
        windows: the columns of a key and window.
        pane: the column with the number of panes that a row stands for.
    """
    newest = (f"max_by({name}, {EPOCH}) AS {name}" for name in (TAKEN, TAKEN_LATE, FIRST_TIME))
    texts = [f"CAST(sum({pane}) AS INT) AS {pane}", *newest, f"max({EPOCH}) AS {EPOCH}"]
    return panes.groupBy(*windows).agg(*map(F.expr, texts))


def unmarked(rows: DataFrame) -> DataFrame:
    """Return the rows of windows that never had a pane, as ``after_marks`` does."""
    return rows.selectExpr("*", f"0L AS {INDEX}", f"0L AS {HAD}", f"0L AS {HAD_LATE}")


def after_marks(rows: DataFrame, marks: DataFrame, windows: Sequence[str], pane: str) -> DataFrame:
    """Return the rows of elements that came after the last pane of their key and window.

    They have the number of earlier panes, ``INDEX``, of their elements, ``HAD``, and of those elements that came when the window was due,
    ``HAD_LATE``; the first element's time is that of the first one ever.

    Args:
        rows: of elements.
        marks: the last of each key and window.
        windows: the columns of a key and window.
        pane: the column of marks with the number of panes.
    """
    names = [f"__tm_of_{number}" for number in range(len(windows))]
    mark_columns = {INDEX: f"CAST({pane} AS BIGINT)", HAD: TAKEN, HAD_LATE: TAKEN_LATE, _FIRST: FIRST_TIME, MARKED: EPOCH}
    asked = marks.selectExpr(
        *(f"{column} AS {name}" for column, name in zip(windows, names, strict=True)),
        *(f"{sql} AS {name}" for name, sql in mark_columns.items()),
    )
    same = " AND ".join(f"{column} <=> {name}" for column, name in zip(windows, names, strict=True))
    live = rows.join(asked, F.expr(same), "left").where(f"{MARKED} IS NULL OR {EPOCH} > {MARKED}")
    filled = {name: F.expr(f"coalesce({name}, 0L)") for name in (INDEX, HAD, HAD_LATE)}
    first = {FIRST_TIME: F.expr(f"coalesce({_FIRST}, {FIRST_TIME})")}
    return live.withColumns({**filled, **first}).drop(*names, _FIRST, MARKED)
