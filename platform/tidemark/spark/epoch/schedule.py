"""The passes of an epoch, planned once per run from the job's graph: what each reads and writes, and when it runs.

Nothing runs here: ``EpochRun`` executes what ``build_schedule`` returns, and ``tidemark graph JOB --schedule`` prints it. What depends
on an epoch's data is a pass's condition: whether there is input, rows, or results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tidemark.graph.model.nodes import FilterNode, Node, SideOutputNode, SourceNode, SplitNode, StatefulNode, UnionNode
from tidemark.graph.operators.registry import kind_of
from tidemark.spark.epoch.topology import FUSABLE, Topology, looked_up, operators_before, result_operators

What = Literal["process", "count", "watermarks", "emit", "output", "side_output", "consume", "compact"]
When = Literal["always", "has_input", "has_rows", "emitted", "expected", "has_work"]

_WHEN: dict[When, str] = {
    "always": "",
    "has_input": "if there is anything to read",
    "has_rows": "if {of} has rows",
    "emitted": "if {of} emitted",
    "expected": "if it had rows in the epoch before",
    "has_work": "if there is something to merge",
}


@dataclass(frozen=True)
class Pass:
    """One step of an epoch.

    ``process`` takes input into an operator's state, ``emit`` returns the results due at its watermark, ``consume`` reads these results
    where nothing else does, and their counts, ``compact`` merges its state files. ``output`` and ``side_output`` stage an output's rows,
    ``count`` reads what no other pass counts, ``watermarks`` advances those of the sources.

    ``subject`` is a name: of an operator, an output, a source or a filter. ``counts`` are the sources, filters, side outputs and results
    whose row counts are known after this pass, and not before. ``in_background``: the epoch does not wait for the pass. ``of`` is the
    subject of the condition ``when``: the side output ``gate``, or an operator. ``node`` is the operator, or the node whose rows are read.
    """

    what: What
    subject: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    in_background: bool = False
    when: When = "always"
    of: str = ""
    node: Node | None = field(default=None, repr=False)
    gate: SideOutputNode | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return a readable line."""
        what = f"{self.what.replace('_', ' ')} {self.subject}".rstrip()
        parts = [
            f"{name} {', '.join(names)}"
            for name, names in (("reads", self.reads), ("writes", self.writes), ("counts", self.counts))
            if names
        ]
        parts += ["in the background"] if self.in_background else []
        parts += [_WHEN[self.when].format(of=self.of)] if self.when != "always" else []
        return f"{what}: {'; '.join(parts)}" if parts else what


@dataclass(frozen=True)
class EpochSchedule:
    """The passes of an epoch in order: those that read its input, which may run a second time, strictly, and the rest."""

    input: tuple[Pass, ...]
    rest: tuple[Pass, ...]

    @property
    def passes(self) -> tuple[Pass, ...]:
        """All passes."""
        return (*self.input, *self.rest)

    def describe(self) -> str:
        """Return a numbered line per pass."""
        lines = [f"{number:3} {each}" for number, each in enumerate(self.passes, 1)]
        return "\n".join(["the input is read", *lines[: len(self.input)], "after that", *lines[len(self.input) :]])


def build_schedule(topology: Topology) -> EpochSchedule:
    """Return the passes of a job's epochs."""
    return _Builder(topology).build()


