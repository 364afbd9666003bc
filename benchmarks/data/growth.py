"""Fares that make the open state grow: small epochs while it is small, a few large ones that load drivers, small ones while it is large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.data.fares import FIRST_TIME_MS, FaresFile, Longs

EPOCH_MS = 10_000
"""Event time of one file: an epoch of a job with a trigger of 10 seconds."""

StageKind = Literal["load", "touch", "close"]


@dataclass(frozen=True)
class Stage:
    """Files that do one thing.

    Args:
        kind: ``load`` has each of the drivers once, spread over the files; ``touch`` has ``rows`` different ones of them in each file;
            ``close`` is as ``touch``, far ahead in event time, so that all windows before it close.
        files: number of files; an epoch reads one.
        drivers: from the first driver to the one before the last.
        rows: of each file of ``touch`` and ``close``.
    """

    kind: StageKind
    files: int
    drivers: tuple[int, int]
    rows: int = 0

    @property
    def total_rows(self) -> int:
        """Rows of all files."""
        return self.drivers[1] - self.drivers[0] if self.kind == "load" else self.files * self.rows


@dataclass(frozen=True)
class GrowthPlan:
    """What to generate: stages one after the other, ten seconds of event time in each file, no late rows.

    Args:
        stages: in order.
        close_after_ms: how far ahead of all other rows those of ``close`` are.
        seed: of the random numbers.
    """

    stages: tuple[Stage, ...]
    close_after_ms: int
    seed: int = 1

    @property
    def name(self) -> str:
        """Name of the folder that holds these fares."""
        stages = "-".join(f"{stage.kind}{stage.files}x{stage.total_rows}" for stage in self.stages)
        return f"growth-{stages}-{self.drivers}-{self.close_after_ms}-{self.seed}"

    @property
    def drivers(self) -> int:
        """Drivers are numbered from 0 to one less than this."""
        return max(stage.drivers[1] for stage in self.stages)

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(stage.files for stage in self.stages)

    @property
    def total_rows(self) -> int:
        """Rows of all files."""
        return sum(stage.total_rows for stage in self.stages)

    def generate(self, file: int, random: np.random.Generator) -> FaresFile:
        """Return a file's rows; called for each file in order, with one generator."""
        stage, place = self._stage_of(file)
        low, high = stage.drivers
        if stage.kind == "load":
            drivers = random.permutation(np.arange(low + place, high, stage.files, dtype=np.int64))
        else:
            drivers = random.choice(high - low, stage.rows, replace=False).astype(np.int64) + low
        count = len(drivers)
        times = FIRST_TIME_MS + file * EPOCH_MS + random.integers(0, EPOCH_MS, count)
        ahead = self.close_after_ms if stage.kind == "close" else 0
        return FaresFile(drivers, times + ahead, np.round(random.random(count) * 50, 2), np.zeros(count, dtype=np.bool_))

    def made_late(self, file: int, times_ms: Longs) -> npt.NDArray[np.bool_]:  # noqa: ARG002
        """Return that no row was made late."""
        return np.zeros(len(times_ms), dtype=np.bool_)

    def _stage_of(self, file: int) -> tuple[Stage, int]:
        """Return the stage of a file, and the file's place in it."""
        place = file
        for stage in self.stages:
            if place < stage.files:
                return stage, place
            place -= stage.files
        raise IndexError(file)
