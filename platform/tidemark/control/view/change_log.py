"""Who changed what of a job: its spec, steps of upgrades, other requests; its autoscaler's advice, starts and failures of its drivers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from tidemark.control.autoscaler.autoscaler import ACTOR
from tidemark.control.desired.attempts import attempt_numbers, read_attempt
from tidemark.control.desired.request_log import read_requests
from tidemark.control.desired.spec_store import read_generations
from tidemark.control.model.autoscaler_records import ScalingDecision, read_newest_record
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.upgrade_records import Step, read_newest_steps
from tidemark.control.observed.observe import read_control_status
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.store import JobStore

ChangeKind = Literal["asked", "advised", "started", "failed", "upgrade", "request"]
"""``asked``: a generation of the spec. ``advised``: a recommendation of the autoscaler. ``started``, ``failed``: an attempt to
run a driver. ``upgrade``: a step of an upgrade. ``request``: another request, such as a savepoint or a rewind."""

_SHOWN_STEPS: Final[frozenset[Step]] = frozenset(("stopping", "accepting", "reverting", "done", "rolled-back"))
"""How an upgrade began, what was decided, and how it ended; the steps in between follow from these."""


@dataclass(frozen=True)
class Change:
    """One event: its time (milliseconds), kind, author and text; ``number`` counts the events of its kind."""

    at: int
    kind: ChangeKind
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
    steps = (step for step in read_newest_steps(root, job, limit) if step.step in _SHOWN_STEPS)
    found += [Change(item.at, "upgrade", item.number, item.by, str(item)) for item in steps]
    found += [
        Change(item.at, "request", item.number, item.by, item.what + (f": {item.why}" if item.why else ""))
        for item in read_requests(root, job, limit)
    ]
    return tuple(sorted(found, key=lambda change: change.at)[-limit:])


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
