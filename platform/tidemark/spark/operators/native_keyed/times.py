"""The times of a pass over keys, as SQL: the watermark at an element, and lifetimes of state."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.spark.operators.native_keyed.columns import EVENT_RENEWED, PROCESSING_RENEWED, RANK
from tidemark.spark.prepared.runtime_literals import literal, runtime_literals


@dataclass(frozen=True)
class PassTimes:
    """The times of an operator in an epoch, as ``EpochTimes`` of process functions has them, and the lifetime of its state.

    Where the lifetime is not one of event time, ``watermark`` may be that of the epoch before: it is not used.
    """

    ttl: StateTtl | None
    before: int
    watermark: int
    bound: int
    processing_time: int

    @property
    def end(self) -> int:
        """The time, in the domain of the lifetime, when the epoch is over."""
        return self.watermark if self.ttl is not None and self.ttl.domain == "event" else self.processing_time

    @property
    def begin(self) -> int:
        """The time at which the lifetime begins of state that was written without one, or before there was a watermark."""
        if self.ttl is None or self.ttl.domain != "event":
            return self.processing_time
        return self.before if self.before != MIN_WATERMARK else self.watermark

    def now(self) -> str:
        """Return SQL of the time at an element, from its rank."""
        if self.ttl is None:
            return "CAST(NULL AS BIGINT)"
        if self.ttl.domain == "processing":
            return runtime_literals(self.processing_time, varying=RANK)[0]
        low, high = runtime_literals(self.before, self.watermark, varying=RANK)
        return f"greatest({low}, least({high}, {RANK} - {self.bound + 1}L))"

    def stored_now(self) -> str:
        """Return SQL of the time from which the lifetime of stored state counts."""
        if self.ttl is None:
            return "CAST(NULL AS BIGINT)"
        renewed = f"nullif({EVENT_RENEWED}, {literal(MIN_WATERMARK)})" if self.ttl.domain == "event" else PROCESSING_RENEWED
        return f"coalesce({renewed}, {runtime_literals(self.begin, varying=RANK)[0]})"

    def deadline(self, now: str) -> str:
        """Return SQL of when state expires that was written at a time; null where it never does."""
        if self.ttl is None:
            return "CAST(NULL AS BIGINT)"
        # State that would expire after the end of time expires with it.
        return f"(least({now}, {literal(MAX_WATERMARK - self.ttl.ms)}) + {self.ttl.ms}L)"

    def is_live(self, written: str, now: str) -> str:
        """Return SQL of whether state that was written at a time, null for none, lives at another."""
        return "true" if self.ttl is None else f"({written} IS NULL OR {self.deadline(written)} > {now})"

    def is_expired(self, written: str) -> str:
        """Return SQL of whether state has expired when the epoch is over."""
        if self.ttl is None:
            return "false"
        return f"coalesce({self.deadline(written)} <= {runtime_literals(self.end, varying=RANK)[0]}, false)"
