"""A job's status by all that is visible now, not only by what a reconciler last wrote. Pure.

A reconciler may not have seen the end of a driver yet, or none may run. The status is then what one would write, by the same plan.
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
"""A supervisor makes a pass every few seconds, a sensor once a minute: work still undone after this time has no reconciler."""

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
"""The displayed state for each lifecycle state that reconcilers write."""


@dataclass(frozen=True)
class EffectiveStatus:
    """A job's current status.

    Args:
        state: the displayed state, one word.
        lifecycle: the lifecycle state that reconcilers write; ``failing`` if the driver is dead, ``starting`` between two drivers.
        since: since when; None if it was not recorded.
        reason: the reason, as text.
        error: the last error, None while it runs well.
        unrecorded: whether a driver has ended, or never started, and no reconciler has handled it yet.
    """

    state: JobState
    lifecycle: Lifecycle
    since: int | None = None
    reason: str = ""
    error: ErrorInfo | None = None
    unrecorded: bool = False


def effective_status(observation: Observation, now: int) -> EffectiveStatus:
    """Return a job's status at a time in milliseconds."""
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
    what = f"no heartbeat since {format_ms(silent_since)}, and its process cannot be probed from this machine"
    return _dead(observation, replace(written, error=ErrorInfo(DriverLostError.code, f"[{DriverLostError.code}] {what}", transient=True)))


def last_heartbeat_at(observation: Observation) -> int | None:
    """Return the time of a job's last heartbeat or status in milliseconds; None if there was none."""
    signs = [observation.heartbeat.at] if observation.heartbeat is not None else []
    signs += [observation.driver.heartbeat_at] if observation.driver is not None else []
    return max(signs, default=None)


def _written(control: ControlStatus) -> EffectiveStatus:
    return EffectiveStatus(STATES[control.lifecycle], control.lifecycle, control.since, control.reason, control.error)


def _unrecorded_end(spec: SpecGeneration, observation: Observation, now: int) -> EffectiveStatus | None:
    """Return the status that a reconciler would write for a driver that has ended or was never launched; None if neither is so."""
    found = attempt_phase(observation, now)
    if found not in {"ended", "unlaunched"}:
        return None
    says = [action.status for action in plan(spec, observation, now) if isinstance(action, WriteStatus)]
    status = next((item for item in says if item.lifecycle not in ACTIVE), None)
    if status is None and found == "unlaunched":
        return None
    if status is None:
        # It has ended as requested, and another one is about to be started, unless there is no reconciler.
        reason, ended_at = describe_request(spec), last_heartbeat_at(observation)
        if ended_at is not None and now - ended_at < UNWATCHED_MS:
            return EffectiveStatus("starting", "starting", ended_at, reason, unrecorded=True)
        return _dead(observation, EffectiveStatus("dead", "failing", reason=reason))
    if status.lifecycle == "failing":
        return _dead(observation, replace(_written(status), reason=""))
    return replace(_written(status), since=last_heartbeat_at(observation), unrecorded=True)


def _dead(observation: Observation, found: EffectiveStatus) -> EffectiveStatus:
    attempt = observation.attempt
    reason = f"the driver of attempt {attempt.number} has ended, and no other was started" if attempt is not None else ""
    parts = [part for part in (reason, found.reason) if part]
    since = last_heartbeat_at(observation) or (attempt.at if attempt is not None else None)
    return EffectiveStatus("dead", "failing", since, "; ".join(parts), found.error, unrecorded=True)


def _silent_elsewhere(observation: Observation, now: int) -> int | None:
    """Return the last heartbeat of a driver that cannot be probed, if it is so old that the driver counts as dead; else None."""
    beat = observation.current_heartbeat
    if beat is None or observation.process != "unknown" or abs(now - beat.at) < UNWATCHED_MS:
        return None
    return beat.at


def _unsubmitted(observation: Observation, now: int) -> EffectiveStatus:
    """Return the status of a job that ``tidemark run`` or a user's program drives: its driver's, unless that is dead."""
    driver = observation.driver
    if driver is None:
        return EffectiveStatus("created", "created")
    at = last_heartbeat_at(observation)
    error = error_of(driver)
    if driver.state == "running" and (observation.heartbeat_process_gone or at is None or now - at >= DEFAULT_LEASE_MS):
        return EffectiveStatus(
            "dead", "failing", at, "its driver has ended without reporting an error, or sends no heartbeat", error, unrecorded=True
        )
    lifecycles: Mapping[str, Lifecycle] = {"running": "running", "failed": "failed", "finished": "finished", "stopped": "suspended"}
    lifecycle = lifecycles[driver.state]
    return EffectiveStatus(STATES[lifecycle], lifecycle, error=error)


def error_of(driver: JobStatus) -> ErrorInfo | None:
    """Return the error with which a driver failed, None if it did not."""
    if driver.state != "failed" or driver.error is None:
        return None
    return ErrorInfo(driver.error_code or "", driver.error, driver.error_transient)
