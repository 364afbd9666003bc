"""What an observation says of the newest attempt: where it stands, what ended it, what looks wrong with it. Pure."""

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
"""A driver that looks dead is taken for dead when it still does after so long: two and a half heartbeats."""

LAUNCH_MS: Final = 60_000
"""An attempt without a known process after so long was never launched: its launching reconciler has died."""

LINGER_MS: Final = 60_000
"""A process that lives so long after its driver has ended hangs."""

_EXIT_MEANINGS: Final = {
    64: "which means an error that does not pass by itself; see its log",
    70: "which means that another driver took the job over",
    75: "which means an error that may pass; see its log",
}
_TRANSIENT_EXITS: Final = frozenset((70, 75))
"""What a driver's exit codes say, where it could not say so in its status."""

_ENVIRONMENT: Final = frozenset(("TM301", "TM400", "TM410"))
"""Codes of errors that say nothing of the epoch they came in: a place that cannot be reached, another driver."""

AttemptPhase = Literal["none", "over", "unlaunched", "starting", "running", "ended"]
"""``over``: ended, and dealt with. ``unlaunched``: no process of it is known. ``ended``: not dealt with yet."""


def attempt_phase(observation: Observation, now: int) -> AttemptPhase:
    """Return where the newest attempt stands."""
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
    """Return what looks wrong with a driver that should be alive, None when all is well.

    ``since`` is now; whether it has lasted follows from comparing ``sign`` with that of the suspicion written down before.
    """
    attempt, beat, driver = observation.attempt, observation.current_heartbeat, observation.current_driver_status
    if attempt is None:
        return None
    # By its distance, here and below: what is of the future is as good as old, until it shows that only the clocks differ.
    if driver is not None and driver.state != "running" and abs(now - driver.heartbeat_at) >= LINGER_MS:
        return Suspicion(now, driver.heartbeat_at, f"its driver has ended ({driver.state}), but its process lives on")
    if beat is None:
        if now - attempt.at < spec.start_timeout_ms:
            return None
        why = f"it gave no sign of life for {format_duration(spec.start_timeout_ms)} after its launch (start_timeout_ms)"
        return Suspicion(now, attempt.number, why)
    if abs(now - beat.at) >= DEFAULT_LEASE_MS:
        return Suspicion(now, beat.at, f"there is no heartbeat since {format_ms(beat.at)}")
    if beat.busy_since is not None and _busy_ms(beat, beat.busy_since) >= spec.longest_epoch_ms:
        limit = format_duration(spec.longest_epoch_ms)
        return Suspicion(
            now, beat.busy_since, f"an epoch has been running since {format_ms(beat.busy_since)}, longer than {limit} (hang_after_ms)"
        )
    return None


def _busy_ms(beat: Heartbeat, since: int) -> int:
    return beat.busy_ms if beat.busy_ms is not None else beat.at - since


def is_confirmed(before: Suspicion | None, found: Suspicion) -> bool:
    """Say whether what looks wrong has looked the same for long enough."""
    return before is not None and before.sign == found.sign and found.since - before.since >= CONFIRM_MS


def carry_over(before: Suspicion | None, found: Suspicion) -> Suspicion:
    """Return the suspicion to write down: the one before where it is still the same, and the clock was not set back since."""
    return before if before is not None and before.sign == found.sign and before.since <= found.since else found


def attempt_failure(observation: Observation, control: ControlStatus, now: int) -> Failure:
    """Return what went wrong with an attempt that ended, or never began, without having been asked to."""
    attempt, driver = observation.attempt, observation.current_driver_status
    number, started_at = (attempt.number, attempt.at) if attempt is not None else (0, now)
    committed = _committed(observation)
    if driver is not None and driver.state == "failed" and driver.error_code is not None:
        epoch = None if driver.error_code in _ENVIRONMENT else driver.error_epoch
        return Failure(now, number, started_at, epoch, driver.error_code, driver.error or "", driver.error_transient, committed)
    epoch = None
    if observation.handle is None:
        code, what = LaunchError.code, "it was never launched: the reconciler that was to do so has died"
    elif control.suspicion is not None:
        code, what = DriverLostError.code, f"its process ended, after this was seen: {control.suspicion.why}"
        epoch = _epoch_in_progress(observation)
    elif driver is not None and driver.state == "stopped":
        code = DriverLostError.code
        what = "its driver stopped, though it was not asked to, or before all was drained; a machine that shuts down does that"
    else:
        code, what = DriverLostError.code, f"its process ended without a word{_exit_text(observation.exit_code)}"
        epoch = _epoch_in_progress(observation)
    return Failure(now, number, started_at, epoch, code, what, not _is_terminal_exit(observation.exit_code), committed)


def unmanaged_driver(observation: Observation, now: int) -> str | None:
    """Return who drives the job though no attempt started it, such as ``tidemark run``; None if no such driver runs."""
    beat = observation.heartbeat
    if beat is None or observation.heartbeat_process_gone or beat.released or abs(now - beat.at) >= DEFAULT_LEASE_MS:
        return None
    return f"process {beat.owner.pid} on host {beat.owner.host!r}"


def _committed(observation: Observation) -> int | None:
    """Return the job's newest epoch as the last driver that wrote its status knew it, -1 before the first; None where it is not known."""
    driver = observation.driver
    # One that failed before it began, and found no status or a damaged one, wrote neither an epoch nor the job's sources.
    if driver is None or (driver.last is None and driver.sources is None):
        return None
    return driver.last.epoch if driver.last is not None else -1


def _has_released(observation: Observation, now: int) -> bool:
    """Say whether a driver that cannot be asked has given the job up; one that is to drain does so for a moment before it drains."""
    beat, driver, spec = observation.current_heartbeat, observation.current_driver_status, observation.generation
    if beat is None or not beat.released:
        return False
    drains = spec is not None and spec.spec.wanted == "suspended" and spec.spec.stop == "drain"
    return not drains or (driver is not None and driver.state != "stopped") or abs(now - beat.at) >= DEFAULT_LEASE_MS


def _epoch_in_progress(observation: Observation) -> int | None:
    """Return the epoch that a driver was at when it last gave a sign of life, None if it was at none, or that is not known."""
    beat, committed = observation.current_heartbeat, _committed(observation)
    return committed + 1 if beat is not None and beat.busy_since is not None and committed is not None else None


def _is_terminal_exit(code: int | None) -> bool:
    """Say whether a driver's exit code means that trying again is of no use; above 128 it was a signal."""
    return code is not None and 64 <= code < 128 and code not in _TRANSIENT_EXITS


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    if code < 0 or code > 128:
        return f", killed by signal {-code if code < 0 else code - 128}"
    return f", exit code {code}" + (f", {_EXIT_MEANINGS[code]}" if code in _EXIT_MEANINGS else "")
