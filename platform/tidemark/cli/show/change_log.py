"""Changes of a job's spec, advice of its autoscaler, starts and failures of its drivers, in one list ordered by time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from tidemark.clock import format_ms
from tidemark.control.autoscaler.autoscaler import ACTOR
from tidemark.control.desired.attempts import attempt_numbers, read_attempt
from tidemark.control.desired.spec_store import read_generations
from tidemark.control.model.autoscaler_records import ScalingDecision, read_newest_record
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.observed.observe import read_control_status
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class Change:
    """One event: its time (milliseconds), kind (``asked``, ``advised``, ``started``, ``failed``), author and text.

    ``number`` is the generation's, or the attempt's.
    """

    at: int
    kind: str
    number: int
    by: str
    what: str


def changes_of(root: JobStore, job: str, limit: int) -> tuple[Change, ...]:
    """Return the newest events of a job, oldest first."""
    generations = read_generations(root, job, limit + 1)
    earlier: list[SpecGeneration | None] = [None, *generations]
    found = [
        Change(item.at, "asked", item.generation, item.by, _asked(before.spec if before is not None else None, item))
        for before, item in zip(earlier, generations, strict=False)
    ]
    found += [Change(made.at, "advised", made.generation, ACTOR, f"{made.text}: {made.reason}") for made in _advice(root, job)]
    attempts = (read_attempt(root, job, number) for number in attempt_numbers(root, job)[-limit:])
    found += [
        Change(item.at, "started", item.number, item.by, item.why + (", taking over" if item.takeover else ""))
        for item in attempts
        if item is not None
    ]
    status = read_control_status(root, job)
    failures = status.failures if status is not None else ()
    found += [Change(item.at, "failed", item.attempt, "", f"{item.code}: {item.message}") for item in failures]
    return tuple(sorted(found, key=lambda change: change.at)[-limit:])


def changes_text(changes: Sequence[Change]) -> str:
    """Return events as lines."""
    words: Mapping[str, str] = {"asked": "generation", "advised": "generation", "started": "attempt", "failed": "attempt"}
    lines = [(format_ms(item.at), f"{words[item.kind]} {item.number} {item.kind}", item.by, item.what) for item in changes]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "\n".join("  ".join((*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[3])) for line in lines)


def _advice(root: JobStore, job: str) -> Sequence[ScalingDecision]:
    """Return the recommendations of the job's autoscaler; what it wrote into the spec is among the generations."""
    record = read_newest_record(root, job)
    return [made for made in record.decisions if made.kind == "advised"] if record is not None else []


def _asked(before: JobSpec | None, made: SpecGeneration) -> str:
    """Return why a generation was made, and the fields that it changed."""
    if before is None:
        return made.why
    changed = list(_changes(before, made.spec))
    return f"{made.why}: {', '.join(changed)}" if changed else made.why


def _changes(before: JobSpec | AutoscalerSettings, after: JobSpec | AutoscalerSettings, prefix: str = "") -> Iterator[str]:
    for item in fields(before):
        old, new = getattr(before, item.name), getattr(after, item.name)
        if isinstance(old, AutoscalerSettings):
            yield from _changes(old, new, f"{item.name}.")
        elif old != new:
            yield f"{prefix}{item.name} {_shown(old)} -> {_shown(new)}"


def _shown(value: object) -> str:
    text = str(to_jsonable(value))
    return text if len(text) <= 60 else f"{text[:59]}…"
