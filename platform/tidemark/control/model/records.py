"""The control plane's records of a job besides its spec: attempts, claims, leases, and the status that reconcilers write.

Times are milliseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tidemark.control.model.spec import StopMode
from tidemark.state.encoding.codec import added_field
from tidemark.state.log.records import OwnerInfo

Lifecycle = Literal["created", "starting", "running", "draining", "suspended", "failing", "failed", "finished", "upgrading"]
"""``created``: submitted, never started. ``draining``: a driver was asked to end. ``upgrading``: the same, to restart with other code;
in a view, also that an upgrade is under way. ``failing``: a driver failed and will be restarted. ``failed``: it will not be restarted
until requested. ``finished``: the input has ended for good."""

ACTIVE: frozenset[Lifecycle] = frozenset(("starting", "running", "draining", "upgrading"))
"""In these a driver's process may be alive, and its end was not handled yet."""

ATTEMPT_RUN = "attempt-"


@dataclass(frozen=True)
class ProcessHandle:
    """Identifies a driver's process to its launcher.

    ``started`` is the start token of the process (``state.owners``), empty where unknown. ``pid`` is None where only the
    cluster knows the process, by ``application``. ``log`` is the path of its log on ``host``.
    """

    launcher: str
    host: str
    pid: int | None = None
    application: str | None = None
    started: str = ""
    log: str | None = None


@dataclass(frozen=True)
class ErrorInfo:
    """An error: its code (``TM…``), its message, and whether it is transient."""

    code: str
    message: str
    transient: bool


@dataclass(frozen=True)
class Failure:
    """One failed attempt: when the failure was seen, the epoch that was running, if any, and the error. ``started_at`` is the attempt's.

    ``committed`` is the job's newest committed epoch at that time, -1 before the first, None if unknown.
    """

    at: int
    attempt: int
    started_at: int
    epoch: int | None
    code: str
    message: str
    transient: bool
    committed: int | None = added_field(None)


@dataclass(frozen=True)
class Suspicion:
    """A driver that seems to hang, and since when; ``sign`` is its progress at that time, and a change of it clears the suspicion.

    One observation is not enough: after a clock jump or a suspended machine every heartbeat looks old once.
    """

    since: int
    sign: int
    why: str


@dataclass(frozen=True)
class ControlStatus:
    """A job as reconcilers last saw it, and what they are about to do; written before the action.

    Args:
        job: the job's name.
        lifecycle: its lifecycle state.
        since: when it entered that state.
        generation: generation of the spec that was acted on.
        attempt: the newest attempt that was handled, 0 before the first.
        process: that attempt's process, if known.
        failures: the newest ones, oldest first.
        next_start_at: when a failing job is restarted.
        restarts_done: how many times it was restarted after failures.
        reason: the reason of its state, as text.
        error: the last failure's error; None once it runs again.
        asked_at: when its driver was asked to end.
        asked: how; ``finish`` means that it is sent a signal.
        suspicion: that its driver hangs.
        counted_from: the first attempt whose failures count for the restart policy; earlier ones had another spec.
        told_at: when that signal was last sent; it is sent again after a time, since the writer may have died before sending it.
    """

    job: str
    lifecycle: Lifecycle
    since: int
    generation: int
    attempt: int = 0
    process: ProcessHandle | None = None
    failures: tuple[Failure, ...] = ()
    next_start_at: int | None = None
    restarts_done: int = 0
    reason: str = ""
    error: ErrorInfo | None = None
    asked_at: int | None = None
    suspicion: Suspicion | None = None
    counted_from: int = 0
    asked: StopMode | None = None
    told_at: int | None = added_field(None)


@dataclass(frozen=True)
class Attempt:
    """The right to launch a driver once, held by the process that creates the record; numbers count from 1.

    ``takeover`` lets the driver take the job from one whose heartbeat may still look alive.
    """

    number: int
    generation: int
    at: int
    by: str
    why: str
    takeover: bool = False

    @property
    def run_id(self) -> str:
        """The run id that its driver writes to heartbeat and status."""
        return f"{ATTEMPT_RUN}{self.number}"


@dataclass(frozen=True)
class Claim:
    """The one process that may run an attempt. Without a ``process`` a reconciler abandoned the attempt: no process may run it."""

    attempt: int
    at: int
    by: str
    process: ProcessHandle | None = None


@dataclass(frozen=True)
class DriverStart:
    """The start of an attempt's driver: its stage, empty once it is done, since when, and the duration of stages in milliseconds.

    ``at`` is the attempt's. Spark starts in parallel to other stages, so the durations can add up to more than the whole start.
    """

    attempt: int
    at: int
    stage: str
    since: int
    took: Mapping[str, int]


@dataclass(frozen=True)
class DriverWarning:
    """A feature that the driver of an attempt runs without; the record exists as long as that lasts."""

    attempt: int
    at: int
    text: str


@dataclass(frozen=True)
class Lease:
    """A lease: its holder acts on a job until ``until``; the next number ends or renews it.

    ``owner`` is the holder's process, so that others on its machine see when it has ended; None if an earlier release wrote it.
    """

    number: int
    holder: str
    until: int
    owner: OwnerInfo | None = added_field(None)  # noqa: RUF009 - it returns a field

    @property
    def holder_text(self) -> str:
        """The holder as text, with its process."""
        return self.holder + (f" (process {self.owner.pid} on host {self.owner.host!r})" if self.owner is not None else "")


def attempt_of(owner: OwnerInfo | None) -> int | None:
    """Return the number of the attempt that a driver's process runs, None for a driver without an attempt."""
    number = owner.run_id.removeprefix(ATTEMPT_RUN) if owner is not None and owner.run_id.startswith(ATTEMPT_RUN) else ""
    return int(number) if number.isdecimal() else None