class _Builder:
    """Plans one pass after the other, and tracks which counts are known after each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._counted = _Counted(topology)
        self._had_turn: set[int] = set()
        self._processed: set[int] = set()
        self._placed: set[str] = set()
        self._emitters = _unread_emitters(topology)

    def build(self) -> EpochSchedule:
        """Return the whole schedule."""
        first = tuple(self._input())
        return EpochSchedule(first, tuple(self._rest()))

    def _input(self) -> Iterator[Pass]:
        """Yield the passes that read the sources: each is counted by the first of them."""
        yield from self._expected()
        for node in self._topology.operators:
            if self._settled(*node.inputs):
                yield self._process(node)
        yield from self._outputs()
        yield from self._count_unread()
        # A source that is read only in a union with an operator's results would be counted too late.
        for source in [source for source in self._topology.sources if not self._counted.knows(source)]:
            yield self._count(source)
        yield from self._count_unread()

    def _rest(self) -> Iterator[Pass]:
        yield Pass("watermarks", reads=tuple(f"counts of {source.name}" for source in self._topology.sources), writes=("watermarks",))
        yield from self._side_outputs()
        for node in self._topology.operators:
            yield from self._turn(node)
        # Counts of operators that follow other operators are known only now. They run here, not in the background: a request for their
        # counts would wait for ever for a pass that failed.
        yield from self._count_unread()
        yield from self._side_outputs()

    def _turn(self, node: StatefulNode) -> Iterator[Pass]:
        """Yield an operator's turn: it emits, consumers read its results, and its state is compacted in the background."""
        if id(node) not in self._processed:
            yield self._process(node)
        name = self._topology.name(node)
        knew = self._counted.names(self._had_turn, self._processed)
        self._had_turn.add(id(node))
        known = tuple(found for found in self._counted.names(self._had_turn, self._processed) if found not in knew)
        yield Pass("emit", name, (f"state of {name}", "watermarks"), (f"results of {name}",), known, node=node)
        reading: list[Node] = []
        for each in (*self._outputs(), *self._following(node)):
            yield each
            reading += each.node.inputs if each.node is not None and each.what == "process" else (each.node,) if each.node else ()
        if self._topology.consumers.get(id(node)):
            # A consumer that waits for another operator's results as well has not read these yet.
            unread = not any(found is node for found in result_operators(*reading))
            results = (f"results of {name}",)
            yield Pass("consume", name, results if unread else (), counts=results, when="emitted", of=name, node=node)
        yield Pass("compact", name, (f"state of {name}",), (f"state of {name}",), in_background=True, when="has_work", node=node)

    def _following(self, node: StatefulNode) -> Iterator[Pass]:
        """Yield the operators that consume an operator's results: they process them now, so that the results are read once."""
        for other in self._topology.operators:
            follows = any(found is node for found in result_operators(*other.inputs))
            if follows and id(other) not in self._processed and self._settled(*other.inputs):
                yield self._process(other)

    def _process(self, node: StatefulNode) -> Pass:
        name = self._topology.name(node)
        return self._pass("process", name, node.inputs, (f"state of {name}",), when="has_input", node=node)

    def _outputs(self) -> Iterator[Pass]:
        """Yield the outputs that have rows in every epoch, as far as their rows are available."""
        for name, output in self._topology.outputs.items():
            if name not in self._placed and self._topology.gate(output.node) is None and self._settled(output.node):
                self._placed.add(name)
                yield self._pass("output", name, (output.node,), (f"output {name}",), when="has_input", node=output.node)

    def _side_outputs(self) -> Iterator[Pass]:
        """Yield late, rejected and malformed rows whose counts are known."""
        for name, output in self._topology.outputs.items():
            gate = self._topology.gate(output.node)
            if gate is not None and name not in self._placed and self._settled(output.node) and self._knows_gate(gate):
                self._placed.add(name)
                of = self._topology.name(gate)
                writes = (f"output {name}",)
                yield self._pass(
                    "side_output", name, (output.node,), writes, when="has_rows", of=of, node=output.node, gate=gate, in_background=True
                )

    def _expected(self) -> Iterator[Pass]:
        """Yield side outputs that may be staged before it is known whether they have rows, in the background of the pass that counts them.

        Only those for which that pass keeps no rows: they would read the input again anyway.
        """
        for name, output in self._topology.outputs.items():
            gate = self._topology.gate(output.node)
            if gate is not None and self._settled(output.node) and self._read_from_files(gate):
                names = _read_names(self._topology, [output.node])
                yield Pass(
                    "side_output", name, names, (f"output {name}",), in_background=True, when="expected", node=output.node, gate=gate
                )

    def _count(self, emitter: Node, gate: SideOutputNode | None = None) -> Pass:
        of = self._topology.name(gate) if gate is not None else ""
        when: When = "has_input" if gate is None else "has_rows"
        return self._pass("count", self._topology.name(emitter), (emitter,), (), when=when, of=of, node=emitter, gate=gate)

    def _count_unread(self) -> Iterator[Pass]:
        for emitter in list(self._emitters):
            gate = self._topology.gate(emitter)
            if self._settled(emitter) and (gate is None or self._knows_gate(gate)):
                self._emitters.remove(emitter)
                if not self._counted.ends_at(emitter):
                    yield self._count(emitter, gate)

    def _pass(
        self,
        what: What,
        subject: str,
        nodes: Iterable[Node],
        writes: tuple[str, ...],
        *,
        when: When,
        node: Node,
        of: str = "",
        gate: SideOutputNode | None = None,
        in_background: bool = False,
    ) -> Pass:
        """Return a pass over nodes' rows, and note which counts it provides."""
        nodes = tuple(nodes)
        before = self._counted.names(self._had_turn, self._processed)
        if what == "process":
            self._processed.add(id(node))
        for each in nodes:
            self._counted.read(each)
        counts = tuple(name for name in self._counted.names(self._had_turn, self._processed) if name not in before)
        return Pass(what, subject, _read_names(self._topology, nodes), writes, counts, in_background, when, of, node, gate)

    def _settled(self, *nodes: Node) -> bool:
        """Whether all operators whose turn must come before rows of nodes can be read have had their turn."""
        return all(id(operator) in self._had_turn for operator in operators_before(*nodes))

    def _knows_gate(self, gate: SideOutputNode) -> bool:
        return self._counted.knows_side(gate, self._had_turn, self._processed)

    def _read_from_files(self, gate: SideOutputNode) -> bool:
        """Whether a side output's rows follow from the input and the state before the epoch, and are looked up in sources' files."""
        emitter = gate.emitter
        if not isinstance(emitter, StatefulNode):
            return self._topology.path_to_source(emitter) is not None
        if kind_of(emitter).late_known_after_emit(emitter):
            return False
        return all(self._topology.path_to_source(node) is not None for node in emitter.inputs)


