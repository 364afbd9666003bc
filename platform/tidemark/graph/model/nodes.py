"""The job graph: immutable nodes that describe a job, without Spark.

Users build nodes through ``tidemark.graph.api.streams``; the engine (``tidemark.spark``) reads them. A node is identified by
object identity: two equal declarations are two operators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.source_specs import SourceSpec
from tidemark.graph.model.unknown_members import unknown_member
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy
from tidemark.semantics.windows.windows import TimeDomain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Expression = str | Callable[[], "Column"]
"""An SQL expression, or a function without arguments that returns a Column and is called when the job runs."""

On = str | Sequence[str] | Mapping[str, Expression] | Mapping[Expression, Expression]
"""What sides are compared by: a column of both, a list of these, or a mapping of left expressions to right ones."""

HIDDEN_PREFIX = "__tm_"
"""Prefix of the engine's internal columns; users may not use it."""

PATTERN_CHARACTERS = "*?[]{}\\"
"""A path with any of these characters is a pattern, which may match several folders."""


@checked_methods("__init__")
@dataclass(frozen=True)
class OutputTag:
    """Name of a side output: late, rejected, malformed or split rows.

    Identified by its name within a job; it becomes part of paths and asset names.
    """

    name: str


@dataclass(frozen=True)
class RecordReasons:
    """How malformed records of a source whose values are decoded by its timestamp's expression are described.

    ``timestamp`` is the event time as the user wrote it, ``reason`` SQL of why a record has none, ``origin`` SQL of a text that says
    where the record is.
    """

    timestamp: str
    reason: str
    origin: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """Base of all nodes: inputs in order, the uid if one was given, and the user's file and line."""

    inputs: tuple[Node, ...] = field(default=(), repr=False)
    uid: str | None = None
    place: str = ""

    @property
    def input(self) -> Node:
        """The input of an operator that has exactly one.

        Raises:
            ValueError: it has none, or several.
        """
        (only,) = self.inputs
        return only


@dataclass(frozen=True, eq=False, kw_only=True)
class SourceNode(Node):
    """Reads elements; assigns timestamps, and emits malformed ones separately."""

    name: str
    spec: SourceSpec
    watermarks: WatermarkStrategy
    malformed_to: OutputTag | None = None
    reasons: RecordReasons | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SelectNode(Node):
    """Exactly these columns, in this order."""

    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class WithColumnsNode(Node):
    """All columns of the input, with these added or replaced; each sees the input's columns only."""

    columns: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterNode(Node):
    """Rows for which the condition is true; the others (false or null) are rejected or filtered away."""

    condition: Expression
    rejects_to: OutputTag | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ExplodeNode(Node):
    """One row per item of an array (or entry of a map: ``key`` and ``value`` in a struct); ``outer`` keeps empty ones with null."""

    expression: Expression
    as_: str
    outer: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionNode(Node):
    """A Python function over elements, run on Arrow batches.

    ``map``: ``function(row: dict) -> dict``, one row for each. ``flat_map``: ``function(row: dict) -> iterable of dict``.
    With ``batches`` (map only): ``function(pyarrow.RecordBatch) -> pyarrow.RecordBatch`` of the same length.
    """

    kind: Literal["map", "flat_map"]
    function: Callable[..., object]
    schema: str
    batches: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class TransformNode(Node):
    """A function from DataFrame to DataFrame, called once per epoch; it must keep the column ``__tm_meta``."""

    function: Callable[[DataFrame], DataFrame]
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitNode(Node):
    """Each row goes to the first branch whose condition is true; ``otherwise`` takes the rest, else it is dropped and counted."""

    branches: tuple[tuple[OutputTag, Expression], ...]
    otherwise: OutputTag | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SideOutputNode(Node):
    """The rows that its one input (a source, a filter, a split or a stateful operator) emits under a tag."""

    tag: OutputTag

    @property
    def emitter(self) -> Node:
        """The operator whose side output this is."""
        return self.input


