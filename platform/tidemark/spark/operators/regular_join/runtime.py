"""The regular join of two changelogs: an epoch's changes meet the stored rows of the other input that have their keys.

Three Spark jobs per epoch: the changes are appended to state; the versions of the rows that they concern are staged; the result's changes
are computed from these alone, as they are written. State has the rows of each input, sorted by the hash of what is compared. Of few rows
the three are prepared passes, and the driver writes state and versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.crashpoints import crash_point
from tidemark.errors import UserCodeError
from tidemark.graph.checks.changelogs import expires
from tidemark.graph.operators.regular_join.columns import compared_columns, kept_columns
from tidemark.graph.operators.regular_join.node import RegularJoinNode
from tidemark.spark.columns.expressions import START, TIME, quoted
from tidemark.spark.columns.few_rows import in_one_task
from tidemark.spark.columns.schemas import no_rows
from tidemark.spark.columns.state_files import write_folder
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
from tidemark.spark.operators.base.staged_rows import StagedRows, staged_rows
from tidemark.spark.operators.base.tables import STATE_COMPRESSION, StateTables
from tidemark.spark.operators.changelog.contents import ENGINE_FIELDS, GONE, HASH, MANY_ROWS, PAGES, Contents
from tidemark.spark.operators.changelog.lifetimes import EXPIRED, Lifetime, drop_expired, renewed_fields, with_expired
from tidemark.spark.operators.keyed.key_table import union_of
from tidemark.spark.operators.regular_join.concerned import Concerned
from tidemark.spark.operators.regular_join.frames import EXAMPLE, EXPIRED_ROWS, GROWN, MOST_COMPARED, NULL_KEYS, TWICE, JoinFrames
from tidemark.spark.operators.regular_join.key_errors import key_came_twice, null_keys_on_both_sides
from tidemark.spark.operators.regular_join.layout import INPUT, JoinLayout, SideLayout, known_types, types_of_rows
from tidemark.spark.prepared.prepared_pass import Frame
from tidemark.state.log.progress import OperatorProgress
from tidemark.state.log.records import OperatorState, StateFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RegularJoinRuntime(OperatorRuntime):
    """A regular join of a run.

    Args:
        node: its declaration.
    """

    def __init__(self, node: RegularJoinNode) -> None:
        super().__init__(node)
        self._declared = node
        self.types = {port: known_types(node, port) for port in node.PORTS}
        self._given: dict[tuple[str, str], T.StructType] = {}
        # Keys of an input whose own state expires come again without a delete before.
        self.come_again = {port for port, given in zip(node.PORTS, node.inputs, strict=False) if expires(given)}

    @property
    def node(self) -> RegularJoinNode:
        """The operator's declaration."""
        return self._declared

    @property
    def lacks_types(self) -> bool:
        """Whether the graph does not say the types of an input."""
        return any(found is None for found in self.types.values())

    def set_types(self, inputs: Mapping[str, DataFrame]) -> None:
        """Set the columns of the inputs."""
        self.types = {port: types_of_rows(self.node, port, rows) for port, rows in inputs.items()}

    def types_of(self, port: str, given: PortInput) -> T.StructType:
        """Return the columns of an input's rows; few rows of files of one shape have the same in each epoch."""
        if not given.files:
            return types_of_rows(self.node, port, given.rows)
        if (port, given.shape) not in self._given:
            self._given[port, given.shape] = types_of_rows(self.node, port, given.rows)
        return self._given[port, given.shape]

    def begin(self, context: OperatorContext) -> RegularJoinEpoch:
        """Return the operator at work on an epoch."""
        return RegularJoinEpoch(self, context)

    def next_timer(self, state: OperatorState) -> None:
        """Return None: results wait for nothing."""
        del state


