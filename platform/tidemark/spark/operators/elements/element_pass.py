"""One pass over elements: tasks call Python, and what they return is written once, each tag separately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F

from tidemark.spark.changed_settings import changed_settings
from tidemark.spark.columns.arrow_batches import has_python_step, unwatched
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.operators.base.contract import OperatorContext
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.spark.operators.elements.layout import BYTES, NOTE_COLUMNS, ElementLayout
from tidemark.spark.operators.keyed.columns import ACCEPTED, NOTE, OUTPUT, TAG
from tidemark.spark.operators.keyed.task_run import TaskOutput
from tidemark.state.log.parquet_files import ParquetSummary

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Task = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

_WRITERS: Final = "spark.sql.maxConcurrentOutputFileWriters"


def run_pass(
    rows: DataFrame, task: Task, layout: ElementLayout, *, context: OperatorContext, tables: StateTables, small_rows: bool
) -> TaskOutput:
    """Pass rows to tasks, and write what they return; one Spark job, without a shuffle.

    Args:
        rows: with the columns of ``layout.input``.
        task: processes them.
        layout: of the operator.
        context: of the epoch.
        tables: whose folder the rows are written to.
        small_rows: whether so many rows as a batch may have fit into memory, so that their sizes need not be watched; they are watched all
            the same where a step in Python makes the rows, which may take larger ones.
    """
    observation = Observation()
    made = rows.mapInArrow(task, layout.output).observe(
        observation, F.expr(f"sum({ACCEPTED}) AS accepted"), F.expr(f"sum({BYTES}) AS bytes")
    )
    tags = (OUTPUT, *layout.tags.values())
    kept = made.where(f"{TAG} < {NOTE}").drop(*NOTE_COLUMNS, *(() if len(tags) > 1 else (TAG,)))
    folder = tables.new_folder()
    small_rows = small_rows and not has_python_step(rows)
    with unwatched(context.spark, small_rows=small_rows), _writers(context.spark, len(tags)):
        written = write_folder(kept, context.store, folder, compression=STATE_COMPRESSION, apart=[TAG] if len(tags) > 1 else [])
    files: dict[int, list[ParquetSummary]] = {}
    for file in written:
        part, _, _ = file.path.removeprefix(f"{folder}/").partition("/")
        files.setdefault(int(part.removeprefix(f"{TAG}=")) if len(tags) > 1 else OUTPUT, []).append(file)
    return TaskOutput({tag: tuple(found) for tag, found in files.items()}, observation.get, kept.schema)


@contextmanager
def _writers(spark: SparkSession, count: int) -> Iterator[None]:
    """Have Spark write the rows of so many tags side by side, in their order, instead of sorting them by tag."""
    with changed_settings(spark, {_WRITERS: str(max(count, int(str(spark.conf.get(_WRITERS)))))}):
        yield
