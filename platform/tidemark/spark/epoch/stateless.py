"""The rows of every stateless node in one epoch, as DataFrames built at first use.

Nodes that only select, compute and filter share one pass: a row that is filtered out gets a status, so that one count at the end of
the pass covers every filter, and expressions after a filter are not evaluated for the rows that it rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tidemark.errors import UserCodeError
from tidemark.graph.model.nodes import (
    ChangelogNode,
    ElementsNode,
    ExplodeNode,
    Expression,
    FilterNode,
    FunctionNode,
    Node,
    OutputTag,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from tidemark.graph.operators.registry import kind_of
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.expressions import (
    CORRUPT,
    HIDDEN,
    META,
    POSITION,
    ROW_STATUS,
    SPLIT,
    column,
    hidden_of,
    is_name,
    nth_position,
    quoted,
    visible_of,
)
from tidemark.spark.columns.row_counts import MALFORMED, PASSING, RowCounter
from tidemark.spark.columns.unions import union_rows
from tidemark.spark.epoch.changelog_rows import converted
from tidemark.spark.epoch.determinism import is_deterministic, require_repeatable
from tidemark.spark.epoch.functions import apply_function
from tidemark.spark.epoch.topology import FUSABLE, Topology, looked_up, may_be_nondeterministic
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.sources.intake import FIRST_FILTER, Intake
from tidemark.spark.sources.malformed import malformed_rows

if TYPE_CHECKING:
    from pyspark.sql import Column

BRANCH = "__tm_branch"
NTH = "__tm_nth"


class StatelessPlan:
    """Rows of the nodes of one epoch.

    Args:
        topology: of the job.
        intakes: the rows of each source with their status, by its name.
        known_splits: names of the splits that rows may be of, by source: those of its position, else those seen in earlier epochs.
        side_rows: returns which rows of its ports an operator counts under a name.
        nondeterministic: whether a second reading of a node could return other rows, as far as checked in this run; filled in.
        run: runs a pass over rows, so that their counts are known.
    """

    def __init__(
        self,
        topology: Topology,
        intakes: Mapping[str, Intake],
        known_splits: Mapping[str, tuple[str, ...]],
        side_rows: Callable[[StatefulNode, str, Mapping[str, DataFrame]], DataFrame],
        nondeterministic: dict[int, bool],
        *,
        run: Callable[[DataFrame], None],
    ) -> None:
        self._topology = topology
        self._intakes = intakes
        self._known_splits = known_splits
        self._side_rows = side_rows
        self._nondeterministic = nondeterministic
        self._run = run
        self._rows_and_filtered: dict[int, DataFrame] = {}
        self._rows: dict[int, DataFrame] = {}
        self._persisted: list[DataFrame] = []
        self._results: dict[int, Callable[[], DataFrame]] = {}
        self._made_results: dict[int, DataFrame] = {}
        self._side_outputs: dict[int, Collection[str]] = {}
        filters = [node for node in topology.nodes if isinstance(node, FilterNode)]
        self._statuses = {id(node): FIRST_FILTER + number for number, node in enumerate(filters)}
        self.row_counters: dict[int, RowCounter] = {}
        self.ends: dict[str, Node] = {}

    def status_of(self, node: FilterNode) -> int:
        """Return the status of rows that a filter rejected."""
        return self._statuses[id(node)]

    def set_results(self, operator: StatefulNode, results: Callable[[], DataFrame]) -> None:
        """Set how an operator's results of this epoch are made; cached when more than one consumer reads them."""
        self._results[id(operator)] = results

    def set_side_outputs(self, operator: StatefulNode, counters: Collection[str]) -> None:
        """Set which side outputs an operator emitted to, which makes their rows itself."""
        self._side_outputs[id(operator)] = counters

    def copy(self, *intakes: Intake) -> StatelessPlan:
        """Return the plan as it begins, without results, and with these intakes only."""
        made = {intake.node.name: intake for intake in intakes}
        return StatelessPlan(self._topology, made, self._known_splits, self._side_rows, self._nondeterministic, run=self._run)

    def set_counts(self, node: Node, observed: Mapping[str, object]) -> None:
        """Set the counts of a node's rows, which were computed elsewhere."""
        self._new_row_counter(node).set_counts(observed)

    def available(self, node: Node) -> bool:
        """Whether a node has rows in this epoch: its source was read, or the operator it follows emitted."""
        if isinstance(node, SourceNode):
            return node.name in self._intakes
        if isinstance(node, StatefulNode):
            return id(node) in self._results
        if isinstance(node, SideOutputNode) and isinstance(node.emitter, StatefulNode):
            if not looked_up(node.emitter):
                return node.emitter.counter_of(node.tag) in self._side_outputs.get(id(node.emitter), ())
            ports = kind_of(node.emitter).side_ports(node.emitter, node.emitter.counter_of(node.tag))
            return any(self.available(port.node) for port in node.emitter.ports if port.name in ports)
        return any(self.available(parent) for parent in node.inputs)

    def rows_and_filtered(self, node: Node) -> DataFrame:
        """Return the node's rows with their status, including filtered ones."""
        found = self._rows_and_filtered.get(id(node))
        if found is None:
            found = self._make_rows_and_filtered(node)
            if (self._topology.shared(node) and not isinstance(node, SplitNode)) or self._must_be_cached(node):
                found = self._cache(found)
            self._rows_and_filtered[id(node)] = found
        return found

    def rows(self, node: Node) -> DataFrame:
        """Return the node's passing rows, counted."""
        found = self._rows.get(id(node))
        if found is None:
            found = self._counted_rows(node)
            self._rows[id(node)] = found
        return found

    def release(self) -> None:
        """Unpersist the frames cached for this epoch."""
        for frame in self._persisted:
            frame.unpersist()
        self._persisted.clear()

    def _cache(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._persisted.append(kept)
        return kept

    def _must_be_cached(self, node: Node) -> bool:
        """Whether late or rejected rows will be looked up in the node's rows, and a second reading could change these."""
        found = self._nondeterministic.get(id(node))
        if found is None:
            sides = [side for side in self._topology.nodes if isinstance(side, SideOutputNode)]
            is_looked_up = not isinstance(node, SourceNode | StatefulNode) and any(
                found is node for side in sides for found in looked_up(side.emitter)
            )
            found = is_looked_up and (may_be_nondeterministic(node) or not is_deterministic(self._make_rows_and_filtered(node)))
            # Of a union only the streams that have rows in this epoch were checked.
            if all(self.available(source) for source in self._topology.upstream_sources(node)):
                self._nondeterministic[id(node)] = found
        return found

    def _counted_rows(self, node: Node) -> DataFrame:
        if isinstance(node, UnionNode):
            together = self._boundary(node)
            return self._cache(together) if self._topology.shared(node) or self._must_be_cached(node) else together
        if isinstance(node, SideOutputNode | StatefulNode):
            return self._boundary(node)
        marked = self.rows_and_filtered(node)
        columns = marked.columns
        return _of_status(PASSING, self._new_row_counter(node).attached(marked, columns), columns)

    def _new_row_counter(self, node: Node) -> RowCounter:
        start, filters = self._topology.fused_path(node)
        source = start if isinstance(start, SourceNode) else None
        splits = self.splits_of(source) if source else ()
        statuses = [self.status_of(found) for found in filters]
        counter = RowCounter([MALFORMED, *statuses] if source else statuses, source, splits)
        self.row_counters[id(node)] = counter
        if source:
            self.ends[source.name] = node
        return counter

    def counter_of_group(self, node: Node) -> RowCounter | None:
        """Return the counter of the node's rows with their status, for its only consumer to group and count.

        None where they must be counted row by row.
        """
        if not isinstance(node, (SourceNode, *FUSABLE)) or self._topology.shared(node) or id(node) in self._rows:
            return None
        start, _ = self._topology.fused_path(node)
        has_splits = (
            self._intakes[start.name].has_splits if isinstance(start, SourceNode) else SPLIT in self.rows_and_filtered(node).columns
        )
        if has_splits:
            return None
        counter = self._new_row_counter(node)
        return None if counter.by_group else counter

    def splits_of(self, source: SourceNode) -> tuple[str, ...]:
        """Return the known splits of a source."""
        return self._known_splits.get(source.name, ())

    def counted_nodes(self, node: Node) -> list[Node]:
        """Return the nodes whose rows are counted when those of a node are computed that is ``scanned``."""
        path = self._topology.path_to_source(node, changelogs=True) or ()
        return [node, *(each.input for each in path if isinstance(each, ChangelogNode))]

    def scanned(self, node: Node) -> Intake | None:
        """Return the intake of files whose rows are a node's, after filters, expressions and ``as_changelog`` alone; else None."""
        path = self._topology.path_to_source(node, changelogs=True)
        intake = self._intakes[path[-1].name] if path is not None and isinstance(path[-1], SourceNode) else None
        return None if path is None or intake is None or any(map(self._must_be_cached, path)) or not intake.batch.scanned else intake

    def passing_rows(self, node: Node) -> DataFrame:
        """Return the node's passing rows without a count."""
        marked = self.rows_and_filtered(node)
        return _of_status(PASSING, FrameSteps(marked), marked.columns)

    def reads_input_alone(self, node: Node) -> bool:
        """Whether the rows of a node are computed from a source's files at each use, with only filters and expressions."""
        path = self._topology.path_to_source(node)
        return path is not None and not any(map(self._must_be_cached, path))

    def _make_rows_and_filtered(self, node: Node) -> DataFrame:
        if isinstance(node, SourceNode):
            return self._intakes[node.name].rows
        if not isinstance(node, FUSABLE):
            return self._boundary(node).withColumn(ROW_STATUS, F.lit(PASSING))
        return self._step(node, self._before(node.input))

    def _before(self, parent: Node) -> DataFrame:
        """Return the rows that a pass continues with; where several consumers share them, a new pass begins."""
        if self._topology.shared(parent):
            return self.rows(parent).withColumn(ROW_STATUS, F.lit(PASSING))
        return self.rows_and_filtered(parent)

    def _step(self, node: Node, before: DataFrame) -> DataFrame:
        require_repeatable(node, node.input, before)
        passing = F.col(ROW_STATUS) == PASSING
        if isinstance(node, FilterNode):
            # Not after AND: Spark evaluates common subexpressions first, also for filtered rows.
            fails = F.when(passing, ~F.coalesce(column(node.condition), F.lit(False)))
            status = F.when(fails, F.lit(self.status_of(node))).otherwise(F.col(ROW_STATUS))
            return before.withColumn(ROW_STATUS, status)
        hidden = [name for name in (*HIDDEN, CORRUPT, ROW_STATUS) if name in before.columns]
        if isinstance(node, SelectNode):
            return before.select(*(_guarded(e, passing).alias(name) for name, e in node.columns), *hidden)
        if isinstance(node, WithColumnsNode):
            return before.withColumns({name: _guarded(e, passing) for name, e in node.columns})
        raise TypeError(type(node).__name__)

    def _boundary(self, node: Node) -> DataFrame:
        if isinstance(node, StatefulNode):
            return self._results_of(node)
        if isinstance(node, SideOutputNode):
            return self._side_output(node)
        if isinstance(node, UnionNode):
            return self._union(node)
        if isinstance(node, ChangelogNode | ElementsNode):
            return converted(node, self.rows(node.input))
        before = self._counted(node.input) if isinstance(node, TransformNode) else self.rows(node.input)
        hidden = hidden_of(before.columns)
        visible = visible_of(before.columns)
        if isinstance(node, ExplodeNode):
            kept = [F.col(quoted(name)) for name in visible if name.lower() != node.as_.lower()]
            items = column(node.expression)
            if before.select(items.alias("i")).schema["i"].dataType.typeName() == "map":
                items = F.map_entries(items)
            if POSITION not in hidden:
                made = (F.explode_outer if node.outer else F.explode)(items).alias(node.as_)
                return before.select(*kept, made, *hidden)
            numbered = (F.posexplode_outer if node.outer else F.posexplode)(items).alias(NTH, node.as_)
            places = (F.expr(nth_position(f"coalesce({NTH}, 0)")).alias(name) if name == POSITION else F.col(name) for name in hidden)
            return before.select(*kept, numbered, *hidden).select(*kept, F.col(quoted(node.as_)), *places)
        if isinstance(node, FunctionNode):
            return apply_function(node, before, self._topology.name(node))
        if isinstance(node, TransformNode):
            return self._transform(node, before, visible, hidden)
        raise TypeError(type(node).__name__)

    def _results_of(self, operator: StatefulNode) -> DataFrame:
        found = self._made_results.get(id(operator))
        if found is None:
            made = self._results[id(operator)]()
            found = self._made_results[id(operator)] = self._cache(made) if self._topology.shared(operator) else made
        return found

    def _counted(self, node: Node) -> DataFrame:
        """Return a node's rows, cached, after a separate pass: a transform may stop before it has read all of them."""
        rows = self._cache(self.rows(node))
        self._run(rows)
        return rows

    def _union(self, node: UnionNode) -> DataFrame:
        ready = [self.rows(parent) for parent in node.inputs if self.available(parent)]
        return union_rows(ready, uid=self._topology.name(node), place=node.place)

    def _transform(self, node: TransformNode, before: DataFrame, visible: list[str], hidden: list[str]) -> DataFrame:
        packed = before.select(*map(quoted, visible), F.struct(*hidden).alias(META))
        try:
            after = node.function(packed)
        except Exception as error:
            raise UserCodeError(
                f"transform failed: {type(error).__name__}: {first_line(error)}",
                fix="correct the function; the epoch is read again",
                uid=self._topology.name(node),
                place=node.place,
            ) from error
        if not isinstance(after, DataFrame):
            raise UserCodeError(
                f"transform returned {'nothing' if after is None else f'a {type(after).__name__}'}, not a DataFrame",
                fix="end the function with a return of the changed DataFrame, such as: return rows.where('fare > 0')",
                uid=self._topology.name(node),
                place=node.place,
            )
        if META not in after.columns:
            raise UserCodeError(
                f"transform lost the column {META}, which carries each row's event time",
                fix=f"keep it: select('...', {META!r}), or add columns with withColumn instead of select",
                uid=self._topology.name(node),
                place=node.place,
            )
        named = node.columns or visible_of(after.columns)
        return after.select(*map(quoted, named), *(F.col(f"{META}.{name}").alias(name) for name in hidden))

    def _side_output(self, node: SideOutputNode) -> DataFrame:
        emitter = node.emitter
        if isinstance(emitter, SplitNode):
            number = _branch_number(emitter, node.tag)
            return self._split(emitter).where(F.col(BRANCH) == number).drop(BRANCH)
        if isinstance(emitter, SourceNode):
            return malformed_rows(self._intakes[emitter.name])
        if isinstance(emitter, FilterNode):
            marked = self.rows_and_filtered(emitter)
            return _of_status(self.status_of(emitter), FrameSteps(marked), marked.columns)
        if isinstance(emitter, StatefulNode):
            return self._side_rows(emitter, emitter.counter_of(node.tag), self._looked_up_in(emitter))
        raise TypeError(type(emitter).__name__)

    def _looked_up_in(self, operator: StatefulNode) -> dict[str, DataFrame]:
        """Return the rows of an operator's ports, read again, to look up those that it did not accept."""
        found: dict[str, DataFrame] = {}
        for port in operator.ports if looked_up(operator) else ():
            if self.available(port.node):
                behind_others = isinstance(port.node, UnionNode | SideOutputNode | StatefulNode)
                found[port.name] = self.rows(port.node) if behind_others else self.passing_rows(port.node)
        return found

    def _split(self, node: SplitNode) -> DataFrame:
        found = self._rows.get(id(node))
        if found is None:
            branch = F.lit(len(node.branches))
            for number in range(len(node.branches) - 1, -1, -1):
                taken = F.coalesce(column(node.branches[number][1]), F.lit(False))
                branch = F.when(taken, F.lit(number)).otherwise(branch)
            kept = self._cache(self.rows(node.input).withColumn(BRANCH, branch))
            counter = RowCounter(range(1, len(node.branches) + 1))
            self.row_counters[id(node)] = counter
            found = counter.attach(kept.withColumn(ROW_STATUS, F.col(BRANCH))).drop(ROW_STATUS)
            self._rows[id(node)] = found
        return found


def _of_status(status: int, marked: FrameSteps, columns: Sequence[str]) -> DataFrame:
    names = (quoted(name) for name in columns if name not in (ROW_STATUS, CORRUPT))
    return marked.where(f"{ROW_STATUS} = {status}").select(*names).frame()


def _guarded(expression: Expression, passing: Column) -> Column:
    """Return an expression that is evaluated for passing rows only; a plain column cannot fail and needs no guard."""
    if is_name(expression):
        return column(expression)
    return F.when(passing, column(expression))


def _branch_number(node: SplitNode, tag: OutputTag) -> int:
    names = [found.name for found, _ in node.branches]
    return names.index(tag.name) if tag.name in names else len(names)
