"""The newest attempt's health, from an observation: its phase, why it ended, whether it seems to hang. Pure."""

from __future__ import annotations

from typing import Final, Literal

from tidemark.clock import format_ms
from tidemark.control.model.records import ACTIVE, ControlStatus, Failure, Suspicion
from tidemark.control.model.spec import JobSpec
from tidemark.control.observed.observe import Observation
from tidemark.durations import format_duration
from tidemark.errors import DriverLostError, LaunchError
from tidemark.state.log.heartbeat import Heartbeat
from tidemark.state.log.joblog import DEFAULT_LEASE_MS

CONFIRM_MS: Final = 15_000
"""A driver that looks dead counts as dead if it still does after this time: two and a half heartbeats."""

LAUNCH_MS: Final = 60_000
"""An attempt without a known process after this time was never launched: the process that should launch it has ended."""

LINGER_MS: Final = 60_000
"""A process that is alive this long after its driver has ended hangs."""

_EXIT_MEANINGS: Final = {
    64: "which means a permanent error; see its log",
    70: "which means that another driver took the job over",
    75: "which means a transient error; see its log",
}
_TRANSIENT_EXITS: Final = frozenset((70, 75))
"""Exit codes of transient errors, for drivers that could not write their status."""

_ENVIRONMENT: Final = frozenset(("TM301", "TM400", "TM410"))
"""Codes of errors that do not depend on the epoch in which they occurred: an unreachable store or table, another driver."""

AttemptPhase = Literal["none", "over", "unlaunched", "starting", "running", "ended"]
"""``over``: ended, and handled. ``unlaunched``: no process of it is known. ``ended``: ended, and not handled yet."""


def attempt_phase(observation: Observation, now: int) -> AttemptPhase:
    """Return the newest attempt's phase at a time in milliseconds."""
    attempt, control = observation.attempt, observation.control
    if attempt is None:
        return "none"
    if control is not None and control.attempt >= attempt.number and control.lifecycle not in ACTIVE:
        return "over"
    beat = observation.current_heartbeat
    if observation.process == "gone" or (observation.process == "unknown" and _has_released(observation, now)):
        return "ended"
    if observation.handle is None:
        return "unlaunched"
    return "starting" if beat is None else "running"


def detect_hang(spec: JobSpec, observation: Observation, now: int) -> Suspicion | None:
    """Return why a driver that should be alive seems to hang, None if it does not.

    ``since`` is now; whether the suspicion has lasted follows from comparing ``sign`` with that of the stored suspicion.
    """
    attempt, beat, driver = observation.attempt, observation.current_heartbeat, observation.current_driver_status
    if attempt is None:
        return None
    # abs(), here and below: a time in the future counts as old, unless newer ones show that only the clocks differ.
    if driver is not None and driver.state != "running" and abs(now - driver.heartbeat_at) >= LINGER_MS:
        return Suspicion(now, driver.heartbeat_at, f"its driver has ended ({driver.state}), but its process is still alive")
    if beat is None:
        if now - attempt.at < spec.start_timeout_ms:
            return None
        why = f"no heartbeat within {format_duration(spec.start_timeout_ms)} after its launch (start_timeout_ms)"
        return Suspicion(now, attempt.number, why)
    if abs(now - beat.at) >= DEFAULT_LEASE_MS:
        return Suspicion(now, beat.at, f"no heartbeat since {format_ms(beat.at)}")
    if beat.busy_since is not None and _busy_ms(beat, beat.busy_since) >= spec.longest_epoch_ms:
        limit = format_duration(spec.longest_epoch_ms)
        return Suspicion(
            now, beat.busy_since, f"an epoch has been running since {format_ms(beat.busy_since)}, longer than {limit} (hang_after_ms)"
        )
    return None


def _busy_ms(beat: Heartbeat, since: int) -> int:
    return beat.busy_ms if beat.busy_ms is not None else beat.at - since


