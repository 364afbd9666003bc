"""Promotes a fork: the job is upgraded to the fork's code, in the job's own tables.

A fork's tables have results only from its savepoint on, and its state belongs to them. So neither is moved: the job is rewound to the
savepoint that the fork began with, state and tables, and the fork's code reads the same input again. No row is lost or duplicated, and
results before the savepoint stay. It is a complete upgrade, with a savepoint, probation and rollback.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.control.desired.spec_store import read_spec, require_spec
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Maps
from tidemark.control.upgrade.upgrade_request import UpgradeRequest
from tidemark.errors import UpgradeError
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store.store import JobStore


def promotion_of(
    store: JobStore, fork: str, *, version: str = "", good_epochs: int = 3, within_ms: int = 300_000, checks: tuple[str, ...] = ()
) -> UpgradeRequest:
    """Return the upgrade of a job to its fork's code.

    Args:
        store: the root store.
        fork: the fork's name; it may run, and is not changed.
        version: a label of its code; the fork's version by default.
        good_epochs: epochs that the code must commit in the job.
        within_ms: the time for that, and for the checks, in milliseconds.
        checks: names of checks that must pass in that time.

    Raises:
        UnknownJobError: there is no such job.
        UpgradeError: it is not a fork, or its savepoint has been replaced since.
        UnknownSavepointError: its savepoint was disposed of.
    """
    spec = require_spec(store, fork).spec
    origin = spec.origin
    if origin is None:
        raise UpgradeError(f"job {fork!r} is not a fork", fix="name a fork that `tidemark fork` made", job=fork)
    restore = _with_renames_since(origin.restore, spec.restore)
    found = SavepointStore(store, restore.job).get(restore.savepoint).record
    if origin.epoch >= 0 and (found.lineage, found.epoch) != (origin.lineage, origin.epoch):
        raise UpgradeError(
            f"savepoint {restore.savepoint!r} of job {restore.job!r} has been replaced since {fork!r} began with it",
            fix=f"upgrade the job to the fork's code from a savepoint of your choice: `tidemark upgrade {restore.job} --code {spec.code} "
            "--from SAVEPOINT`",
            job=restore.job,
            epoch=origin.epoch,
        )
    return UpgradeRequest(
        restore.job,
        spec.code,
        version=version or _version(store, spec, restore.job),
        code_paths=spec.code_paths,
        folder=spec.folder,
        variables=spec.variables,
        maps=Maps(restore.uids, restore.columns, restore.allow_non_restored_state),
        good_epochs=good_epochs,
        within_ms=within_ms,
        checks=checks,
        back_to=restore.savepoint,
        definition=spec.definition,
    )


def _with_renames_since(began: Restore, now: Restore | None) -> Restore:
    """Return the restore that a fork began with, with the renames of the fork's own later upgrades."""
    if now is None or now.identity == began.identity:
        return began
    uids = {old: now.uids.get(new, new) for old, new in began.uids.items()}
    uids |= {old: new for old, new in now.uids.items() if old not in began.uids.values()}
    columns = {now.uids.get(uid, uid): dict(names) for uid, names in began.columns.items()}
    for uid, names in now.columns.items():
        earlier = columns.get(uid, {})
        chained = {old: names.get(new, new) if new is not None else None for old, new in earlier.items()}
        columns[uid] = {**chained, **{old: new for old, new in names.items() if old not in earlier.values()}}
    return replace(
        began,
        uids=uids,
        columns=columns,
        allow_non_restored_state=began.allow_non_restored_state or now.allow_non_restored_state,
    )


def _version(store: JobStore, spec: JobSpec, job: str) -> str:
    """Return the version of a fork's code; empty if it was only inherited from the job, whose code differs."""
    submitted = read_spec(store, job)
    if submitted is None or (submitted.spec.code, submitted.spec.definition) == (spec.code, spec.definition):
        return spec.version
    return spec.version if spec.version != submitted.spec.version else ""
