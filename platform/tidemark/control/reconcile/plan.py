"""Plans the next actions for a job from its spec, its observation and the time. Pure; the reconciler carries them out.

A plan depends only on the observed state, not on earlier plans: if a reconciler dies between two actions, the next one continues.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tidemark.clock import format_ms
from tidemark.control.desired.spec_checks import KEPT_FAILURES
from tidemark.control.model.records import ControlStatus, ErrorInfo, Failure, Lifecycle, attempt_of
from tidemark.control.model.spec import SpecGeneration, StopMode, describe_request
from tidemark.control.observed.attempt_health import (
    LAUNCH_MS,
    attempt_failure,
    attempt_phase,
    carry_over,
    detect_hang,
    is_confirmed,
    unmanaged_driver,
)
from tidemark.control.observed.observe import Observation
from tidemark.control.reconcile.actions import AbandonAttempt, Action, Kill, LaunchAttempt, PruneAttempts, RequestStop, WriteStatus
from tidemark.control.reconcile.restarts import NoRestart, decide_restart, longest_delay
from tidemark.durations import format_duration
from tidemark.state.encoding.redaction import redacted

KEPT_ATTEMPTS: Final = 100
RESIGNAL_MS: Final = 15_000
"""A driver that is alive this long after the signal to end is signalled again: the process that was to send it may have died before."""

_PRUNE_EVERY: Final = 10
_MAX_MESSAGE: Final = 1_000


def plan(spec: SpecGeneration, observation: Observation, now: int) -> tuple[Action, ...]:
    """Return the next actions; none in the steady state.

    Args:
        spec: the newest generation.
        observation: the job's observation.
        now: processing time, milliseconds.
    """
    case = _Case(spec, observation, now, _status(spec, observation))
    match attempt_phase(observation, now):
        case "none" | "over":
            return _without_driver(case)
        case "unlaunched":
            return _unlaunched(case)
        case "ended":
            return _ended(case)
        case "starting" | "running" as found:
            return _with_driver(case, beating=found == "running")


def after_failure(spec: SpecGeneration, status: ControlStatus, failed: Failure, now: int) -> ControlStatus:
    """Return the status of a job whose attempt failed: ``failing`` with the time of the next start, or ``failed``."""
    failed = replace(failed, message=_stored_text(failed.message))
    failures = (*status.failures, failed)[-KEPT_FAILURES:]
    counted = [*(item for item in failures[:-1] if item.attempt >= status.counted_from), failed]
    verdict = decide_restart(spec.spec.restart, spec.spec.job, counted)
    error = ErrorInfo(failed.code, failed.message, failed.transient)
    if isinstance(verdict, NoRestart):
        reason = f"attempt {failed.attempt} failed, and is not restarted: {verdict.why}"
        return _with_lifecycle(status, "failed", now, failures=failures, error=error, reason=reason, process=None)
    reason = f"attempt {failed.attempt} failed; the next start is due {format_ms(verdict.at)} ({verdict.why})"
    moved = _with_lifecycle(status, "failing", now, failures=failures, error=error, reason=reason, process=None)
    return replace(moved, next_start_at=verdict.at)


@dataclass(frozen=True)
class _Case:
    """The input of one plan. ``status`` is the stored status, or the one that would have been stored."""

    spec: SpecGeneration
    seen: Observation
    now: int
    status: ControlStatus

    @property
    def runs(self) -> bool:
        return self.spec.spec.wanted == "running"

    @property
    def drains(self) -> bool:
        return not self.runs and self.spec.spec.stop == "drain"

    @property
    def changed(self) -> bool:
        """Whether the spec needs another driver than the newest attempt's."""
        attempted = self.seen.attempt_spec
        return attempted is None or self.spec.spec.requires_restart_from(attempted.spec)

    @property
    def last_epoch(self) -> int | None:
        """The published epoch with which the newest attempt ended the input for good; None if there is none."""
        last = self.seen.current_progress
        return last.epoch if last is not None and last.end_of_input else None

    def with_lifecycle(self, lifecycle: Lifecycle, **changes: object) -> ControlStatus:
        return _with_lifecycle(self.status, lifecycle, self.now, generation=self.spec.generation, **changes)

    def write_status(self, status: ControlStatus) -> tuple[Action, ...]:
        return (WriteStatus(status),) if status != self.seen.control else ()


def _status(spec: SpecGeneration, observation: Observation) -> ControlStatus:
    """Return the stored status; if an attempt is newer, the status that the creator of the attempt would have written."""
    control, attempt = observation.control, observation.attempt
    if control is None:
        control = ControlStatus(spec.spec.job, "created", since=spec.at, generation=0)
    if attempt is None or attempt.number <= control.attempt:
        return control
    return _starting(control, attempt.at, attempt=attempt.number, generation=attempt.generation, why=attempt.why)


