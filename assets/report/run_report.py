"""A report of one run of a job, summed from its committed epochs: the numbers of a materialization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark.assets.values.instants import instant_or_none
from tidemark.graph import Job
from tidemark.state import EpochProgress, OperatorProgress, Totals, empty_totals


@dataclass(frozen=True)
class RunReport:
    """A run of a job.

    Args:
        job: the job.
        lineage: the lineage it ran in.
        epochs: epochs this run committed, oldest first; empty if there was nothing to read.
        head: the job's newest epoch, also when an earlier run committed it.
        history: epochs of this and earlier runs, oldest first, for the chart.
        totals: rows since the lineage began, from the job's status.
    """

    job: Job
    lineage: str
    epochs: tuple[EpochProgress, ...]
    head: EpochProgress | None
    history: tuple[EpochProgress, ...] = ()
    totals: Totals = field(default_factory=empty_totals)

    @property
    def data_version(self) -> str:
        """``<lineage>:<epoch>``; the same again when a run found nothing new."""
        return f"{self.lineage}:{self.head.epoch if self.head is not None else -1}"

    @property
    def rows_read(self) -> int:
        """Rows that this run read from its sources, including malformed ones."""
        return sum(source.rows_read for epoch in self.epochs for source in epoch.sources.values())

    @property
    def rows_malformed(self) -> int:
        """Rows of this run without a valid event time, or that could not be parsed."""
        return sum(epoch.rows_malformed for epoch in self.epochs)

    @property
    def rows_rejected(self) -> int:
        """Rows of this run that a filter rejected."""
        return sum(item.rows_rejected for epoch in self.epochs for item in epoch.filters.values())

    @property
    def seconds(self) -> float:
        """The total duration of this run's epochs."""
        return sum(epoch.duration_ms for epoch in self.epochs) / 1000

    @property
    def rows_per_second(self) -> float | None:
        """Rows read per second of epoch time; None if no time passed."""
        return self.rows_read / self.seconds if self.seconds > 0 else None

    @property
    def watermark(self) -> int | None:
        """The watermark after the newest epoch; None before the first and at the end of input."""
        return instant_or_none(self.head.watermark) if self.head is not None else None

    def watermark_lag_seconds(self) -> float | None:
        """Return the largest lag of a source behind processing time at the newest epoch."""
        if self.head is None or self.watermark is None:
            return None
        lags = [source.lag_ms for source in self.head.sources.values() if source.lag_ms is not None]
        return max(lags) / 1000 if lags else None

    def rows_added(self, output: str) -> int:
        """Return the rows this run wrote to an output."""
        return sum(epoch.outputs[output].rows for epoch in self.epochs if output in epoch.outputs)

    def changes(self, output: str) -> dict[str, int]:
        """Return the inserts, updates and deletes of this run in an output, by operation; none where it is no changelog's."""
        found: dict[str, int] = {}
        for epoch in self.epochs:
            for name, count in (epoch.outputs[output].changes if output in epoch.outputs else {}).items():
                found[name] = found.get(name, 0) + count
        return found

    def changed_since(self, output: str, lineage: str, epoch: int) -> bool:
        """Return whether an output got rows after an epoch of a lineage, or may have, if the history does not reach back so far."""
        known = {each.epoch: each for each in (*self.history, *self.epochs) if each.lineage == self.lineage}
        if lineage not in ("", self.lineage) or (known and min(known) > epoch + 1):
            return True
        return any(each.outputs[output].rows for number, each in known.items() if number > epoch and output in each.outputs)

    def bytes_added(self, output: str) -> int:
        """Return the bytes this run wrote to an output."""
        return sum(epoch.outputs[output].bytes for epoch in self.epochs if output in epoch.outputs)

    def rows_total(self, output: str) -> int | None:
        """Return the rows written to an output since the lineage began; None if the status does not have them."""
        return self.totals["outputs"].get(output)

    def operator_sum(self, uids: tuple[str, ...], pick: Callable[[OperatorProgress], int]) -> int:
        """Return the sum of a count over this run's epochs and the named operators."""
        return sum(pick(epoch.operators[uid]) for epoch in self.epochs for uid in uids if uid in epoch.operators)

    def oldest_open_window(self, uids: tuple[str, ...]) -> int | None:
        """Return the start, in milliseconds, of the oldest open window of the named operators, None if none is open."""
        operators = self.head.operators if self.head is not None else {}
        starts = [operators[uid].oldest_open_window for uid in uids if uid in operators]
        return min((start for start in starts if start is not None), default=None)

    def operator_now(self, uids: tuple[str, ...], pick: Callable[[OperatorProgress], int]) -> int:
        """Return the sum of a gauge over the named operators, at the newest epoch."""
        operators = self.head.operators if self.head is not None else {}
        return sum(pick(operators[uid]) for uid in uids if uid in operators)
