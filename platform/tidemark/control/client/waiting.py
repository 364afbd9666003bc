"""Waits until a request to a job is fulfilled, and reconciles that job in the meantime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.model.launcher import Launcher
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation, Observer
from tidemark.control.reconcile.reconciler import Reconciler
from tidemark.control.view.view_builder import view_of
from tidemark.durations import format_duration
from tidemark.errors import NotReachedError
from tidemark.state.store.store import JobStore

Goal = Literal["working", "running", "ended"]
"""``working``: a driver has published an epoch, or has polled its sources and found no input. ``running``: a driver sends heartbeats,
which it does before it evaluates the job's first expression. ``ended``: no driver is left."""

POLL_SECONDS: Final = 0.25
_RECONCILE_SECONDS: Final = 0.5


class Waiting:
    """Waits for jobs of a store.

    Args:
        store: the root store.
        launchers: by name.
        clock: processing time.
    """

    def __init__(self, store: JobStore, launchers: Mapping[str, Launcher], clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._observer = Observer(store, launchers)
        self._reconciler = Reconciler(store, launchers, clock)

    def until(
        self, job: str, goal: Goal, *, generation: int, timeout_ms: int, on_progress: Callable[[JobView], None] | None = None
    ) -> JobView:
        """Wait until a job has reached the goal with a generation of its spec, or has failed; reconciles it while waiting.

        Args:
            job: its name.
            goal: the goal.
            generation: the generation of the request; a newer one counts as well.
            timeout_ms: how long to wait at most.
            on_progress: called when state, reason or epoch change, but not with the final view, which is returned.

        Raises:
            NotReachedError: the timeout expired; the request stays in effect.
            TidemarkError: the job's files cannot be read.
        """
        begun, reconciled_at, shown = self._clock.monotonic(), None, None
        while True:
            now = self._clock.monotonic()
            if reconciled_at is None or now - reconciled_at >= _RECONCILE_SECONDS:
                reconciled_at = now
                errors = self._reconciler.reconcile_all([job]).errors
                if job in errors:
                    raise errors[job]
            seen = self._observer.observe(job)
            view = view_of(seen, self._clock.now_ms())
            if reached(seen, goal, generation):
                return view
            if view.state == "running" and goal == "working":
                view = replace(view, reason="its first epoch is not published yet")
            line = (view.state, view.reason, view.epoch)
            # An end that no reconciler has handled yet is returned by one of the next passes, and reported then.
            if on_progress is not None and line != shown and view.state not in {"stopped", "finished", "failed"}:
                shown = line
                on_progress(view)
            if now - begun >= timeout_ms / 1000:
                error = f"; its last error: {view.error.message}" if view.error is not None else ""
                raise NotReachedError(
                    f"job {job!r} is {view.state} after {format_duration(timeout_ms)}, and not yet {goal}{error}",
                    fix="watch it with `tidemark top`, or see `tidemark logs`; the request stays in effect",
                    job=job,
                )
            self._clock.sleep(POLL_SECONDS)


def shortfall(view: JobView, goal: Goal) -> str | None:
    """Return why a job did not reach a goal, as text: it failed, or does not run although it should; None if it did."""
    if view.driver_lifecycle == "finished" and goal != "ended":
        back = f"`tidemark rewind {view.job} --to SAVEPOINT`"
        return (
            f"{view.job} does not run: {view.reason}. Fix: nothing, if all is read; to continue, rewind it to before that end ({back}), "
            "or give the job another name"
        )
    if view.driver_lifecycle == "failed" or (goal != "ended" and view.driver_lifecycle == "finished"):
        return view.error.message if view.error is not None else f"{view.job} does not run: {view.reason}"
    return None


def reached(seen: Observation, goal: Goal, generation: int) -> bool:
    """Return whether a job has reached a generation's goal, or cannot reach it any more."""
    control = seen.control
    if control is None or control.generation < generation:
        return False
    if control.lifecycle in {"failed", "finished"}:
        return True
    if control.lifecycle == "suspended":
        # As requested, or another request has stopped it in between.
        return goal == "ended" or (seen.generation is not None and seen.generation.spec.wanted == "suspended")
    return control.lifecycle == "running" and (goal == "running" or (goal == "working" and has_started(seen)))


def has_started(seen: Observation) -> bool:
    """Return whether the newest attempt's driver works: it has published an epoch, or has polled its sources and found no input.

    Most errors in a job's code and locations show only with its first epoch.
    """
    driver, beat = seen.current_driver_status, seen.current_heartbeat
    if driver is not None and driver.state == "running" and driver.load is not None:
        return True
    return beat is not None and not beat.released and beat.looked_at is not None and beat.busy_since is None