def _without_driver(case: _Case) -> tuple[Action, ...]:
    """No process, and the end of the last one was handled."""
    status = case.status
    asked_since = status.generation < case.spec.generation
    if status.lifecycle == "failing" and (case.drains or (case.runs and not case.changed)):
        return (
            _start(case, "restart after a failure")
            if _is_due(case)
            else case.write_status(replace(status, generation=case.spec.generation))
        )
    if not case.runs:
        if status.lifecycle == "finished" or (status.lifecycle == "failed" and not asked_since):
            return case.write_status(replace(status, generation=case.spec.generation))
        return case.write_status(case.with_lifecycle("suspended", reason=describe_request(case.spec), next_start_at=None))
    if status.lifecycle in {"failed", "finished"} and not case.changed:
        return case.write_status(replace(status, generation=case.spec.generation))
    return _start(case, describe_request(case.spec))


def _unlaunched(case: _Case) -> tuple[Action, ...]:
    """An attempt without a known process: it is about to be launched, or the process that should launch it has ended."""
    attempt, claim = case.seen.attempt, case.seen.claim
    waited = case.now - (attempt.at if attempt is not None else 0)
    given_up = claim is not None and claim.process is None
    if case.runs and not given_up and abs(waited) < LAUNCH_MS:
        return case.write_status(case.status)
    first: tuple[Action, ...] = () if given_up or attempt is None else (AbandonAttempt(attempt.number),)
    if not case.runs and not case.drains:
        return (*first, WriteStatus(case.with_lifecycle("suspended", reason=describe_request(case.spec), process=None)))
    return (*first, *_failed(case))


def _with_driver(case: _Case, *, beating: bool) -> tuple[Action, ...]:
    """A process that is alive, as far as is known."""
    found = detect_hang(case.spec.spec, case.seen, case.now)
    if found is not None:
        before = case.status.suspicion
        return _handle_suspicion(case, replace(case.status, suspicion=carry_over(before, found)), certain=is_confirmed(before, found))
    case = replace(case, status=replace(case.status, suspicion=None))
    if not case.runs:
        return _stopping(case)
    # A job that was suspended and resumed before its driver had ended gets a new one, too: the driver may have been signalled already.
    if case.changed or case.status.asked is not None:
        return _replacing(case)
    if not beating:
        return case.write_status(case.with_lifecycle("starting"))
    return case.write_status(case.with_lifecycle("running", error=None, reason="", next_start_at=None))


def _handle_suspicion(case: _Case, status: ControlStatus, *, certain: bool) -> tuple[Action, ...]:
    """The driver seems to hang: store the suspicion, and kill the driver if it lasts."""
    suspicion, process = status.suspicion, case.seen.handle
    if not certain or suspicion is None or process is None:
        return case.write_status(status)
    if case.seen.process == "alive":
        return (*case.write_status(status), Kill(suspicion.why, process))
    # A driver without heartbeats whose process cannot be probed: it has ended, or the next one fences it.
    return _ended(replace(case, status=status))


def _stopping(case: _Case) -> tuple[Action, ...]:
    """A driver runs and is to end."""
    spec, process = case.spec.spec, case.seen.handle
    status, asks = _request_stop(case, "draining", spec.stop)
    first = case.write_status(status)
    if process is None:
        return first
    if spec.stop == "now":
        return (*first, Kill("it was cancelled", process))
    if spec.stop == "finish" and _waited(case, status) >= spec.longest_epoch_ms:
        return (*first, Kill(f"it did not end in {format_duration(spec.longest_epoch_ms)} (hang_after_ms)", process))
    # A driver that is to drain reads the spec itself.
    return (*first, RequestStop("finish", process)) if asks else first


def _replacing(case: _Case) -> tuple[Action, ...]:
    """A driver runs, and is to be restarted for a changed spec."""
    attempted, process = case.seen.attempt_spec, case.seen.handle
    upgrade = attempted is not None and case.spec.spec.has_other_code_than(attempted.spec)
    status, asks = _request_stop(case, "upgrading" if upgrade else "draining", "finish")
    first, limit = case.write_status(status), case.spec.spec.longest_epoch_ms
    if process is None:
        return first
    if _waited(case, status) < limit:
        return (*first, RequestStop("finish", process)) if asks else first
    if case.seen.process == "alive":
        return (*first, Kill(f"it did not end in {format_duration(limit)} (hang_after_ms)", process))
    return _start(
        replace(case, status=status), f"{describe_request(case.spec)}; the driver on {process.host!r} cannot be reached", takeover=True
    )