class _Counted:
    """Which nodes have row counts after the passes so far, as ``StatelessPlan`` counts them when rows of a node are read."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._tallied: dict[int, Node] = {}

    def read(self, node: Node) -> None:
        """Note that a pass reads a node's rows."""
        if not isinstance(node, UnionNode | SideOutputNode | StatefulNode):
            self._tallied[id(node)] = node
        self._mark(node)

    def ends_at(self, node: Node) -> bool:
        """Whether a pass ended at a node."""
        return id(node) in self._tallied

    def knows(self, emitter: Node) -> bool:
        """Whether the rows of a source or filter are counted."""
        if isinstance(emitter, SourceNode):
            return any(self._topology.fused_path(end)[0] is emitter for end in self._tallied.values())
        if isinstance(emitter, SplitNode):
            return self.ends_at(emitter)
        return any(found is emitter for end in self._tallied.values() for found in self._topology.fused_path(end)[1])

    def knows_side(self, side: SideOutputNode, had_turn: set[int], processed: set[int]) -> bool:
        """Whether the rows of a side output are counted, given the operators that had their turn, and those that took input."""
        emitter = side.emitter
        if isinstance(emitter, StatefulNode):
            return id(emitter) in (had_turn if kind_of(emitter).late_known_after_emit(emitter) else processed)
        return self.knows(emitter)

    def names(self, had_turn: set[int], processed: set[int]) -> list[str]:
        """Return the names of sources, filters and operators' side outputs that are counted."""
        topology = self._topology
        found = [
            topology.name(node) for node in topology.nodes if isinstance(node, SourceNode | FilterNode | SplitNode) and self.knows(node)
        ]
        sides = [node for node in topology.nodes if isinstance(node, SideOutputNode) and isinstance(node.emitter, StatefulNode)]
        return found + [topology.name(side) for side in sides if self.knows_side(side, had_turn, processed)]

    def _mark(self, node: Node) -> None:
        """Mark the nodes that a node's rows are computed from."""
        if isinstance(node, SideOutputNode):
            self._look_up(node)
        elif isinstance(node, FUSABLE):
            parent = node.input
            (self.read if self._topology.shared(parent) else self._mark)(parent)
        elif not isinstance(node, StatefulNode):
            for parent in node.inputs:
                self.read(parent)

    def _look_up(self, side: SideOutputNode) -> None:
        emitter = side.emitter
        if isinstance(emitter, SplitNode):
            self._tallied[id(emitter)] = emitter
            self.read(emitter.input)
        elif isinstance(emitter, StatefulNode):
            for node in looked_up(emitter):
                behind_others = isinstance(node, UnionNode | SideOutputNode | StatefulNode)
                (self.read if behind_others else self._mark)(node)
        else:
            self._mark(emitter)


def _unread_emitters(topology: Topology) -> list[Node]:
    """Return sources and filters whose side output is used although no pass of every epoch counts their rows.

    An operator or a union that reads the rejected rows of a filter alone does not count the filter.
    """
    counted = _Counted(topology)
    for output in topology.outputs.values():
        if topology.gate(output.node) is None:
            counted.read(output.node)
    for operator in topology.operators:
        for node in operator.inputs:
            counted.read(node)
    sides = (node.emitter for node in topology.nodes if isinstance(node, SideOutputNode))
    emitters = {id(emitter): emitter for emitter in sides if not isinstance(emitter, StatefulNode) and not counted.knows(emitter)}
    return list(emitters.values())


def _read_names(topology: Topology, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return what rows of nodes are read from: sources, results of operators and their side outputs."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SourceNode):
            found[node.name] = None
        elif isinstance(node, StatefulNode):
            found[f"results of {topology.name(node)}"] = None
        elif isinstance(node, SideOutputNode) and isinstance(node.emitter, StatefulNode):
            found[f"{topology.name(node)} of {topology.name(node.emitter)}"] = None
            # Unless the operator itself has set them aside, they are looked up in its input.
            pending = [*(() if kind_of(node.emitter).late_known_after_emit(node.emitter) else node.emitter.inputs), *pending]
        else:
            pending = [*node.inputs, *pending]
    return tuple(found)