def is_confirmed(before: Suspicion | None, found: Suspicion) -> bool:
    """Return whether a suspicion has lasted without change for ``CONFIRM_MS``."""
    return before is not None and before.sign == found.sign and found.since - before.since >= CONFIRM_MS


def carry_over(before: Suspicion | None, found: Suspicion) -> Suspicion:
    """Return the suspicion to store: the previous one if nothing changed and the clock was not set back since, else the new one."""
    return before if before is not None and before.sign == found.sign and before.since <= found.since else found


def attempt_failure(observation: Observation, control: ControlStatus, now: int) -> Failure:
    """Return the failure of an attempt that ended, or never started, without having been asked to."""
    attempt, driver = observation.attempt, observation.current_driver_status
    number, started_at = (attempt.number, attempt.at) if attempt is not None else (0, now)
    committed = _committed(observation)
    if driver is not None and driver.state == "failed" and driver.error_code is not None:
        epoch = None if driver.error_code in _ENVIRONMENT else driver.error_epoch
        return Failure(now, number, started_at, epoch, driver.error_code, driver.error or "", driver.error_transient, committed)
    epoch = None
    if observation.handle is None:
        code, what = LaunchError.code, "it was never launched: the process that should launch it has ended"
    elif control.suspicion is not None:
        code, what = DriverLostError.code, f"its process ended, after this was seen: {control.suspicion.why}"
        epoch = _epoch_in_progress(observation)
    elif driver is not None and driver.state == "stopped":
        code = DriverLostError.code
        what = "its driver stopped without a request, or before all was drained, such as when the machine shuts down"
    else:
        code, what = DriverLostError.code, f"its process ended without reporting an error{_exit_text(observation.exit_code)}"
        epoch = _epoch_in_progress(observation)
    return Failure(now, number, started_at, epoch, code, what, not _is_terminal_exit(observation.exit_code), committed)


def unmanaged_driver(observation: Observation, now: int) -> str | None:
    """Return the process that drives the job without an attempt, such as ``tidemark run``; None if there is none."""
    beat = observation.heartbeat
    if beat is None or observation.heartbeat_process_gone or beat.released or abs(now - beat.at) >= DEFAULT_LEASE_MS:
        return None
    return f"process {beat.owner.pid} on host {beat.owner.host!r}"


def _committed(observation: Observation) -> int | None:
    """Return the job's newest epoch by the last driver's status, -1 before the first; None if unknown."""
    driver = observation.driver
    # A driver that failed before its run, with no status or a damaged one before it, wrote neither an epoch nor sources.
    if driver is None or (driver.last is None and driver.sources is None):
        return None
    return driver.last.epoch if driver.last is not None else -1


def _has_released(observation: Observation, now: int) -> bool:
    """Return whether a driver that cannot be probed has released the job; one that is to drain does so briefly before it drains."""
    beat, driver, spec = observation.current_heartbeat, observation.current_driver_status, observation.generation
    if beat is None or not beat.released:
        return False
    drains = spec is not None and spec.spec.wanted == "suspended" and spec.spec.stop == "drain"
    return not drains or (driver is not None and driver.state != "stopped") or abs(now - beat.at) >= DEFAULT_LEASE_MS


def _epoch_in_progress(observation: Observation) -> int | None:
    """Return the epoch that a driver was running at its last heartbeat, None if it was idle, or that is unknown."""
    beat, committed = observation.current_heartbeat, _committed(observation)
    return committed + 1 if beat is not None and beat.busy_since is not None and committed is not None else None


def _is_terminal_exit(code: int | None) -> bool:
    """Return whether a driver's exit code means a permanent error; above 128 it was a signal."""
    return code is not None and 64 <= code < 128 and code not in _TRANSIENT_EXITS


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    if code < 0 or code > 128:
        return f", killed by signal {-code if code < 0 else code - 128}"
    return f", exit code {code}" + (f", {_EXIT_MEANINGS[code]}" if code in _EXIT_MEANINGS else "")
