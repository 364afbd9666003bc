"""Promoting a fork: its code takes the job's place, in the job's own tables.

A fork's tables hold results from its savepoint on only, and its state goes with them. So neither is moved: the job goes back to the
savepoint that the fork began with, state and tables, and the fork's code reads the same input again. No row is lost or doubled, and what
went before the savepoint stays. It is an upgrade with all that belongs to one: a savepoint, probation, and a way back.
"""

from __future__ import annotations

from tidemark.control.generations import read_spec, require_spec
from tidemark.control.spec import JobSpec
from tidemark.control.upgrade_request import UpgradeRequest
from tidemark.control.upgrade_verdict import Maps
from tidemark.errors import UpgradeError
from tidemark.state.store import JobStore


def promotion_of(store: JobStore, fork: str, *, good_epochs: int = 3, within_ms: int = 300_000) -> UpgradeRequest:
    """Return the upgrade by which a fork's code takes the place of that of the job that it is a fork of.

    Args:
        store: the root store.
        fork: the fork's name; it may run, and is left as it is.
        good_epochs: so many epochs its code has to commit in the job's place.
        within_ms: how long it has for that.

    Raises:
        UnknownJobError: there is no such job.
        UpgradeError: it is no fork.
    """
    spec = require_spec(store, fork).spec
    restore = spec.restore
    if restore is None or not restore.job or spec.outputs_root is None:
        raise UpgradeError(f"job {fork!r} is no fork", fix="name a fork that `tidemark fork` made", job=fork)
    return UpgradeRequest(
        restore.job,
        spec.code,
        version=_version(store, spec, restore.job),
        code_paths=spec.code_paths,
        folder=spec.folder,
        variables=spec.variables,
        maps=Maps(restore.uids, restore.columns, restore.allow_non_restored_state),
        good_epochs=good_epochs,
        within_ms=within_ms,
        back_to=restore.savepoint,
    )


def _version(store: JobStore, spec: JobSpec, job: str) -> str:
    """Return the label of a fork's code: its own, not that which it took over from the job, whose code was another."""
    submitted = read_spec(store, job)
    if submitted is None or submitted.spec.code == spec.code:
        return spec.version
    return spec.version if spec.version != submitted.spec.version else ""
