"""How long jobs took to come back, from the job log: Spark's start, then the first epoch whose lag is a usual one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.control.log_assertions import Term
from tests.soak.chaos import Kill
from tests.soak.streams import BOUND_MS, TRIGGER_MS
from tidemark.control.desired.attempts import read_attempt
from tidemark.control.model.records import attempt_of
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

USUAL_LAG_MS: Final = BOUND_MS + TRIGGER_MS
"""What an epoch lags by that reads all there is: the bound, and what landed since the last trigger."""

ALLOWED_MS: Final = 2 * TRIGGER_MS


@dataclass(frozen=True)
class Recovery:
    """A driver's first moments, milliseconds: from the attempt to Spark's being up, and from there to a usual lag.

    ``caught_up_ms`` is None where the driver was killed before that; ``lived_ms`` is how long it had.
    """

    job: str
    attempt: int
    spark_ms: int
    caught_up_ms: int | None
    lived_ms: int

    @property
    def too_slow(self) -> bool:
        """Whether it had the time, and did not come back in it."""
        return self.lived_ms > ALLOWED_MS if self.caught_up_ms is None else self.caught_up_ms > ALLOWED_MS


def recoveries(store: JobStore, job: str, terms: Sequence[Term], kills: Sequence[Kill], ended_at: int) -> list[Recovery]:
    """Return the first moments of each driver of a job; its first one's, too, which nobody killed before."""
    found: list[Recovery] = []
    for term in terms:
        number, up = attempt_of(term.record.owner), term.record.taken_at
        attempt = read_attempt(store, job, number) if number is not None else None
        assert attempt is not None
        if found and found[-1].attempt == attempt.number:
            continue  # the second term of a driver that drains after it ran on
        died = min((kill.at for kill in kills if kill.job == job and kill.at > up), default=ended_at)
        caught_up = next((_committed(epoch) - up for epoch in term.epochs if _lag(epoch) <= USUAL_LAG_MS), None)
        found.append(Recovery(job, attempt.number, up - attempt.at, caught_up, died - up))
    return found


def outages(terms: Sequence[Term], kills: Sequence[Kill], job: str) -> list[int]:
    """Return how long it took from each kill of a job's driver to the next epoch that it committed, milliseconds."""
    committed = [_committed(epoch) for term in terms for epoch in term.epochs]
    return [
        min(at for at in committed if at > kill.at) - kill.at for kill in kills if kill.job == job and any(at > kill.at for at in committed)
    ]


def _committed(epoch: EpochRecord) -> int:
    return epoch.processing_time + epoch.progress.duration_ms


def _lag(epoch: EpochRecord) -> int:
    lags = [source.lag_ms for source in epoch.progress.sources.values() if source.lag_ms is not None]
    return max(lags, default=0)
