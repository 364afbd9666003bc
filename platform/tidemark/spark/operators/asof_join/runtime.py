"""The temporal (as-of) join: an epoch stages each input, and one pass answers the left elements that are due.

State is two tables: left elements that wait, or whose answers are still corrected; and versions. Both are in order of arrival, with the
bounds of their times for each file, so that files that no due element is in are not read, and files of expired elements are dropped unread.
An epoch makes a Spark job for each input that has rows, one for the pass, and one for each output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.operators.asof_join.node import LATE_LEFT, LATE_RIGHT, LEFT, RIGHT, AsofJoinNode
from tidemark.graph.operators.join_keys import added_names, check_names
from tidemark.semantics.joins.asof import AsofBounds
from tidemark.semantics.watermarks.shortfalls import least_kept
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, SourceState, operator_watermark
from tidemark.spark.columns.arrow_batches import POSITION_TYPE
from tidemark.spark.columns.expressions import POSITION, START, quoted, visible_of
from tidemark.spark.columns.few_rows import FEW_ROWS
from tidemark.spark.columns.schemas import no_rows, nullable
from tidemark.spark.columns.state_files import overlapping
from tidemark.spark.operators.asof_join.frames import LATE_LEFT_ROW, LATE_RIGHT_ROW, AsofFrames, AsofInput, prefix_of
from tidemark.spark.operators.base.contract import (
    InputCounts,
    Observed,
    OperatorContext,
    OperatorEpoch,
    OperatorRuntime,
    PortInput,
    Results,
    run_in_order,
)
from tidemark.spark.operators.base.kept_rows import write_kept
from tidemark.spark.operators.base.staged_rows import StagedRows, staged_rows
from tidemark.spark.operators.base.tables import MAIN, StateTables, is_current
from tidemark.spark.operators.base.touched_times import CORRECTED, LATE_TIMES, listed_times
from tidemark.spark.operators.keyed.columns import EPOCH
from tidemark.spark.operators.keyed.key_table import rows_of_keys, union_of
from tidemark.spark.prepared.prepared_pass import Frame
from tidemark.spark.prepared.runtime_literals import runtime_literals
from tidemark.state.gc.compaction import LARGEST_FILE, plan_compaction
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSIONS: Final = "versions"
"""The table of the right input's elements."""

PENDING: Final = "pending"
"""The counter of the least time of a left element that waits."""

KEPT: Final = "versions_kept"
"""The counter of the versions that the newest rewriting of all of them kept."""

MANY_ROWS: Final = 200_000
"""Up to so many versions, reading all of them costs less than looking up those of the epoch's keys."""

MAX_GARBAGE: Final = 10_000
"""Where versions are more than twice those that were kept, and more than so many, all are rewritten."""

_BOUNDS: Final = ("right", "answered", "corrected", "gone")


class AsofJoinRuntime(OperatorRuntime):
    """A temporal join of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: AsofJoinNode) -> None:
        super().__init__(node)
        self._declared = node
        self.frames = AsofFrames(node)
        known = schema_of(node) if node.inputs else None
        self.names = None if known is None else known.names
        self._given: dict[tuple[str, str], T.StructType] = {}

    @property
    def node(self) -> AsofJoinNode:
        """The operator's declaration."""
        return self._declared

    def types_of(self, port: str, given: PortInput) -> T.StructType:
        """Return the columns of an input's rows as they are kept; few rows of files of one shape have the same in each epoch."""
        if not given.files:
            return self.frames.rows_of(port, given.rows, 0).schema
        if (port, given.shape) not in self._given:
            self._given[port, given.shape] = self.frames.rows_of(port, given.rows, 0).schema
        return self._given[port, given.shape]

    def begin(self, context: OperatorContext) -> AsofJoinEpoch:
        """Return the operator at work on an epoch."""
        return AsofJoinEpoch(self, context)

    def next_timer(self, state: OperatorState) -> int | None:
        """Return the least time of a left element that waits."""
        pending = state.counters.get(PENDING, MAX_WATERMARK)
        return None if pending == MAX_WATERMARK else pending


