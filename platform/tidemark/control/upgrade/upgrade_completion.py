"""After the end of an upgrade: starts the driver of the job's code, and reports the result."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.control.client.waiting import Waiting
from tidemark.control.desired.spec_store import read_spec
from tidemark.control.model.upgrade_records import UpgradeStep
from tidemark.control.model.view import JobView
from tidemark.errors import TidemarkError
from tidemark.state.store.store import JobStore


def ensure_driver_started(
    store: JobStore, end: UpgradeStep, waiting: Waiting, *, timeout_ms: int, on_progress: Callable[[str], None]
) -> None:
    """Start the job's driver, if its spec says so, and wait until it runs; errors are reported as progress, not raised.

    Called after the end is recorded, also by later processes; reports nothing if a driver runs already.

    Args:
        store: the root store.
        end: the upgrade's last record.
        waiting: waits for the job.
        timeout_ms: how long to wait at most.
        on_progress: called with texts.
    """
    job = end.upgrade.job
    newest = read_spec(store, job)
    if newest is None:
        return
    if newest.spec.wanted == "suspended":
        if end.step == "rolled-back":
            on_progress(f"{job} stays suspended, {_why_suspended(end)}; to start it: `tidemark start {job}`")
        return
    shown: list[JobView] = []

    def show(view: JobView) -> None:
        # A driver that runs already is not reported.
        if shown or view.driver_lifecycle != "running":
            on_progress(f"{job}: {view.state}" + (f", epoch {view.epoch}" if view.epoch is not None else ""))
        shown.append(view)

    try:
        view = waiting.until(job, "running", generation=newest.generation, timeout_ms=timeout_ms, on_progress=show)
    except TidemarkError as error:
        on_progress(str(error))
        return
    show(view)
    if view.driver_lifecycle == "failed":
        on_progress(f"{job} does not run: {view.error.message if view.error is not None else view.reason}")


def _why_suspended(end: UpgradeStep) -> str:
    if end.stopped:
        return "since it was stopped during the upgrade"
    return "as it was before the upgrade" if end.upgrade.before.wanted == "suspended" else "since it was stopped"
