"""Columns of an operator's state and results, from its inputs' columns alone. Plans are made, and none is run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T


class OperatorSchemas(ABC):
    """The columns of one operator; made of frames without rows that have the columns of its inputs."""

    @abstractmethod
    def state(self) -> T.StructType:
        """Return the columns of its main state table, the engine's own left out; every one is nullable."""

    @abstractmethod
    def results(self) -> T.StructType:
        """Return the columns of its results, the engine's own among them."""

    def empty_accumulators(self) -> DataFrame | None:
        """Return one row of state of no elements at all: merged with others, these stay as they are. None where there is no such row."""
        return None
