"""What somebody has to do for a job that nobody acts on, with the command that does it. Pure."""

from __future__ import annotations

import shlex

from tidemark.control.model.view import Health
from tidemark.control.reconcile.effective_status import EffectiveStatus


def advice_for(job: str, status: EffectiveStatus, health: Health, *, submitted: bool, store: str | None) -> str:
    """Return what to do next, empty where a reconciler sees to it, or all is well.

    Args:
        job: its name.
        status: where it is.
        health: how that is to be taken.
        submitted: whether it has a spec; who runs a job in a program of their own starts it there.
        store: the root store's address, where the commands need it.
    """
    given = f" --store {shlex.quote(store)}" if store is not None else ""
    start = f"`tidemark start {job}{given}`"
    if status.state == "failed":
        return f"nothing starts it again: correct what the error names, then {start}" if submitted else ""
    if not submitted:
        return "nothing starts it again: give the command that ran it once more" if status.state == "dead" else ""
    if status.state != "dead" and health != "unwatched":
        return ""
    who = "no supervisor is running" if health == "unwatched" else "no supervisor has acted on it yet"
    return f"{who}: `tidemark supervise{given}` restarts it, or {start}"
