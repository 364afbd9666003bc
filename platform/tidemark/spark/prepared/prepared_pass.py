"""A pass that each epoch makes over few rows: its plan is made once, compared with a new one once, and from then on only bound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemark.semantics.watermarks.watermarks import clamp_watermark
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.prepared.prepared_plan import PassRows, PreparedPlan, WrittenRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

logger = logging.getLogger("tidemark")

Frame = tuple["DataFrame", Sequence["Observation"]]
"""A DataFrame, and the observations in it whose values are wanted."""

_Rows = TypeVar("_Rows")

Build = Callable[[Sequence[int]], Frame]
"""Makes the DataFrame of a pass over the epoch's files from the numbers that differ between epochs."""

_FIRST_PLACEHOLDER: Final = 4_611_686_018_427_387_000
"""Placeholders of numbers count from here: no other literal of a plan, and a valid watermark, as the numbers are."""


_AT_ONCE: Final = 2
"""The epochs after which plans are made count as over."""

_FAILURES: Final = 2
"""After more failures than these, each of which costs a part of an epoch, a pass is made of DataFrames."""


class PreparedPass:
    """One pass of a run.

    ``PREPARED_AFTER`` is after how many epochs the plan is made: it costs as much as an epoch, which a run of a few would not win back.
    With ``COMPARED_ALWAYS``, for tests, it is compared with a new one in each epoch, not only once.

    Args:
        name: of the pass.
        epochs: how many epochs count as over before the first.
    """

    PREPARED_AFTER: ClassVar[int] = 2
    COMPARED_ALWAYS: ClassVar[bool] = False

    def __init__(self, name: str, epochs: int = 0) -> None:
        self.refused: str | None = None
        self.name = name
        self._epochs = epochs
        self._failures = 0
        self._several = False
        self._passed_on = False
        self._plan: PreparedPlan | None = None

    def run(self, paths: Sequence[Sequence[str]], numbers: Sequence[int], build: Build) -> PassRows | None:
        """Return the rows of the pass in this epoch; None where it has to be made as a DataFrame.

        Args:
            paths: the files that each scan of the DataFrame reads, in the order of its leaves, few rows in all.
            numbers: that the DataFrame is made with; within the range of watermarks, or clamped to it when made into SQL.
            build: makes the DataFrame.
        """
        return self._bound(paths, numbers, build, PreparedPlan.run)

    def rows(
        self,
        paths: Sequence[Sequence[str]],
        numbers: Sequence[int],
        build: Build,
        *,
        passed_on: bool = False,
        session: SparkSession | None = None,
    ) -> WrittenRows | None:
        """Return the rows of a pass that several tasks write; arguments and None as of ``run``.

        Numbers that are only ``passed_on`` with the rows change nothing else in the plan, so that it need not be compared. A plan has the
        settings of its session: one that was made in another than ``session`` is made again.
        """
        if session is not None and self._plan is not None and not self._plan.belongs_to(session):
            self._plan = None
        self._several, self._passed_on = True, passed_on
        return self._bound(paths, numbers, build, PreparedPlan.rows)

    def _bound(
        self,
        paths: Sequence[Sequence[str]],
        numbers: Sequence[int],
        build: Build,
        run: Callable[[PreparedPlan, Sequence[Sequence[str]], dict[int, int]], _Rows],
    ) -> _Rows | None:
        self._epochs += 1
        if self.refused is not None or self._epochs <= self.PREPARED_AFTER:
            return None
        bound = {placeholder(index): clamp_watermark(number) for index, number in enumerate(numbers)}
        try:
            if self._plan is None:
                self._plan = self._prepare(paths, numbers, bound, build)
            elif self.COMPARED_ALWAYS and not self._plan.equals(build(numbers)[0], paths, bound):
                raise AssertionError(f"the plan of {self.name} differs from the one made before")
            return run(self._plan, paths, bound) if self._plan is not None else None
        except (Py4JError, PySparkException) as error:
            # The DataFrame of the epoch fails in the same way, with an error that says where, or it does not fail.
            logger.debug("the prepared pass %r failed: %s", self.name, error)
            self._failures += 1
            if self._failures > _FAILURES:
                self.refused = f"it failed {self._failures} times, at last: {first_line(error)}"
            return None

    def _prepare(self, paths: Sequence[Sequence[str]], numbers: Sequence[int], bound: dict[int, int], build: Build) -> PreparedPlan | None:
        try:
            plan = PreparedPlan(*build(tuple(bound)), several=self._several)
            if not self._several and not plan.writable:
                self.refused = f"Arrow does not write {plan.schema.simpleString()}"
            elif not self._passed_on and not plan.equals(build(numbers)[0], paths, bound):
                self.refused = "the plan differs between epochs by more than files and numbers"
            else:
                return plan
        except Py4JError as error:
            self.refused = str(error)
        logger.debug("%s is planned in each epoch: %s", self.name, self.refused)
        return None


class PreparedPasses:
    """The passes of a run, by name.

    Args:
        refused: why none of them is prepared.
    """

    def __init__(self, refused: str | None = None) -> None:
        self._passes: dict[str, PreparedPass] = {}
        self._refused = refused

    def __getitem__(self, name: str) -> PreparedPass:
        return self._pass(name, 0)

    def at_once(self, name: str) -> PreparedPass:
        """Return a pass over many rows, whose plan is made in the first epoch that has it: to make it costs less than the epoch."""
        return self._pass(name, _AT_ONCE)

    def _pass(self, name: str, epochs: int) -> PreparedPass:
        if name not in self._passes:
            self._passes[name] = PreparedPass(name, epochs)
            self._passes[name].refused = self._refused
        return self._passes[name]


def placeholder(index: int) -> int:
    """Return the number that stands in a prepared plan for the one at an index."""
    return _FIRST_PLACEHOLDER + index