@dataclass(frozen=True, eq=False, kw_only=True)
class UnionNode(Node):
    """All rows of the inputs, matched by column name; the watermark is the least of theirs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ChangelogNode(Node):
    """The rows as changes of the rows with their ``keys``: inserts, or what ``operation``, an expression, says.

    ``sequence`` orders the changes of a key within an epoch; without one their source does.
    """

    keys: tuple[str, ...]
    operation: Expression | None = None
    sequence: Expression | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementsNode(Node):
    """The changes of a changelog as elements, each with its kind in the column ``operation``."""

    operation: str


@dataclass(frozen=True)
class Port:
    """One input of a stateful operator: its name, the node whose rows come in, and the key of each row (empty: one key for all)."""

    name: str
    node: Node = field(repr=False)
    keys: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class StatefulNode(Node, ABC):
    """An operator that keeps state from epoch to epoch, identified by its uid.

    ``KIND`` is the name of its kind: it selects the operator's rules in the graph, its runtime, and the node of a stored definition.
    ``PORTS`` are the names of its inputs, in the order of ``inputs``.
    """

    KIND: ClassVar[str]
    PORTS: ClassVar[tuple[str, ...]]

    @property
    def ports(self) -> tuple[Port, ...]:
        """The inputs in the order of ``inputs``; a node that was decoded from a stored definition has none."""
        inputs = zip(self.PORTS, self.inputs, self.port_keys, strict=False)
        return tuple(Port(name, node, keys) for name, node, keys in inputs)

    @property
    def port_keys(self) -> tuple[tuple[tuple[str, Expression], ...], ...]:
        """The key of each port's rows, in the order of ``PORTS``: none, unless the kind has keys."""
        return ((),) * len(self.PORTS)

    @property
    @abstractmethod
    def side_tags(self) -> Mapping[str, OutputTag]:
        """The side outputs of rows that it does not accept, as far as the job declares them, by their counter, such as ``late``."""

    @property
    def emitted_tags(self) -> Mapping[str, OutputTag]:
        """The side outputs of rows that the operator makes, by the name of the counter of these; none, unless the kind says otherwise."""
        return {}

    @property
    def bound_ms(self) -> int:
        """The greatest out-of-orderness bound of the sources that it reads, milliseconds."""
        sources = (node for node in walk(self.inputs) if isinstance(node, SourceNode))
        return max((source.watermarks.generator.bound_ms for source in sources), default=0)

    @property
    def result_delay_ms(self) -> int:
        """How far behind the watermark a result can be when it is emitted, milliseconds; none, unless the kind says otherwise.

        What follows sees the watermark so much later, so that such a result is not late there.
        """
        return 0

    def counter_of(self, tag: OutputTag) -> str:
        """Return the counter of the rows that a side output holds.

        Raises:
            KeyError: the operator has no such side output.
        """
        return {own.name: counter for counter, own in (*self.side_tags.items(), *self.emitted_tags.items())}[tag.name]

    @property
    @abstractmethod
    def time_domain(self) -> TimeDomain:
        """The time domain of its timers."""


DeltaMode = Literal["append", "upsert", "scd2"]

VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
"""The columns that ``scd2`` adds: the time from which a version is valid, and that at which it ends, null while it is the newest."""


@dataclass(frozen=True)
class DeltaSpec:
    """A Delta table; exactly once, by an application transaction per (lineage, output, epoch).

    ``append`` adds every row. ``upsert`` has a row replace the one whose ``keys`` are the same, nulls included. ``scd2`` keeps all
    versions of a row, each with the time for which it is valid: from ``sequence``, a column, or from the epoch that brought it.
    """

    path: str
    mode: DeltaMode = "append"
    keys: tuple[str, ...] = ()
    sequence: str | None = None


@dataclass(frozen=True)
class ParquetSpec:
    """A folder of Parquet files; each file appears exactly once, the files of one epoch one after the other.

    ``readers_move_files`` says that readers move or delete files, so that missing ones are no loss.
    """

    path: str
    readers_move_files: bool = False


@dataclass(frozen=True)
class ConsoleSpec:
    """Prints rows; at least once."""

    rows: int = 20


@dataclass(frozen=True)
class MemorySpec:
    """Keeps rows in this process under a name, for tests and notebooks; exactly once within the process."""

    name: str


SinkSpec = DeltaSpec | ParquetSpec | ConsoleSpec | MemorySpec | ConnectorSpec


@dataclass(frozen=True)
class Output:
    """A stream bound to a sink; ``place`` is the user's file and line.

    ``description`` says what its rows are, ``column_texts`` what its columns are, by name; empty where nothing was given.
    """

    node: Node = field(repr=False)
    sink: SinkSpec
    place: str = ""
    description: str = field(default="", repr=False)
    column_texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "output", dir(self))


def walk(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Return all nodes reachable from the roots, each once, inputs before consumers."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(tuple(roots))]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.inputs))
    return tuple(order)