class AsofJoinEpoch(OperatorEpoch):
    """A temporal join in one epoch."""

    runtime: AsofJoinRuntime

    def __init__(self, runtime: AsofJoinRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        counters = context.before.counters
        self._tables = StateTables(context, runtime.node.place)
        self._before = AsofBounds(**{name: counters[name] for name in _BOUNDS if name in counters})
        self._bounds = self._before
        self._right_watermark = self._before.right
        self._stored = {part: tuple(self._tables.files(part)) for part in (MAIN, VERSIONS)}
        self._new: dict[str, list[StateFile]] = {MAIN: [], VERSIONS: []}
        self._rows: dict[str, int] = {}
        self._columns: dict[str, T.StructType] = {}
        self._pending = counters.get(PENDING, MAX_WATERMARK)
        self._kept = counters.get(KEPT, 0)
        self._made: StagedRows | None = None
        self._found: Mapping[str, Any] = {}
        self._had_turn = False

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Write the elements of each input into state; one Spark job each. Those that match nothing and are not emitted are left out."""
        frames, node = self.runtime.frames, self.runtime.node
        for port, given in inputs.items():
            self._adopt(port, self.runtime.types_of(port, given))

            def keep(rows: DataFrame, numbers: Sequence[int], observation: Observation, port: str = port) -> DataFrame:
                made = frames.rows_of(port, rows, numbers[0]).observe(observation, F.count(F.lit(1)).alias("rows"))
                return made.where(f"NOT ({frames.has_null})") if port == RIGHT or node.how == "inner" else made

            part, numbers = MAIN if port == LEFT else VERSIONS, (self.context.epoch,)
            self._new[part], found = write_kept(self.context, self._tables, part, given, port=port, numbers=numbers, keep=keep)
            self._rows[port] = found["rows"]
        crash_point("state-staged")

    def _adopt(self, port: str, schema: T.StructType) -> None:
        """Set the columns of an input, beside those of the other."""
        frames, prefix = self.runtime.frames, prefix_of(port)
        made = nullable(schema)
        columns = [field for field in made if field.name.startswith(prefix)]
        keys = [field for field in made if field.name in frames.keys]
        other = prefix_of(RIGHT if port == LEFT else LEFT)
        others = [field for field in self._tables.schema or () if is_current(field) and field.name.startswith(other)]
        self._tables.adopt(T.StructType([*keys, *columns, *others]))
        self._columns[port] = T.StructType([*keys, *columns])

    def _columns_of(self, port: str) -> T.StructType:
        """Return the columns of an input as they are kept: keys and its own."""
        if port not in self._columns:
            given = self.context.port_types().get(port)
            if given is not None:
                self._adopt(port, self.runtime.frames.rows_of(port, no_rows(self.context.spark, given), 0).schema)
            else:
                stored = self._tables.schema or T.StructType()
                kept = [field for field in stored if field.name in self.runtime.frames.keys or field.name.startswith(prefix_of(port))]
                self._columns[port] = T.StructType(kept)
        return self._columns[port]

    def _read(self, part: str, files: Sequence[StateFile]) -> DataFrame | None:
        return self._tables.read(files, self._schema(part)) if files else None

    def _empty(self, part: str) -> DataFrame:
        return no_rows(self.context.spark, nullable(self._schema(part)))

    def _schema(self, part: str) -> T.StructType:
        engine = [T.StructField(START, T.LongType()), T.StructField(POSITION, POSITION_TYPE)]
        engine += [T.StructField(EPOCH, T.LongType())] if part == VERSIONS else []
        return T.StructType([*self._columns_of(LEFT if part == MAIN else RIGHT), *engine])

    def advance_ports(self, sources: Mapping[str, Sequence[SourceState]]) -> None:
        """Advance the right input's own watermark."""
        self._right_watermark = operator_watermark(self._before.right, sources[RIGHT])

    def emit(self, watermark: int, observation: Observation) -> Results | None:
        """Answer the left elements that are due, and correct answers; one Spark job, none where nothing is due."""
        del observation  # the pass has its own, and the results are given theirs
        self.watermark, self._had_turn = watermark, True
        lateness = self.runtime.node.allowed_lateness_ms
        right = max(self._right_watermark, MAX_WATERMARK if watermark == MAX_WATERMARK else MIN_WATERMARK)
        self._bounds = self._before.advanced(watermark=watermark, right=right, allowed_lateness_ms=lateness)
        due, late = self._due_files(), overlapping(self._new[VERSIONS], MIN_WATERMARK, self._before.gone)
        if due or late or overlapping(self._new[MAIN], MIN_WATERMARK, self._bounds.answered):
            self._pass(due)
        self._pending = self._next_pending()
        if self._made is None or not self._found["emitted"]:
            return None
        made = self._made

        def results(_: Sequence[int], observation: Observation) -> DataFrame:
            # Their number is known; but the results of a prepared pass have the observation.
            return self.runtime.frames.results(made.rows, self.runtime.names).observe(observation, F.count(F.lit(1)).alias("rows"))

        return Results(results, files=made.few_files, shape="answers")

    def _due_files(self) -> list[StateFile]:
        """Return the stored files that may have left elements that are due, or whose answers may change."""
        before, stored = self._before, self._stored[MAIN]
        found = overlapping(stored, before.answered + 1, self._bounds.answered) if self._bounds.answered > before.answered else []
        if self._corrects:
            found += overlapping(stored, before.corrected + 1, before.answered)
        return list(dict.fromkeys(found))

    @property
    def _corrects(self) -> bool:
        """Whether versions came that may correct earlier answers."""
        return self.runtime.node.corrects and bool(overlapping(self._new[VERSIONS], MIN_WATERMARK, self._before.answered))

    def _pass(self, due: Sequence[StateFile]) -> None:
        """Write the epoch's answers, and its late elements."""
        frames, before, after = self.runtime.frames, self._before, self._bounds
        own = [[name for name in visible_of(self._columns_of(port).names) if name not in frames.keys] for port in (LEFT, RIGHT)]
        self._require_names(*own)
        files = {"new": overlapping(self._new[MAIN], MIN_WATERMARK, after.answered), "old": due}
        files = {name: chosen for name, chosen in files.items() if chosen}
        stored = overlapping(self._stored[VERSIONS], MIN_WATERMARK, after.answered)
        new = overlapping(self._new[VERSIONS], MIN_WATERMARK, after.answered)
        # In the order in which they are read.
        scans = {"versions": stored, "new_versions": new, "lefts": files.get("old", []), "new_lefts": files.get("new", [])}
        few = self.context.native and sum(file.rows for scan in scans.values() for file in scan) <= FEW_ROWS
        late = any(overlapping(new, MIN_WATERMARK, before.gone) for new in self._new.values())
        behind = self._corrects or bool(overlapping(self._new[MAIN], MIN_WATERMARK, self.context.before.watermark))

        def answers(numbers: Sequence[int]) -> Frame:
            gone, answered_before, answered, unchanged, past, least = numbers
            observed = {name: Observation() for name in files}
            lefts = {name: self._asked(name, files[name], (answered, unchanged), each) for name, each in observed.items()}
            # A side without rows has its columns all the same.
            new_lefts = lefts.get("new") if lefts else self._empty(MAIN)
            new_versions = self._read(VERSIONS, new) if new or stored else self._empty(VERSIONS)
            versions = self._of_keys(stored, files, (answered, unchanged))
            given = AsofInput(new_lefts, lefts.get("old"), new_versions, versions, few, late)
            bounds = before if before.ended else replace(before, gone=gone, answered=answered_before)
            made, observation = frames.answers(given, bounds, *own), Observation()
            counted = frames.counted(made, observation, behind=past if behind else None, least=least if late else None)
            return counted, (observation, *observed.values())

        unchanged = before.corrected if self._corrects else before.answered
        numbers = (before.gone, before.answered, after.answered, unchanged, self.context.before.watermark, least_kept(before.gone, 0))
        read = {name: self._tables.few_files(chosen) for name, chosen in scans.items() if chosen} if few and not before.ended else {}
        name = " ".join(["answers", self.context.uid, *read, *(["late"] if late else []), *(["behind"] if behind else [])])
        self._made, (found, *pending) = staged_rows(self.context, self._tables, list(read.values()), numbers, answers, name=name)
        times = [each["pending"] for each in pending if each["pending"] is not None]
        self._found = {**found, "pending": min(times, default=MAX_WATERMARK)}

    def _asked(self, name: str, files: Sequence[StateFile], bounds: tuple[int, int], observation: Observation | None = None) -> DataFrame:
        """Return the left elements of files that are due, or whose answers may change.

        Args:
            name: ``new`` for elements of this epoch.
            files: one or more.
            bounds: the last time that is answered, and the last one whose answers do not change.
            observation: will have the least time of those that wait.
        """
        rows = self._tables.read(files, self._schema(MAIN))
        answered, unchanged = runtime_literals(*bounds)
        if observation is not None:
            rows = rows.observe(observation, F.expr(f"min(if({START} > {answered}, {START}, NULL))").alias("pending"))
        due = rows.where(f"{START} <= {answered}")
        return due if name == "new" else due.where(f"{START} > {unchanged}")

    def _of_keys(self, stored: Sequence[StateFile], files: Mapping[str, Sequence[StateFile]], bounds: tuple[int, int]) -> DataFrame | None:
        """Return the stored versions of the keys that are asked for, where all are many more; else all."""
        versions = self._read(VERSIONS, stored)
        new, asked = self._new[VERSIONS], sum(file.rows for chosen in files.values() for file in chosen)
        if versions is None or sum(file.rows for file in stored) <= MANY_ROWS or asked + sum(file.rows for file in new) > FEW_ROWS:
            return versions
        frames = self.runtime.frames
        wanted = [self._asked(name, chosen, bounds) for name, chosen in files.items()]
        came = self._read(VERSIONS, new)
        keys = union_of([rows.select(*map(quoted, frames.keys)) for rows in (*wanted, *([] if came is None else [came]))])
        return rows_of_keys(versions, F.broadcast(keys.distinct()), frames.keys)

    def _require_names(self, lefts: Sequence[str], rights: Sequence[str]) -> None:
        """Check columns that only the running sources know."""
        node = self.runtime.node
        names = [name.removeprefix(prefix_of(LEFT)) for name in lefts]
        others = added_names(node.on, [name.removeprefix(prefix_of(RIGHT)) for name in rights])
        check_names(names, others, node, "join_asof")

    def _next_pending(self) -> int:
        """Return the least time of a left element that waits after this epoch."""
        answered = self._bounds.answered
        if answered == self._before.answered:
            # Stored elements that wait are the same; those of files that were read for corrections were seen again.
            files = self._new[MAIN]
            known = [self._pending]
        else:
            files = self._tables.files(MAIN)
            known = []
        times = [file.min_time for file in files if file.min_time is not None and file.min_time > answered]
        return min([*known, *times, self._found.get("pending", MAX_WATERMARK)], default=MAX_WATERMARK)

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of accepted and of late elements, by input."""
        if not self._rows or not self._had_turn:
            return None
        late = {port: {counter: self._found.get(counter, 0)} for port, counter in ((LEFT, LATE_LEFT), (RIGHT, LATE_RIGHT))}
        return {port: InputCounts(rows - sum(late[port].values()), late[port]) for port, rows in self._rows.items()}

    @property
    def side_counts(self) -> Mapping[str, int] | None:
        """The numbers of late elements."""
        return {counter: self._found.get(counter, 0) for counter in (LATE_LEFT, LATE_RIGHT)} if self._had_turn else None

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the late elements of an input."""
        del inputs
        if self._made is None:
            raise ValueError(f"no rows of {counter}")
        return self.runtime.frames.late_rows(self._made.rows, LATE_LEFT_ROW if counter == LATE_LEFT else LATE_RIGHT_ROW)

    def emitted(self, observation: Observed) -> int:
        """Return the number of results."""
        del observation
        return int(self._found.get("emitted", 0))

    def compact(self) -> Callable[[], None] | None:
        """Drop files of left elements that are no longer needed, and all versions after the end of input; return the merging of others."""
        work: list[Callable[[], None]] = []
        plan = plan_compaction(self._tables.files(MAIN), expired_before=self._bounds.corrected + 1)
        self._tables.drop(plan.drop)
        if plan.merge:
            work.append(partial(self._merge, plan.merge, MAIN, self._live_lefts))
        versions = self._tables.files(VERSIONS)
        if self._bounds.ended:
            self._tables.drop(versions)
        elif sum(file.rows for file in versions) > 2 * self._kept + MAX_GARBAGE:
            work.append(self._rewrite_versions)
        elif groups := plan_compaction(versions).merge:
            work.append(partial(self._merge, groups, VERSIONS, self._live_versions))
        return partial(run_in_order, work) if work else None

    def _live_lefts(self, rows: DataFrame) -> DataFrame:
        return rows.where(f"{START} > {runtime_literals(self._bounds.corrected)[0]}")

    def _live_versions(self, rows: DataFrame) -> DataFrame:
        return self.runtime.frames.pruned(rows, self._bounds.gone)

    def _rewrite_versions(self) -> None:
        self._merge([self._tables.files(VERSIONS)], VERSIONS, self._live_versions)
        self._kept = sum(file.rows for file in self._tables.files(VERSIONS))

    def _merge(self, groups: Sequence[Sequence[StateFile]], part: str, live: Callable[[DataFrame], DataFrame]) -> None:
        for group in groups:
            rows = self._read(part, group)
            if rows is None:
                continue
            kept = live(rows)
            if sum(file.bytes for file in group) < LARGEST_FILE:
                kept = kept.coalesce(1)
            self._tables.write(kept, part, newest=max(file.epoch for file in group))
            self._tables.drop(group)
            crash_point("compaction-staged")

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``left``, the elements that wait, or whose answers are still corrected, and ``versions``, those that can be met."""
        answered = f"{START} <= {runtime_literals(self._before.answered)[0]} AS answered"
        return {
            "left": self._stored_table(MAIN, LEFT, self._live_lefts, [answered]),
            "versions": self._stored_table(VERSIONS, RIGHT, self._live_versions, []),
        }

    def _stored_table(self, part: str, port: str, live: Callable[[DataFrame], DataFrame], more: list[str]) -> DataFrame:
        prefix, rows = prefix_of(port), self._read(part, self._tables.files(part))
        stored = [name for name in self._columns_of(port).names if name.startswith(prefix)]
        taken = {name.removeprefix(prefix).lower() for name in stored}
        added = [f"timestamp_millis({START}) AS event_time", *more]
        names = [f"{quoted(name)} AS {quoted(name.removeprefix(prefix))}" for name in stored]
        names += [text for text in added if text.rpartition(" ")[2] not in taken]
        if rows is None:
            empty = T.StructType([*self._columns_of(port), T.StructField(START, T.LongType())])
            return no_rows(self.context.spark, nullable(empty)).selectExpr(*names)
        return live(rows).selectExpr(*names)

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the times of late elements, and of answers that came or were corrected after theirs."""
        late, corrected = (listed_times(self._found.get(name)) for name in (LATE_TIMES, CORRECTED))
        return replace(common, late_windows=late, refired_windows=corrected)

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        if self._made is not None:
            self._made.delete()
        bounds = {name: int(getattr(self._bounds, name)) for name in _BOUNDS}
        return self._tables.snapshot(self.watermark, {**bounds, PENDING: self._pending, KEPT: self._kept})
