"""What the sink of a connector says of itself: a sink that is neither a folder nor within the process, such as a database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

from tidemark.graph.model.schema import SchemaColumn


class ConnectorSpec(ABC):
    """A sink as it was declared. A connector has one subclass, and in the engine one sink of the same ``kind``."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def location(self) -> str:
        """The place, as records and errors show it, without any secret. Outputs with the same one write to one place."""

    @property
    @abstractmethod
    def table_name(self) -> str:
        """The name by which readers know it."""

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """What it guarantees, in words."""

    @property
    @abstractmethod
    def on_rewind(self) -> str:
        """What a rewind does to it, in words."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What the environment variables that it reads hold, in words, by their names."""
        return {}

    @property
    @abstractmethod
    def row_keys(self) -> tuple[str, ...]:
        """The columns by which a row replaces an older one; empty where all rows are added."""

    @abstractmethod
    def describe(self) -> str:
        """Return kind, place and mode, in one line, for drawings of the graph."""

    @abstractmethod
    def added_columns(self, *, changelog: bool) -> tuple[SchemaColumn, ...]:
        """Return the columns that it adds to the rows of a stream; ``changelog`` says whether that is one."""

    @abstractmethod
    def encoded(self) -> list[object]:
        """Return what of it is part of the job's code version, as plain JSON: all that changes what is written, and not where."""

    @abstractmethod
    def redirected(self, fork: str) -> Self:
        """Return it with a place of its own for a fork of that name, which must not write to the original's."""
