"""What every node did with its rows in one epoch: compares the row counts of passes with those of the staged files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.errors import ConservationError
from tidemark.graph.model.nodes import (
    FilterNode,
    Node,
    SelectNode,
    SideOutputNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    TransformNode,
    UnionNode,
    WithColumnsNode,
)
from tidemark.spark.columns.row_counts import MALFORMED, PASSING, RowCounts
from tidemark.spark.epoch.stateless import StatelessPlan
from tidemark.spark.epoch.topology import Topology
from tidemark.spark.operators.base.contract import InputCounts
from tidemark.spark.sinks.delta.delta_changes import rows_given
from tidemark.state.log.progress import FilterProgress, TransformProgress
from tidemark.state.log.records import OutputRecord


@dataclass
class ConservationCheck:
    """Counts of one epoch.

    ``input_counts`` (by port), ``emitted`` (rows of results) and ``side_counts`` (of operators that make rows of side outputs, by counter)
    are by operator, ``staged`` by output name; all exact.
    ``unstaged`` are side outputs of the job that seemed to have no rows. Row counts of passes are exact unless Spark ran a task twice,
    which appears as a difference to the exact counts; then they are counted again, and ``recounted`` is set.
    """

    topology: Topology
    rows: StatelessPlan
    input_counts: dict[int, Mapping[str, InputCounts]] = field(default_factory=dict)
    emitted: dict[int, int] = field(default_factory=dict)
    side_counts: dict[int, Mapping[str, int]] = field(default_factory=dict)
    staged: dict[str, OutputRecord] = field(default_factory=dict)
    unstaged: list[SideOutputNode] = field(default_factory=list)
    recounted: bool = False

    def counts_of(self, node: Node) -> RowCounts | None:
        """Return the row counts of the pass that ends at a node, if that pass ran."""
        counter = self.rows.row_counters.get(id(node))
        return counter.counts() if counter else None

    def rows_emitted(self, node: Node) -> int:
        """Return how many rows a node emitted."""
        if not self.rows.available(node):
            return 0
        if isinstance(node, UnionNode):
            return sum(self.rows_emitted(parent) for parent in node.inputs)
        if isinstance(node, SideOutputNode):
            return self.side_rows(node)
        if isinstance(node, StatefulNode):
            return self.emitted.get(id(node), 0)
        row_counts = self.counts_of(node)
        return row_counts.passing if row_counts else 0

    def side_rows(self, node: SideOutputNode) -> int:
        """Return how many rows a side output has."""
        emitter = node.emitter
        if isinstance(emitter, StatefulNode):
            counter = emitter.counter_of(node.tag)
            if id(emitter) in self.side_counts:
                return self.side_counts[id(emitter)].get(counter, 0)
            return sum(counts.others.get(counter, 0) for counts in self.input_counts.get(id(emitter), {}).values())
        if isinstance(emitter, SplitNode):
            row_counts = self.counts_of(emitter)
            tags = [tag.name for tag, _ in emitter.branches]
            branch = tags.index(node.tag.name) if node.tag.name in tags else len(tags)
            return row_counts.by_status.get(branch, 0) if row_counts else 0
        status = (
            MALFORMED if isinstance(emitter, SourceNode) else self.rows.status_of(emitter) if isinstance(emitter, FilterNode) else PASSING
        )
        end = self.end_of(emitter)
        row_counts = self.counts_of(end) if end is not None else None
        return row_counts.by_status.get(status, 0) if row_counts else 0

    def end_of(self, node: Node) -> Node | None:
        """Return the node that ends the pass in which a source or filter is counted."""
        if isinstance(node, SourceNode):
            return self.rows.ends.get(node.name)
        for end in self.topology.nodes:
            if id(end) in self.rows.row_counters and any(found is node for found in self.topology.fused_path(end)[1]):
                return end
        return None

    def filters(self) -> dict[str, FilterProgress]:
        """Return in, passed and rejected of every filter and split."""
        found: dict[str, FilterProgress] = {}
        for node in self.topology.nodes:
            if isinstance(node, FilterNode):
                found[self.topology.name(node)] = self._filter(node)
            elif isinstance(node, SplitNode):
                found[self.topology.name(node)] = self._split(node)
        return found

    def transforms(self) -> dict[str, TransformProgress]:
        """Return how many rows went into every transform and came out of it."""
        return {
            self.topology.name(node): TransformProgress(self.rows_emitted(node.input), self._rows_out(node))
            for node in self.topology.nodes
            if isinstance(node, TransformNode)
        }

    def _rows_out(self, node: TransformNode) -> int:
        """Return the rows of the pass that begins with what a transform returned."""
        for end in self.topology.nodes:
            row_counts = self.counts_of(end)
            if row_counts is not None and self.topology.fused_path(end)[0] is node:
                return row_counts.total
        return 0

    def check(self) -> None:
        """Compare every count with its neighbours'; recount once where a task ran twice.

        Raises:
            ConservationError: rows were lost or duplicated; nothing of the epoch may be committed.
        """
        for node in self.topology.nodes:
            counter = self.rows.row_counters.get(id(node))
            if counter is not None:
                row_counts = counter.counts()
                self._require(node, row_counts.total, sum(row_counts.by_status.values()))
            if isinstance(node, StatefulNode):
                counts = self.input_counts.get(id(node), {})
                for port in node.ports:
                    if port.name in counts:
                        self._compare(port.node, counts[port.name].rows, node)
        for name, record in self.staged.items():
            source = _same_rows(self.topology.outputs[name].node)
            if source is not None:
                self._compare(source, rows_given(record), source)
        # A recount may have found side rows where there seemed to be none, so that they were not staged.
        for gate in self.unstaged:
            self._require(gate, self.side_rows(gate), 0)

    def _compare(self, node: Node, exact: int, where: Node) -> None:
        if self.rows_emitted(node) == exact:
            return
        self.recounted = True
        for found, counter in self.rows.row_counters.items():
            again = next(item for item in self.topology.nodes if id(item) == found)
            if not isinstance(again, SplitNode):
                counter.recount(self.rows.rows_and_filtered(again))
        self._require(where, self.rows_emitted(node), exact)

    def _require(self, node: Node, rows_in: int, rows_out: int) -> None:
        if rows_in != rows_out:
            raise ConservationError(
                f"{rows_in} rows came in and {rows_out} are accounted for",
                fix="if an expression or function gives other results when it is run twice, make it deterministic; else report this",
                uid=self.topology.name(node),
                place=node.place,
            )

    def _filter(self, node: FilterNode) -> FilterProgress:
        end = self.end_of(node)
        row_counts = self.counts_of(end) if end is not None else None
        tag = node.rejects_to.name if node.rejects_to else None
        if end is None or row_counts is None:
            return FilterProgress(0, 0, 0, tag)
        before = row_counts.by_status.get(MALFORMED, 0)
        for found in self.topology.fused_path(end)[1]:
            rejected = row_counts.by_status.get(self.rows.status_of(found), 0)
            if found is node:
                rows_in = row_counts.total - before
                return FilterProgress(rows_in, rows_in - rejected, rejected, tag)
            before += rejected
        return FilterProgress(0, 0, 0, tag)

    def _split(self, node: SplitNode) -> FilterProgress:
        row_counts = self.counts_of(node)
        if row_counts is None:
            return FilterProgress(0, 0, 0)
        rest = 0 if node.otherwise else row_counts.by_status.get(len(node.branches), 0)
        return FilterProgress(row_counts.total, row_counts.total - rest, rest)


def _same_rows(node: Node) -> Node | None:
    """Return the node whose count an output's rows must equal: itself, or a side output followed only by column selections."""
    start = node
    while isinstance(start, SelectNode | WithColumnsNode):
        start = start.input
    return start if isinstance(start, SideOutputNode | StatefulNode) else node