def _request_stop(case: _Case, lifecycle: Lifecycle, how: StopMode) -> tuple[ControlStatus, bool]:
    """Return the status of a job whose driver is asked to end, and whether to send it the signal now.

    Signals may be repeated, since a driver ends once; so a signal that may not have been sent is sent again.
    """
    status, now = case.status, case.now
    before = status.asked
    again = how == before == "finish" and _needs_another_signal(case)
    if before is not None and status.generation == case.spec.generation:
        # If the clock was set back, the wait counts from the new time.
        asked_at = min(status.asked_at if status.asked_at is not None else now, now)
        return replace(status, asked_at=asked_at, told_at=now if again else status.told_at), again
    first = how == "finish" and before != "finish"
    at = now if first or before is None else status.asked_at
    asked = before if before == "finish" and how == "drain" else how
    told_at = now if first or again else status.told_at
    return case.with_lifecycle(lifecycle, reason=describe_request(case.spec), asked_at=at, asked=asked, told_at=told_at), first or again


def _needs_another_signal(case: _Case) -> bool:
    """Return whether a driver that was asked to finish may have missed the signal; False once it is to be killed."""
    status = case.status
    signalled_at = status.told_at if status.told_at is not None else status.asked_at
    signalled = signalled_at is not None and abs(case.now - signalled_at) < RESIGNAL_MS
    return case.seen.process == "alive" and not signalled and _waited(case, status) < case.spec.spec.longest_epoch_ms


def _waited(case: _Case, status: ControlStatus) -> int:
    return case.now - (status.asked_at if status.asked_at is not None else case.now)


def _ended(case: _Case) -> tuple[Action, ...]:
    """The attempt's process has ended."""
    asked = case.status.asked
    epoch = case.last_epoch
    if epoch is not None:
        reason = f"its input has ended for good, with epoch {epoch}"
        return case.write_status(case.with_lifecycle("finished", reason=reason, process=None, error=None, next_start_at=None))
    if not case.runs and not case.drains:
        return case.write_status(
            case.with_lifecycle("suspended", reason=describe_request(case.spec), process=None, error=_last_error(case))
        )
    if (case.runs and asked is not None) or (case.drains and asked == "finish"):
        return _start(case, describe_request(case.spec))
    return _failed(case)


def _failed(case: _Case) -> tuple[Action, ...]:
    status = replace(case.status, generation=case.spec.generation)
    return (WriteStatus(after_failure(case.spec, status, attempt_failure(case.seen, case.status, case.now), case.now)),)


def _start(case: _Case, why: str, *, takeover: bool = False) -> tuple[Action, ...]:
    """Start the next attempt, unless a driver without an attempt has the job."""
    unmanaged = unmanaged_driver(case.seen, case.now)
    if unmanaged is not None and case.seen.heartbeat is not None and attempt_of(case.seen.heartbeat.owner) is None:
        reason = f"it is driven by {unmanaged}, which has no attempt; it is started when that ends"
        return case.write_status(replace(case.status, reason=reason))
    status = case.status
    seen = case.seen.attempt
    number = max(status.attempt, seen.number if seen is not None else 0) + 1
    if case.changed:
        status = replace(status, counted_from=number)  # failures of other code or settings do not count
    elif status.lifecycle == "failing":
        status = replace(status, restarts_done=status.restarts_done + 1)
    starting = _starting(status, case.now, attempt=number, generation=case.spec.generation, why=why)
    # A driver that still sends heartbeats was handled as ended: killed, or unreachable. The next term fences it.
    start = LaunchAttempt(number, why, takeover or unmanaged is not None or case.seen.process == "unknown", starting)
    clean = (PruneAttempts(number - KEPT_ATTEMPTS),) if number % _PRUNE_EVERY == 0 and number > KEPT_ATTEMPTS else ()
    return (start, *clean)


def _starting(status: ControlStatus, now: int, *, attempt: int, generation: int, why: str) -> ControlStatus:
    moved = _with_lifecycle(status, "starting", now, generation=generation, attempt=attempt, process=None, reason=why, next_start_at=None)
    return replace(moved, since=now, asked_at=None, asked=None, told_at=None, suspicion=None)


def _with_lifecycle(status: ControlStatus, lifecycle: Lifecycle, now: int, **changes: object) -> ControlStatus:
    """Return the status with another lifecycle; fields of the previous one are reset."""
    if lifecycle != status.lifecycle:
        status = replace(status, lifecycle=lifecycle, since=now, suspicion=None)
        if lifecycle not in {"draining", "upgrading"}:
            status = replace(status, asked_at=None, asked=None, told_at=None)
    return replace(status, **changes)  # type: ignore[arg-type]  # the callers name fields with their types


def _is_due(case: _Case) -> bool:
    """Return whether a failing job's restart is due; also if the clock was set back, so that it is further off than any delay."""
    at = case.status.next_start_at
    return at is None or case.now >= at or at - case.now > longest_delay(case.spec.spec.restart)


def _last_error(case: _Case) -> ErrorInfo | None:
    driver = case.seen.current_driver_status
    if driver is None or driver.state != "failed" or driver.error_code is None:
        return None
    return ErrorInfo(driver.error_code, _stored_text(driver.error or ""), driver.error_transient)


def _stored_text(text: str) -> str:
    text = redacted(text)
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE - 1]}…"
