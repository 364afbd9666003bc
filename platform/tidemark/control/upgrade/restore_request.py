"""Requests that a submitted job is restored from a savepoint: its state and positions, not its tables."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.spec_store import change_spec, current_user, require_spec
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.model.upgrade_records import require_spec_unheld
from tidemark.control.upgrade.code_check import Judge, Maps, judge_code
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Mode, Restore, require_uids
from tidemark.savepoints.model.restore_history import is_restore_due
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class RestoreRequest:
    """A restore of a submitted job. A rewind reverts the tables, too; after a restore, rows of later epochs are written again.

    Args:
        job: the job's name.
        savepoint: the savepoint's name.
        key: identifies the request: the same key restores once, however often it is requested.
        savepoint_of: the job whose savepoint it is; empty for the same.
        maps: renames in the job's code, and whether state may be dropped.
        mode: whether the savepoint stays.
        parallelism: shuffle partitions from then on; None leaves them.
    """

    job: str
    savepoint: str
    key: str
    savepoint_of: str = ""
    maps: Maps = field(default_factory=Maps)
    mode: Mode = "no-claim"
    parallelism: int | None = None


@dataclass(frozen=True)
class RequestedRestore:
    """The generation of the job's spec that has the restore; ``is_due`` is false if it was made before for the same key."""

    generation: SpecGeneration
    is_due: bool


def request_restore(
    store: JobStore, request: RestoreRequest, *, by: str = "", why: str = "", clock: Clock = SYSTEM_CLOCK, judge: Judge = judge_code
) -> RequestedRestore:
    """Write a restore into a job's spec; its driver is restarted for it.

    Args:
        store: the root store.
        request: the restore.
        by: who requests it; ``user@host`` by default.
        why: the reason.
        clock: processing time.
        judge: checks the job's code against the savepoint.

    Raises:
        UnknownJobError: the job was never submitted.
        UnknownSavepointError: there is no such savepoint.
        DefinitionError: the map of uids names an operator that is not stored.
        StateMismatchError: the job's code is incompatible with the savepoint; every finding is named.
        UpgradeError: an upgrade of the job is under way, and would overwrite the restore.
    """
    spec = require_spec(store, request.job).spec
    found = SavepointStore(store, request.savepoint_of or request.job, clock).get(request.savepoint)
    require_uids(found, request.maps.uids)
    restore = Restore(
        found.name,
        uids=request.maps.uids,
        allow_non_restored_state=request.maps.allow_non_restored_state,
        mode=request.mode,
        job=request.savepoint_of,
        identity=_identity(request.key, found.name, found.taken_at),
        columns=request.maps.columns,
    )
    if not is_restore_due(SavepointStore(store, request.job, clock).folder, None, restore):
        return RequestedRestore(require_spec(store, request.job), is_due=False)
    again = f"request the restore from {found.name} again"
    require_spec_unheld(store, request.job, again, also_watched=True)
    judge(store, spec, request.maps, found.name, found.job).require()

    def change(newest: SpecGeneration | None) -> JobSpec:
        now = (newest or require_spec(store, request.job)).spec
        require_spec_unheld(store, request.job, again, also_watched=True)
        return replace(now, restore=restore, parallelism=request.parallelism or now.parallelism)

    made = change_spec(store, request.job, change, by=by or current_user(), why=why or f"restore from {found.name}", clock=clock)
    return RequestedRestore(made, is_due=True)


def _identity(key: str, savepoint: str, taken_at: int) -> str:
    return f"restore-{hashlib.sha256(f'{key}/{savepoint}/{taken_at}'.encode()).hexdigest()[:16]}"
