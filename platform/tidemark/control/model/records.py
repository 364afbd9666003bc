"""What the control plane keeps of a job besides its spec: attempts, claims, leases, and the status that reconcilers write.

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
"""``created``: submitted, never started. ``draining``: a driver was asked to end. ``upgrading``: the same, to be started with other
code; of a view, also that an upgrade is under way. ``failing``: a driver failed and will be started again. ``failed``: it will not, until
somebody asks. ``finished``: the input has ended for good."""

ACTIVE: frozenset[Lifecycle] = frozenset(("starting", "running", "draining", "upgrading"))
"""In these a driver's process may be alive, and its end has not been dealt with."""

ATTEMPT_RUN = "attempt-"


@dataclass(frozen=True)
class ProcessHandle:
    """A driver's process, as its launcher finds it again.

    ``started`` is the token of the process's birth (``state.owners``), empty where unknown. ``pid`` is None where only the
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
    """An error: its code (``TM…``), its message, and whether trying again can help."""

    code: str
    message: str
    transient: bool


@dataclass(frozen=True)
class Failure:
    """One failed attempt: when it was seen, the running epoch if there was one, and the error. ``started_at`` is the attempt's.

    ``committed`` is the job's newest committed epoch by then, -1 before the first, None where it was not known.
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
    """A driver that seems to hang, since it was first seen so; ``sign`` is what it showed then, and clears it when it changes.

    One look is not enough: a clock that jumped, or a machine that slept, makes every heartbeat look old once.
    """

    since: int
    sign: int
    why: str


@dataclass(frozen=True)
class ControlStatus:
    """A job as reconcilers last saw it, and what they are about to do; written before the act.

    Args:
        job: the job's name.
        lifecycle: where it is.
        since: from when on.
        generation: of the spec that was acted on.
        attempt: the newest attempt dealt with, 0 before the first.
        process: of that attempt, where known.
        failures: the newest ones, oldest first.
        next_start_at: when a failing job is started again.
        restarts_done: how many times it was started again after failures.
        reason: why it is in that state, as text.
        error: the last failure's; None once it runs again.
        asked_at: when its driver was asked to end.
        asked: how; ``finish`` means that it is sent a signal.
        suspicion: that its driver hangs.
        counted_from: the first attempt whose failures count for the restart policy; those before are of another spec.
        told_at: when it was last sent that signal; it is sent again after a while, since who wrote this may have died before the act.
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
    """The right to launch a driver once, given to who creates the record; numbers count from 1.

    ``takeover`` lets the driver take the job from one whose heartbeat may look alive still.
    """

    number: int
    generation: int
    at: int
    by: str
    why: str
    takeover: bool = False

    @property
    def run_id(self) -> str:
        """The name that its driver gives itself in heartbeat and status."""
        return f"{ATTEMPT_RUN}{self.number}"


@dataclass(frozen=True)
class Claim:
    """The one process that may run an attempt. Without a ``process`` a reconciler abandoned the attempt: no process may run it any more."""

    attempt: int
    at: int
    by: str
    process: ProcessHandle | None = None


@dataclass(frozen=True)
class DriverStart:
    """How far the start of an attempt's driver is: its stage, empty once it is done, since when, and what stages took, milliseconds.

    ``at`` is the attempt's. Spark starts beside other stages, so what they took can be more than the start as a whole.
    """

    attempt: int
    at: int
    stage: str
    since: int
    took: Mapping[str, int]


@dataclass(frozen=True)
class DriverWarning:
    """What the driver of an attempt has to do without, though the job goes on; it is there as long as that is so."""

    attempt: int
    at: int
    text: str


@dataclass(frozen=True)
class Lease:
    """A reconciler's word that it acts on a job until then; the next number ends or renews it.

    ``owner`` is the holder's process, so that others on its machine see when it has died; None where an earlier release wrote it.
    """

    number: int
    holder: str
    until: int
    owner: OwnerInfo | None = added_field(None)  # noqa: RUF009 - it returns a field

    @property
    def holder_text(self) -> str:
        """Who holds it, as text."""
        return self.holder + (f" (process {self.owner.pid} on host {self.owner.host!r})" if self.owner is not None else "")


def attempt_of(owner: OwnerInfo | None) -> int | None:
    """Return the number of the attempt that a driver's process runs, None for a driver that no attempt started."""
    number = owner.run_id.removeprefix(ATTEMPT_RUN) if owner is not None and owner.run_id.startswith(ATTEMPT_RUN) else ""
    return int(number) if number.isdecimal() else None
