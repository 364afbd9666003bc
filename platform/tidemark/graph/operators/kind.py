"""The interface of a stateful operator kind in the graph. Pure: no Spark, no stored state, only nodes and definitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from tidemark.graph.expressions.column_origins import ColumnOrigins
from tidemark.graph.model.nodes import Expression, StatefulNode
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.changes import Definition, DefinitionChange, Kept, Names

N = TypeVar("N", bound=StatefulNode)

Schemas = Sequence[Schema | None]
"""The input columns of each port, in order; None if only the running source knows them."""


@dataclass(frozen=True)
class UpsertKeys:
    """The key columns by which an upserting sink replaces a result.

    ``moving`` are those that change when a result is replaced; ``replaces`` is the column that then lists their earlier values.
    """

    columns: tuple[str, ...]
    moving: tuple[str, ...] = ()
    replaces: str | None = None


class OperatorKind(ABC, Generic[N]):
    """The rules of one kind of operator.

    ``name`` is its nodes' ``KIND``. For messages: ``noun`` and ``nouns`` name the kind, ``state_noun`` names what is lost with its state.
    ``part_noun`` is a part of its state that users name, and ``added_part`` what a new one lacks at first.
    ``chooses_rows`` says that its results are unchanged rows of its input, so that their columns mean the same as the input's.
    ``takes_changelogs`` says that its inputs may be changelogs; else ``instead_of_changelog`` says what to write instead.
    ``keeps_state`` is false for a kind whose operators keep nothing from epoch to epoch: they need no uid, and restore from any state.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    nouns: ClassVar[str]
    state_noun: ClassVar[str]
    part_noun: ClassVar[str] = "aggregate"
    added_part: ClassVar[str] = "in open windows it covers only elements from now on"
    chooses_rows: ClassVar[bool] = False
    takes_changelogs: ClassVar[bool] = False
    instead_of_changelog: ClassVar[str] = "take the changes as elements, .as_elements(), each with its operation"
    keeps_state: ClassVar[bool] = True

    @abstractmethod
    def validate(self, node: N, schemas: Schemas) -> None:
        """Check a node against the known schemas of its inputs.

        Raises:
            DefinitionError: or one of its kinds; it names the user's line.
        """

    @abstractmethod
    def output_schema(self, node: N, schemas: Schemas) -> Schema | None:
        """Return the columns of its results, None if only the running source knows them."""

    def side_schema(self, node: N, counter: str, schemas: Schemas) -> Schema | None:
        """Return the columns of a side output, by the name of its counter: those of the first input, unless the kind says otherwise."""
        del node, counter
        return schemas[0]

    @abstractmethod
    def lineage(self, node: N, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of its result columns, given those of each input."""

    def side_ports(self, node: N, counter: str) -> tuple[str, ...]:
        """Return the ports whose rows a side output has: all, unless the kind says otherwise."""
        del counter
        return node.PORTS

    def side_lineage(self, node: N, counter: str, origins: Sequence[ColumnOrigins]) -> ColumnOrigins:
        """Return the origins of a side output's columns: the first input's, unless the kind says otherwise."""
        del node, counter
        return origins[0]

    @abstractmethod
    def describe(self, node: N) -> str:
        """Return a one-line description, to follow its name."""

    @abstractmethod
    def describe_rows(self, node: N) -> str:
        """Return what a result row is, as Markdown and without a full stop."""

    @abstractmethod
    def describe_column(self, node: N, name: str) -> str | None:
        """Return a description of a result column, as a sentence of Markdown; None if the definition does not say."""

    @abstractmethod
    def describe_counter(self, counter: str) -> str:
        """Return what the rows of a counter are, without a full stop: the text on a side output's page."""

    @abstractmethod
    def made_by(self, node: N) -> tuple[str, str]:
        """Return the method that made it, and what it does in words, such as ``("aggregate", "aggregates trips")``."""

    @abstractmethod
    def counters(self, node: N) -> tuple[str, ...]:
        """Return the counters of rows that it does not accept, such as ``late``. Rows in = rows accepted + all of these, in each epoch."""

    def late_counters(self, node: N) -> tuple[str, ...]:
        """Return which of ``counters`` are those of late rows: ``late``, unless the kind says otherwise."""
        return tuple(counter for counter in self.counters(node) if counter == "late")

    @abstractmethod
    def expressions(self, node: N) -> Iterator[tuple[str, Expression | None]]:
        """Yield the user's expressions in it, each with its role."""

    def functions(self, node: N) -> Iterator[tuple[str, object]]:
        """Yield the user's Python functions in it, each with its caller."""
        del node
        yield from ()

    def variables(self, node: N) -> Mapping[str, str]:  # noqa: ARG002
        """Return what the environment variables that a node reads hold, in words, by their names."""
        return {}

    @abstractmethod
    def encode(self, node: N) -> dict[str, object]:
        """Return its definition as plain JSON: recorded with its state, and compared before the state is read again."""

    @abstractmethod
    def decode(self, definition: Definition, uid: str) -> N:
        """Return a node that reads the state that a definition was recorded with.

        Raises:
            StateMismatchError: the definition is of another release, or needs the job's own code.
        """

    @abstractmethod
    def changes(self, old: Definition, new: Definition, names: Names, kept: tuple[Kept, Kept] | None) -> tuple[DefinitionChange, ...]:
        """Return all differences between two definitions of this kind.

        Args:
            old: as stored.
            new: as declared by the job.
            names: renamed keys, aggregates and columns.
            kept: what either keeps, if that is known better than by the definitions.
        """

    @abstractmethod
    def keeps(self, node: N) -> Kept:
        """Return what it keeps in state."""

    @abstractmethod
    def state_columns(self, node: N, schemas: Schemas) -> Mapping[str, str | None] | None:
        """Return the columns of its main state table with their Spark types, without the engine's internal ones.

        A type is None if it is not certain; the result is None if only the running source knows the columns.
        """

    def state_parts(self, definition: Definition) -> Mapping[str, Sequence[str]]:
        """Return the parts of state that users name, such as aggregates, with their columns in the main state table; none by default."""
        del definition
        return {}

    def older_form(self, part: str, stored: object, wanted: object) -> tuple[str, str] | None:
        """Return what to say of a part of state that an earlier release kept in a form that cannot be continued, and the fix.

        Args:
            part: its name, of those of ``state_parts``.
            stored: the type of its stored column, as Spark's JSON has it.
            wanted: the type of the column from now on.

        Returns:
            None where the type differs for another reason.
        """
        del part, stored, wanted
        return None

    def upsert_keys(self, node: N) -> UpsertKeys | None:
        """Return the key columns of its results, None if users must name them."""
        del node
        return None

    def changelog_keys(self, node: N) -> tuple[str, ...] | None:
        """Return the columns that identify a row of its results, which are a changelog then; None where results are only added to.

        The results of an epoch are net: a key has at most one change, with both rows of an update, and none that changes nothing.
        """
        del node
        return None

    def expires(self, node: N) -> bool:
        """Return whether state expires, so that a changelog's rows may come again as inserts without a delete before."""
        del node
        return False

    def needs_order(self, node: N) -> bool:
        """Return whether elements of one event time have to be ordered by their source positions."""
        del node
        return False

    def needs_time(self, node: N) -> bool:
        """Return whether elements must have an event time."""
        del node
        return True

    def late_known_after_emit(self, node: N) -> bool:
        """Return whether the rows of side outputs are known only after an epoch's results were emitted."""
        del node
        return False

    def looks_up_side_rows(self, node: N) -> bool:
        """Return whether rows of side outputs are looked up in a second reading of the operator's input; else it has them itself."""
        del node
        return True
