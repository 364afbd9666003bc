"""What every connector's sink says of itself to the graph: one subclass per connector, in ``tidemark.graph.connectors.<name>.spec``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self


class ConnectorSpec(ABC):
    """A place outside the job's own files, such as a topic, that a connector stages rows for and publishes them to.

    ``KIND`` is the name of its kind, as in the epochs' records; it selects the sink in the engine and what a rewind means.
    Subclasses are frozen dataclasses, and hold no secret: they are stored and shown.
    """

    KIND: ClassVar[str]

    @property
    @abstractmethod
    def location(self) -> str:
        """Where readers find the rows, as an address without credentials; outputs of a job with the same one write to one place."""

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """What readers can rely on, in words."""

    @property
    @abstractmethod
    def identity(self) -> tuple[object, ...]:
        """What of the specification belongs to the version of the job's code, as plain JSON: neither addresses nor credentials."""

    @property
    def replaces(self) -> bool:
        """Whether newer rows replace older ones of the same key, so that of an epoch only the newest is written."""
        return False

    @property
    def adds_history(self) -> bool:
        """Whether rows of a changelog get the columns ``operation`` and ``epoch``, as those that are appended to a table do."""
        return False

    @abstractmethod
    def describe(self) -> str:
        """Return the kind and the place, in one line."""

    @abstractmethod
    def redirected(self, fork: str) -> Self:
        """Return the sink of a fork of the job, at a place of its own."""