class RegularJoinEpoch(OperatorEpoch):
    """A regular join in one epoch."""

    runtime: RegularJoinRuntime

    def __init__(self, runtime: RegularJoinRuntime, context: OperatorContext) -> None:
        super().__init__(runtime, context)
        self._tables = StateTables(context, runtime.node.place)
        self._before = {port: self._tables.files(port) for port in runtime.node.PORTS}
        self._counters = dict(context.before.counters)
        self._added: dict[str, list[StateFile]] = {}
        self._layout: JoinLayout | None = None
        self._versions: StagedRows | None = None
        self._first: StagedRows | None = None
        self._lifetimes = {port: Lifetime(side.ttl, context, port) for port, side in runtime.node.sides.items()}
        self._waiting: dict[str, StagedRows] = {}
        self._expired = {port: 0 for port, side in runtime.node.sides.items() if side.ttl is not None}

    def process_batch(self, inputs: Mapping[str, PortInput]) -> None:
        """Append the epoch's changes to state, and stage the versions of the rows that they concern.

        With a lifetime of event time the changes are staged, and the rest is done by ``emit``, when the watermark is known.
        """
        layout = self._layout = self._layout_with(inputs)
        self._tables.require_types(layout.state)
        if any(lifetime.waits for lifetime in self._lifetimes.values()):
            self._waiting = {port: StagedRows(self.context, self._tables, given.rows) for port, given in inputs.items()}
        else:
            if not self._append_few(layout, inputs):
                self._append(layout, {port: given.rows for port, given in inputs.items()})
            self._stage(layout)
        crash_point("state-staged")

    def _layout_with(self, inputs: Mapping[str, PortInput]) -> JoinLayout:
        """Return the columns, by the rows of inputs that have some, else as stored, or as the graph or the session knows them."""
        node, types = self.runtime.node, dict[str, T.StructType]()
        for port in node.PORTS:
            given = inputs.get(port)
            known = self.runtime.types_of(port, given) if given else self._stored_types(port) or self.runtime.types[port]
            if known is None:
                raise UserCodeError(
                    f"the types of the {port} input of the join are not known: it has no rows yet, and the job's code fails without rows",
                    fix="give its columns types before the join: .select(fare='CAST(fare AS DOUBLE)')",
                    job=self.context.job,
                    uid=self.context.uid,
                    place=node.place,
                )
            types[port] = known
        return JoinLayout(node, types)

    def _stored_types(self, port: str) -> T.StructType | None:
        node, stored = self.runtime.node, self._tables.schema
        names = [*kept_columns(node, port).values(), *(name for name, _ in compared_columns(node, port))]
        if stored is None or not set(names) <= set(stored.names):
            return None
        return T.StructType([stored[name] for name in dict.fromkeys(names)])

    def _append(self, layout: JoinLayout, inputs: Mapping[str, DataFrame]) -> None:
        """Append changes to state; one Spark job."""
        context = self.context
        made = {port: layout.sides[port].delta(rows, context.epoch) for port, rows in inputs.items()}
        parts = [self._lifetimes[port].renewed(rows, self.watermark) for port, rows in made.items()]
        rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1], allowMissingColumns=True)
        ordered = rows.withColumn(START, F.col(HASH)).sortWithinPartitions(INPUT, HASH)
        folder = self._tables.new_folder()
        observation = Observation()
        grown = {port: F.expr(f"sum(if({INPUT} = '{port}', if({GONE}, -1, 1), 0))").alias(port) for port in inputs}
        ordered = ordered.observe(observation, *grown.values())
        written = write_folder(
            ordered, context.store, folder, compression=STATE_COMPRESSION, time_column=START, options=PAGES, apart=[INPUT]
        )
        for port in inputs:
            mine = [file for file in written if f"/{INPUT}={port}/" in file.path]
            self._contents(layout.sides[port]).note_hashes()
            self._added[port] = self._tables.add(mine, port)
            if port not in self._expired:
                self._count(f"rows_{port}", observation.get[port] or 0)

    def _append_few(self, layout: JoinLayout, inputs: Mapping[str, PortInput]) -> bool:
        """Append few changes to state by a prepared pass; return whether it could be."""
        if self._expired or not all(given.files for given in inputs.values()):
            return False

        def changes(numbers: Sequence[int]) -> Frame:
            *others, epoch = numbers
            made, observations = [], list[Observation]()
            for port, given in inputs.items():
                own, others = others[: len(given.numbers)], others[len(given.numbers) :]
                rows, observed = given.build(own)
                observations += observed
                made.append(layout.sides[port].delta(in_one_task(rows), epoch))
            return union_of(made), observations

        numbers = (*(number for given in inputs.values() for number in given.numbers), self.context.epoch)
        shape = (f"{port} {given.shape}".strip() for port, given in inputs.items())
        prepared = self.context.prepared[" ".join(["changes", self.context.uid, *shape])]
        found = prepared.run([files for given in inputs.values() for files in given.scans], numbers, changes)
        if found is None:
            return False
        observed = iter(found.observed)
        for port, given in inputs.items():
            if given.set_counts is not None:
                given.set_counts(observed)
            contents = self._contents(layout.sides[port])
            names = [*contents.columns.names, *(field.name for field in ENGINE_FIELDS)]
            mine = found.table.filter(pc.equal(found.table[INPUT], port)).select(names)
            self._added[port] = contents.add_few(mine)
            self._count(f"rows_{port}", mine.num_rows - 2 * (pc.sum(mine[GONE]).as_py() or 0))
        return True

    def _count(self, name: str, rows: int) -> None:
        self._counters[name] = self._counters.get(name, 0) + rows

    def _contents(self, side: SideLayout) -> Contents:
        return Contents(self._tables, side.port, side.stored, side.identity, side.compared, side.hash)

    def _stage(self, layout: JoinLayout) -> None:
        """Stage the versions of the rows that the changes concern, if there are any, and check their keys; one Spark job, at times two."""
        self._tables.adopt(layout.state)
        if not any(self._added.values()):
            return
        concerned = {port: self._concerned(layout, side) for port, side in layout.sides.items()}
        if self._asks_flipped():
            concerned["left"] = dataclasses.replace(concerned["left"], flipped=self._flipped(layout, concerned.pop("right")))
        there = [port for port, each in concerned.items() if each.scans]

        def versions(numbers: Sequence[int]) -> Frame:
            frames, observed = JoinFrames(layout, self.context.uid, *numbers), [Observation() for _ in there]
            made = [] if self._first is None else [self._first.rows]
            for port, observation in zip(there, observed, strict=True):
                rows = self._marked(port, concerned[port].parts())
                made.append(frames.versions(layout.sides[port], rows, observation, again=port in self.runtime.come_again))
            return frames.both(made), observed

        scans = [self._tables.few_files(files) for port in there for files in concerned[port].scans]
        few = all(scans) and not self._expired and self._first is None and all(concerned[port].few for port in there)
        shape = (f"{port} {len(concerned[port].changes) > 0} {len(concerned[port].asked)}" for port in there)
        name, numbers = " ".join(["versions", self.context.uid, *shape]), (self.context.epoch,)
        self._versions, observed = staged_rows(self.context, self._tables, scans if few else [], numbers, versions, name=name)
        self._check_keys(dict(zip(there, observed, strict=True)))

    def _asks_flipped(self) -> bool:
        """Whether it saves reading stored left rows to find first which keys the right input loses or gets; one Spark job."""
        changed, stored = bool(self._added.get("right")), sum(file.rows for file in self._before["left"])
        return changed and self.runtime.node.how in {"semi", "anti"} and stored > MANY_ROWS

    def _flipped(self, layout: JoinLayout, concerned: Concerned) -> DataFrame:
        """Stage the versions of the right input; return the hashes of the keys that it loses or gets.

        Only of these keys the left rows enter or leave a semi or anti join.
        """
        frames, observation = JoinFrames(layout, self.context.uid, self.context.epoch), Observation()
        rows = self._marked("right", concerned.parts())
        versions = frames.versions(layout.right, rows, observation, again="right" in self.runtime.come_again)
        self._first = StagedRows(self.context, self._tables, versions)
        self._check_keys({"right": observation.get})
        return frames.flipped(self._first.rows)

    def _concerned(self, layout: JoinLayout, side: SideLayout) -> Concerned:
        """Return an input's changes, and its stored rows whose keys have changes that concern them."""
        other = "left" if side.port == "right" else "right"
        sources = {other: self._added.get(other, [])}
        if self._counts_rows_of(side.port) or side.port in {*self._expired, *self.runtime.come_again}:
            sources[side.port] = self._added.get(side.port, [])
        asked = [(self._contents(layout.sides[port]), files) for port, files in sources.items() if files]
        before = self._before[side.port]
        return Concerned(self._contents(side), self._added.get(side.port, []), before, asked if before else [], self.context.native)

    def _counts_rows_of(self, port: str) -> bool:
        """Whether results depend on how many rows of an input each key has."""
        how = self.runtime.node.how
        return how == "full" or how in ({"right"} if port == "left" else {"left", "semi", "anti"})

    def _check_keys(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        node = self.runtime.node
        for port, values in found.items():
            self._count(f"null_keys_{port}", values[NULL_KEYS] or 0)
            if port in self._expired:
                self._count(f"rows_{port}", values[GROWN] or 0)
                self._expired[port] += values[EXPIRED_ROWS] or 0
            if values[TWICE]:
                raise key_came_twice(node, port, values[EXAMPLE], job=self.context.job, uid=self.context.uid)
        if node.how == "full" and all(self._counters.get(f"null_keys_{port}", 0) > 0 for port in node.PORTS):
            raise null_keys_on_both_sides(node, job=self.context.job, uid=self.context.uid)

    @property
    def input_counts(self) -> Mapping[str, InputCounts] | None:
        """The numbers of changes, all of which are accepted."""
        if self._waiting:
            return {port: InputCounts(staged.count, {}) for port, staged in self._waiting.items()}
        if not self._added:
            return None
        return {port: InputCounts(sum(file.rows for file in files), {}) for port, files in self._added.items()}

    def side_rows(self, counter: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Never called: there are no side outputs."""
        raise ValueError(f"{counter} of {list(inputs)}")

    def emit(self, watermark: int, observation: Observation) -> Results | None:
        """Return the changes of the result; before, drop what has expired."""
        del observation  # the results are given theirs
        self.watermark = watermark
        if self._waiting and self._layout is not None:
            self._append(self._layout, {port: staged.rows for port, staged in self._waiting.items()})
            self._stage(self._layout)
        self._sweep()
        if self._layout is None or self._versions is None or not self._versions.count:
            return None
        frames, versions = JoinFrames(self._layout, self.context.uid, self.context.epoch), self._versions
        apart = [port for port, files in self._added.items() if files] if versions.count > MOST_COMPARED else []

        def results(_: Sequence[int], observation: Observation) -> DataFrame:
            return frames.results(versions.rows, apart=apart, few=versions.few).observe(observation, F.count(F.lit(1)).alias("emitted"))

        files = versions.few_files
        return Results(results, files=files, shape=" ".join(["results", *apart]), several=(files,) * frames.scans(apart))

    def _marked(self, port: str, parts: Mapping[str, DataFrame]) -> DataFrame:
        """Return changes and stored rows together, with ``EXPIRED``, where they have a lifetime."""
        lifetime = self._lifetimes[port]
        if port in self._expired:
            expired = {"changes": "false", "stored": lifetime.expired(lifetime.now_before)}
            parts = {name: with_expired(rows, expired[name], None) for name, rows in parts.items()}
        first, *others = parts.values()
        return first.union(others[0]) if others else first

    def _sweep(self) -> None:
        """Drop the rows that have expired; a Spark job for an input, now and then."""
        for port in self._expired:
            lifetime, files = self._lifetimes[port], self._tables.files(port)
            now = lifetime.now(self.watermark)
            if files and lifetime.sweeps(now):
                layout = self._layout or self._layout_with({})
                dropped = drop_expired(self._contents(layout.sides[port]), lifetime.expired(now), None, self.context.epoch)
                self._count(f"rows_{port}", -dropped)
                self._expired[port] += dropped

    def emitted(self, observation: Observed) -> int:
        """Return the number of changes of the result."""
        return int(observation.get["emitted"])

    def compact(self) -> Callable[[], None] | None:
        """Return the work that merges files and drops outdated rows, None where there is nothing to merge."""
        if not self._added or self._layout is None:
            return None
        work: list[Callable[[], None]] = []
        for side in self._layout.sides.values():
            merge = self._contents(side).compact(max(1, self._living(side.port)))
            work += [] if merge is None else [merge]
        return partial(run_in_order, work) if work else None

    def _living(self, port: str) -> int:
        return self._counters.get(f"rows_{port}", 0)

    def stored_tables(self) -> Mapping[str, DataFrame]:
        """Return ``left`` and ``right``: the kept rows of both inputs, and the ``event_time`` of each."""
        node = self.runtime.node
        found: dict[str, DataFrame] = {}
        for port, side in node.sides.items():
            names, types = kept_columns(node, port), self._stored_types(port)
            time = () if "event_time" in {name.lower() for name in side.columns} else (f"timestamp_millis({TIME}) AS event_time",)
            if types is None:
                fields = [T.StructField(name, T.StringType()) for name in names]
                more = [T.StructField("event_time", T.TimestampType())] if time else []
                found[port] = no_rows(self.context.spark, T.StructType([*fields, *more]))
                continue
            compared = tuple(stored for stored, _ in compared_columns(node, port))
            columns = T.StructType([*types, T.StructField(TIME, T.LongType()), *renewed_fields(side.ttl)])
            contents = Contents(self._tables, port, columns, tuple(names[key] for key in side.keys), compared)
            lifetime = self._lifetimes[port]
            live = with_expired(contents.current(), lifetime.expired(lifetime.now_before), None).where(f"NOT {EXPIRED}")
            found[port] = live.selectExpr(*(f"{quoted(stored)} AS {quoted(name)}" for name, stored in names.items()), *time)
        return found

    def progress(self, common: OperatorProgress) -> OperatorProgress:
        """Return the operator's progress, with the numbers of rows that expired, by input."""
        if not self._expired:
            return common
        expired = sum(self._expired.values())
        return dataclasses.replace(common, keys_expired=expired, state_expired=expired, expired=dict(self._expired))

    def snapshot(self) -> OperatorState:
        """Return the operator's state after this epoch."""
        for staged in self._waiting.values():
            staged.delete()
        self._waiting = {}
        for lifetime in self._lifetimes.values():
            self._counters |= lifetime.counters(self.watermark)
        for staged in filter(None, (self._first, self._versions)):
            staged.delete()
        self._first = self._versions = None
        return self._tables.snapshot(self.watermark, self._counters)
