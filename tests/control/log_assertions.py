"""What the logs prove after the fact: each attempt was launched once, and only the driver of the newest term committed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark.control.desired.attempts import attempt_numbers
from tidemark.control.model.records import attempt_of
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord, TermRecord
from tidemark.state.store.store import JobStore

STARTS = re.compile(r"(?P<job>[\w-]+): starts attempt (?P<number>\d+): ")


@dataclass(frozen=True)
class Term:
    """A driver's term as the job log has it, with the epochs that it committed."""

    record: TermRecord
    epochs: tuple[EpochRecord, ...]


def started(logs: Iterable[Path]) -> Counter[tuple[str, int]]:
    """Return how many times reconcilers say that they started each attempt."""
    text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)
    return Counter((found["job"], int(found["number"])) for found in STARTS.finditer(text))


def terms(store: JobStore, job: str) -> tuple[Term, ...]:
    """Return the terms of a job's log, oldest first.

    It is checked on the way that an epoch's record is its own term's and that nobody else's stands between, that no epoch is missing or
    there twice, and that no attempt came back after a newer one.
    """
    found: list[Term] = []
    for record in _records(store, job):
        if isinstance(record, TermRecord):
            assert not found or record.term == found[-1].record.term + 1, "a term is missing"
            found.append(Term(record, ()))
            continue
        assert found, "an epoch before the first term"
        assert record.term == found[-1].record.term, f"{job}: the driver of term {record.term} committed epoch {record.epoch} after another"
        found[-1] = Term(found[-1].record, (*found[-1].epochs, record))
    epochs = [record.epoch for term in found for record in term.epochs]
    assert epochs == list(range(len(epochs))), f"{job}: epochs are missing, or there twice"
    attempts = [number for term in found if (number := attempt_of(term.record.owner)) is not None]
    assert len(attempts) == len(found), "somebody drove it without an attempt"
    assert attempts == sorted(attempts), f"{job}: an attempt came back after a newer one: {attempts}"
    return tuple(found)


def require_single_starts(store: JobStore, job: str, logs: Iterable[Path]) -> int:
    """Check that each attempt was started once, by one reconciler, as far as their logs say; returns how many attempts there were.

    One that was killed between the attempt's record and its own line in the log leaves an attempt that nobody says to have started.
    """
    counts = {number: count for (name, number), count in started(logs).items() if name == job}
    assert max(counts.values(), default=0) <= 1, f"{job}: started twice: {counts}"
    numbers = attempt_numbers(store, job)
    assert set(counts) <= set(range(1, max(numbers) + 1))
    return max(numbers)


def _records(store: JobStore, job: str) -> Iterator[TermRecord | EpochRecord]:
    log = JobLog(store.at(job), job)
    extent = log.slots.extent()
    assert extent.floor == 0, "records were retired; give the job retained_epochs enough"
    for slot in range(extent.next_slot):
        data = log.slots.read(slot)
        assert data is not None, f"slot {slot} is empty"
        decoded = log.decode(slot, data)
        yield decoded if isinstance(decoded, TermRecord) else decoded.record
