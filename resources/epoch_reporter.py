"""Reports a run to Dagster while it runs: a log line per epoch, and rarely an observation."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from tidemark.assets.report.output_metadata import progress_metadata
from tidemark.assets.report.run_report import RunReport
from tidemark.clock import Clock
from tidemark.graph import Job
from tidemark.state import EpochProgress, format_progress

OBSERVATION_INTERVAL_SECONDS = 300.0
"""Observations stay in Dagster's event log forever, so a job that runs for hours must not write one per epoch."""


class EpochReporter:
    """Called once per committed epoch, in order.

    An observation covers the epochs since the previous one; the last epochs of a run have none, since the materializations follow.

    Args:
        job: the job.
        log: writes a line to the run's log.
        observe: records an observation.
        asset_key: asset that is observed.
        clock: measures the time between observations.
    """

    def __init__(
        self,
        job: Job,
        *,
        log: Callable[[str], object],
        observe: Callable[[dg.AssetObservation], object],
        asset_key: dg.AssetKey,
        clock: Clock,
    ) -> None:
        self._job = job
        self._log = log
        self._observe = observe
        self._asset_key = asset_key
        self._clock = clock
        self._since = clock.monotonic()
        self._epochs: list[EpochProgress] = []

    def __call__(self, progress: EpochProgress) -> None:
        """Log the epoch, and record an observation if the last one is long enough ago."""
        self._log(format_progress(progress))
        self._epochs.append(progress)
        now = self._clock.monotonic()
        if now - self._since < OBSERVATION_INTERVAL_SECONDS:
            return
        report = RunReport(self._job, progress.lineage, tuple(self._epochs), progress)
        self._observe(dg.AssetObservation(asset_key=self._asset_key, metadata=progress_metadata(report)))
        self._since = now
        self._epochs.clear()
