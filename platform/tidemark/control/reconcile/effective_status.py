"""Where a job is by all that can be seen when somebody asks, not only by what a reconciler last wrote. Pure.

A reconciler may not have seen the end of a driver yet, or none may run. What is read then is what one would write: the same plan says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidemark.clock import format_ms
from tidemark.control.model.records import ACTIVE, ControlStatus, ErrorInfo, Lifecycle
from tidemark.control.model.spec import SpecGeneration, describe_request
from tidemark.control.model.view import JobState
from tidemark.control.observed.attempt_health import attempt_phase
from tidemark.control.observed.observe import Observation
from tidemark.control.reconcile.actions import WriteStatus
from tidemark.control.reconcile.plan import plan
from tidemark.errors import DriverLostError
from tidemark.state.log.joblog import DEFAULT_LEASE_MS
from tidemark.state.status.status import JobStatus

UNWATCHED_MS: Final = 60_000
"""A supervisor looks every few seconds, a sensor once a minute: what is still undone after so long, nobody is doing."""

STATES: Final[Mapping[Lifecycle, JobState]] = {
    "created": "created",
    "starting": "starting",
    "running": "running",
    "draining": "draining",
    "upgrading": "upgrading",
    "suspended": "stopped",
    "failing": "failing",
    "failed": "failed",
    "finished": "finished",
}
"""The words that people read for those that reconcilers write."""


@dataclass(frozen=True)
class EffectiveStatus:
    """Where a job is.

    Args:
        state: in one word, for people.
        lifecycle: the same in the words that reconcilers write; of a driver that is dead, ``failing``.
        since: from when on; None where nobody wrote it down.
        reason: why, for people.
        error: the last one, None when it runs well.
        unrecorded: whether a driver has ended, or never came, and no reconciler has dealt with it yet.
    """

    state: JobState
    lifecycle: Lifecycle
    since: int | None = None
    reason: str = ""
    error: ErrorInfo | None = None
    unrecorded: bool = False


def effective_status(observation: Observation, now: int) -> EffectiveStatus:
    """Return where a job is at a time, milliseconds."""
    spec = observation.generation
    if spec is None:
        return _unsubmitted(observation, now)
    control = observation.control
    if control is not None:
        written = _written(control)
    else:
        written = EffectiveStatus("stopped", "suspended") if spec.spec.wanted == "suspended" else EffectiveStatus("created", "created")
    end = _unrecorded_end(spec, observation, now)
    if end is not None:
        return end
    if observation.control is None or observation.control.lifecycle not in ACTIVE:
        return written
    silent_since = _silent_elsewhere(observation, now)
    if silent_since is None:
        return written
    what = f"there is no heartbeat since {format_ms(silent_since)}, and its machine cannot be asked from here"
    return _dead(observation, replace(written, error=ErrorInfo(DriverLostError.code, f"[{DriverLostError.code}] {what}", transient=True)))


def last_heartbeat_at(observation: Observation) -> int | None:
    """Return when a job's driver last gave a sign of life, milliseconds; None where none ever did."""
    signs = [observation.heartbeat.at] if observation.heartbeat is not None else []
    signs += [observation.driver.heartbeat_at] if observation.driver is not None else []
    return max(signs, default=None)


def _written(control: ControlStatus) -> EffectiveStatus:
    return EffectiveStatus(STATES[control.lifecycle], control.lifecycle, control.since, control.reason, control.error)


def _unrecorded_end(spec: SpecGeneration, observation: Observation, now: int) -> EffectiveStatus | None:
    """Return what a reconciler would write of a driver that has ended, or that nobody launched; None where there is no such thing."""
    found = attempt_phase(observation, now)
    if found not in {"ended", "unlaunched"}:
        return None
    says = [action.status for action in plan(spec, observation, now) if isinstance(action, WriteStatus)]
    status = next((item for item in says if item.lifecycle not in ACTIVE), None)
    if status is None:
        # Nobody launched it yet, or it has ended as it was to, and another is to be started.
        return None if found == "unlaunched" else _dead(observation, EffectiveStatus("dead", "failing", reason=describe_request(spec)))
    if status.lifecycle == "failing":
        return _dead(observation, replace(_written(status), reason=""))
    return replace(_written(status), since=last_heartbeat_at(observation), unrecorded=True)


def _dead(observation: Observation, found: EffectiveStatus) -> EffectiveStatus:
    attempt = observation.attempt
    reason = f"the driver of attempt {attempt.number} has ended, and none was started since" if attempt is not None else ""
    parts = [part for part in (reason, found.reason) if part]
    since = last_heartbeat_at(observation) or (attempt.at if attempt is not None else None)
    return EffectiveStatus("dead", "failing", since, "; ".join(parts), found.error, unrecorded=True)


def _silent_elsewhere(observation: Observation, now: int) -> int | None:
    """Return since when a driver that cannot be asked has been silent for so long that it must be taken for dead; else None."""
    beat = observation.current_heartbeat
    if beat is None or observation.process != "unknown" or abs(now - beat.at) < UNWATCHED_MS:
        return None
    return beat.at


def _unsubmitted(observation: Observation, now: int) -> EffectiveStatus:
    """Return where a job is that ``tidemark run`` or a program of the user's drives: as its driver says, unless that is dead."""
    driver = observation.driver
    if driver is None:
        return EffectiveStatus("created", "created")
    at = last_heartbeat_at(observation)
    error = error_of(driver)
    if driver.state == "running" and (observation.heartbeat_process_gone or at is None or now - at >= DEFAULT_LEASE_MS):
        return EffectiveStatus(
            "dead", "failing", at, "its driver has ended without a word, or gives no sign of life", error, unrecorded=True
        )
    lifecycles: Mapping[str, Lifecycle] = {"running": "running", "failed": "failed", "finished": "finished", "stopped": "suspended"}
    lifecycle = lifecycles[driver.state]
    return EffectiveStatus(STATES[lifecycle], lifecycle, error=error)


def error_of(driver: JobStatus) -> ErrorInfo | None:
    """Return the error that a driver says it failed with, None where it did not."""
    if driver.state != "failed" or driver.error is None:
        return None
    return ErrorInfo(driver.error_code or "", driver.error, driver.error_transient)
