"""One pass over keys: from elements and stored rows to rows with results and the next state of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation, Window
from pyspark.sql import functions as F

from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.expressions import POSITION, START, TIME, quoted
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.operators.keyed.columns import DUE, EPOCH, OLDEST, STATE, TIMER
from tidemark.spark.operators.keyed.key_table import union_of
from tidemark.spark.operators.native_keyed.columns import (
    CHANGES,
    COUNT,
    ELEMENT,
    EMITS,
    EVENT_RENEWED,
    HAD,
    LAST,
    LIVE,
    NOW,
    PROCESSING_RENEWED,
    RANK,
    REACHED,
    result_name,
)
from tidemark.spark.operators.native_keyed.program import KeyedProgram
from tidemark.spark.operators.native_keyed.times import PassTimes
from tidemark.spark.prepared.runtime_literals import literal, runtime_literals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEADLINE: Final = f"coalesce({DUE}, {TIMER})"
"""SQL of the deadline of a row of the table of keys; it has one at most."""

_AFTER: Final = "__tm_after"
"""Whether a key has state after the epoch."""


class KeyedPass:
    """The frames of one pass. Nothing runs until a returned frame is written.

    Args:
        program: what is computed.
        times: of the pass.
    """

    def __init__(self, program: KeyedProgram, times: PassTimes) -> None:
        self.program = program
        self.times = times

    def stored(self, versions: DataFrame) -> DataFrame:
        """Return stored rows of keys as rows of a pass."""
        program, times = self.program, self.times
        ranked = versions.withColumn(RANK, F.expr(f"{literal(MIN_WATERMARK + 1)} + {EPOCH}"))
        high, now = runtime_literals(times.watermark, times.processing_time, varying=RANK)
        return ranked.selectExpr(
            *(f"{quoted(stored)} AS {name}" for stored, name in zip(program.stored_keys, program.key_names, strict=True)),
            RANK,
            f"CAST(NULL AS {POSITION_TYPE.simpleString()}) AS {POSITION}",
            f"false AS {ELEMENT}",
            f"{times.stored_now()} AS {NOW}",
            *(f"{quoted(stored)} AS {name}" for stored, name in zip(program.kept, program.kept_names, strict=True)),
            STATE,
            DUE,
            TIMER,
            f"coalesce({DUE} <= {high}, false) OR coalesce({TIMER} <= {now}, false) AS {REACHED}",
        )

    def live(self, versions: DataFrame) -> DataFrame:
        """Return the newest row of each key that has state, with the columns of state; values that have expired are null."""
        program = self.program
        newest = Window.partitionBy(*(F.col(quoted(key)) for key in program.stored_keys)).orderBy(F.col(EPOCH).desc())
        ranked = versions.withColumn(RANK, F.row_number().over(newest).cast("bigint")).where(f"{RANK} = 1 AND {STATE} IS NOT NULL")
        values = (f"if({self.times.is_expired(self.times.stored_now())}, NULL, {quoted(name)}) AS {quoted(name)}" for name in program.kept)
        return ranked.selectExpr(*map(quoted, program.stored_keys), *values)

    def walked(self, elements: DataFrame, stored: DataFrame | None, *, in_one: bool = False) -> DataFrame:
        """Return the rows of keys that have elements, or stored rows; with ``in_one``, where there are few, in one task."""
        fed = elements if stored is None else union_of([elements, stored])
        return self._finished(self.program.walk(in_one_task(fed) if in_one else fed, self.times, stored=stored is not None))

    def expired(self, stored: DataFrame) -> DataFrame:
        """Return the last rows of keys without elements."""
        program = self.program
        names = [RANK, NOW, *program.kept_names, STATE, DUE, TIMER, REACHED]
        newest = f"max_by(struct({', '.join(names)}), {RANK}) AS newest"
        rows = stored.groupBy(*program.key_names).agg(F.expr(newest)).selectExpr(*program.key_names, "newest.*")
        return self._finished(
            rows.selectExpr(
                "*",
                f"CAST(NULL AS BIGINT) AS {TIME}",
                f"CAST(NULL AS {POSITION_TYPE.simpleString()}) AS {POSITION}",
                f"false AS {ELEMENT}",
                f"0 AS {COUNT}",
                f"false AS {EMITS}",
                f"true AS {LAST}",
                f"{STATE} IS NOT NULL AS {HAD}",
            ),
            results=(),
        )

    def _finished(self, walked: DataFrame, results: Sequence[str] | None = None) -> DataFrame:
        """Return the rows with what changes: whether a key has state after the epoch, and its deadlines."""
        program, times = self.program, self.times
        names = [result_name(n) for n in range(len(program.result_columns))] if results is None else []
        touched = f"{LAST} AND ({ELEMENT} OR {REACHED})"
        marked = walked.selectExpr(
            *(quoted(name) for name in walked.columns if name != STATE),
            f"{LAST} AND {program.entries} > 0 AND NOT {times.is_expired(NOW)} AS {_AFTER}",
            f"{touched} AS __tm_touched",
            f"if({touched}, {program.entries}, 0) AS __tm_entries",
        )
        domain = None if times.ttl is None else times.ttl.domain
        kept = f"__tm_touched AND {_AFTER}"
        none = "CAST(NULL AS BIGINT)"
        return marked.selectExpr(
            *program.key_names,
            RANK,
            TIME,
            POSITION,
            COUNT,
            EMITS,
            *names,
            f"__tm_touched AND ({_AFTER} OR {HAD}) AS {CHANGES}",
            *(f"if({kept}, {name}, NULL) AS {name}" for name in program.kept_names),
            f"{f'if({kept}, {NOW}, NULL)' if domain == 'event' else none} AS {EVENT_RENEWED}",
            f"{f'if({kept}, {NOW}, NULL)' if domain == 'processing' else none} AS {PROCESSING_RENEWED}",
            f"if({kept}, '{LIVE}', NULL) AS {STATE}",
            f"{self._deadline('event', DUE)} AS {DUE}",
            f"{self._deadline('processing', TIMER)} AS {TIMER}",
            f"if(__tm_touched, CAST({_AFTER} AS INT) - CAST({HAD} AS INT), 0) AS __tm_opened",
            f"__tm_touched AND {HAD} AND NOT {_AFTER} AS __tm_closed",
            f"if(__tm_touched AND NOT {_AFTER}, __tm_entries, 0) AS __tm_dropped",
        )

    def _deadline(self, domain: str, stored: str) -> str:
        """Return SQL of a key's next deadline in a domain; of a key that stays as it is the stored one."""
        times = self.times
        next_one = f"if({_AFTER}, {times.deadline(NOW)}, NULL)" if times.ttl is not None and times.ttl.domain == domain else "NULL"
        return f"if(__tm_touched, {next_one}, if({LAST}, {stored}, NULL))"

    @staticmethod
    def observed(finished: DataFrame, observation: Observation) -> DataFrame:
        """Return the rows to write; the observation will have the counts of the pass."""
        counts = (
            f"coalesce(sum({COUNT}), 0) AS accepted",
            f"coalesce(count_if({EMITS}), 0) AS emitted",
            f"coalesce(count_if({CHANGES}), 0) AS changed",
            "coalesce(sum(__tm_opened), 0) AS opened",
            "coalesce(sum(__tm_dropped), 0) AS expired",
            "coalesce(count_if(__tm_closed AND __tm_dropped > 0), 0) AS expired_keys",
            "coalesce(count_if(__tm_closed AND __tm_dropped = 0), 0) AS emptied_keys",
            f"min({DUE}) AS due",
            f"min({TIMER}) AS timer",
        )
        kept = [name for name in finished.columns if name not in (RANK, COUNT, "__tm_opened", "__tm_closed", "__tm_dropped")]
        return finished.observe(observation, *map(F.expr, counts)).where(f"{EMITS} OR {CHANGES}").select(*kept)

    def state_rows(self, written: DataFrame, epoch: int) -> DataFrame:
        """Return the rows of the table of keys, of the rows that a pass wrote."""
        program = self.program
        named = [*zip(program.key_names, program.stored_keys, strict=True), *zip(program.kept_names, program.kept, strict=True)]
        return written.where(CHANGES).selectExpr(
            *(f"{name} AS {quoted(stored)}" for name, stored in named),
            EVENT_RENEWED,
            PROCESSING_RENEWED,
            STATE,
            DUE,
            TIMER,
            f"CAST(NULL AS BIGINT) AS {OLDEST}",
            f"{epoch}L AS {EPOCH}",
            f"{DEADLINE} AS {START}",
        )

    def results(self, written: DataFrame) -> DataFrame:
        """Return the results, of the rows that a pass wrote."""
        columns = self.program.result_columns
        named = (f"{result_name(number)} AS {quoted(name)}" for number, name in enumerate(columns))
        return written.where(EMITS).selectExpr(*named, TIME, POSITION)
