"""Advice for a job that no reconciler acts on: what the user has to do, with the command for it. Pure."""

from __future__ import annotations

import shlex

from tidemark.control.model.view import Health
from tidemark.control.reconcile.effective_status import EffectiveStatus


def advice_for(job: str, status: EffectiveStatus, health: Health, *, submitted: bool, store: str | None) -> str:
    """Return what to do next, empty if a reconciler acts on the job or nothing is wrong.

    Args:
        job: its name.
        status: its effective status.
        health: its health.
        submitted: whether it has a spec; a job that runs in a user's program is started there.
        store: the root store's URI if the commands need it, else None.
    """
    given = f" --store {shlex.quote(store)}" if store is not None else ""
    start = f"`tidemark start {job}{given}`"
    if status.state == "failed":
        return f"it is not restarted: correct what the error names, then {start}" if submitted else ""
    if not submitted:
        return "it is not restarted: run it again with the same command" if status.state == "dead" else ""
    if status.state != "dead" and health != "unwatched":
        return ""
    who = "no supervisor is running" if health == "unwatched" else "no supervisor has acted on it yet"
    return f"{who}: `tidemark supervise{given}` restarts it, or {start}"
