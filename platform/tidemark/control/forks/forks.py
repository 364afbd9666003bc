"""Forks: variants of a job that resume from a savepoint and write separate tables, to be compared and then discarded."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.spec_store import change_spec, current_user, read_spec
from tidemark.control.forks.discarding import locations_of_other_jobs, read_discard
from tidemark.control.model.spec import ForkOrigin, JobSpec, SpecGeneration
from tidemark.control.upgrade.code_check import Judge, Maps, judge_code
from tidemark.errors import DefinitionError, NotReachedError, TakenNameError
from tidemark.graph.operators.window.columns import BOUNDS, PANE
from tidemark.locations import Location
from tidemark.names import validate_name
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.delta.row_diff import Earlier, RowDiff, diff_tables
from tidemark.savepoints.delta.table_versions import open_table, savepoint_versions
from tidemark.savepoints.model.isolation import require_disjoint
from tidemark.savepoints.model.restore import Restore, require_uids
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.log.joblog import newest_epoch
from tidemark.state.log.records import EpochRecord, ParentRef
from tidemark.state.store.layout import LOG, job_folder
from tidemark.state.store.store import JobStore

OUTPUTS = "outputs"
"""Default folder of a fork's tables, inside the fork's folder."""


def fork(
    store: JobStore,
    job: str,
    savepoint: str,
    *,
    name: str,
    code: str | None = None,
    definition: str | None = None,
    version: str = "",
    code_paths: tuple[str, ...] | None = None,
    folder: str | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    outputs: str | None = None,
    maps: Maps | None = None,
    start: bool = True,
    by: str = "",
    why: str = "",
    clock: Clock = SYSTEM_CLOCK,
    judge: Judge = judge_code,
) -> SpecGeneration:
    """Submit a fork: it resumes from the savepoint as its job did, and writes to separate tables.

    Its code is checked against the savepoint first; if it is incompatible, nothing is written.

    Args:
        store: the root store.
        job: the job to fork.
        savepoint: a savepoint of that job.
        name: the fork's name.
        code: ``module:name``, or ``path.yaml:name``; the job's own by default.
        definition: of code in YAML what the file says of the job (``job_code``).
        version: a label of its code.
        code_paths: folders, zips and wheels with its code; the job's own by default.
        folder: its driver's working directory; the job's own by default.
        variables: environment variables of its driver, such as its parameters, besides those of the job.
        outputs: the folder of its tables; inside the fork's folder of the store by default.
        maps: renames in its code, and whether state may be dropped; a promotion takes them over.
        start: whether it is started at once.
        by: who requests it.
        why: the reason.
        clock: processing time.
        judge: checks its code against the savepoint.

    Raises:
        UnknownSavepointError: there is no such savepoint.
        DefinitionError: the name is taken, the code is unknown, the map of uids names an operator that is not stored, or the folder of its
            tables overlaps another job's locations.
        CorruptStoreError: the table locations of another job cannot be determined.
        UpgradeError: its code cannot be loaded, or the maps do not match it.
        StateMismatchError: its code is incompatible with the savepoint; every finding is named.
    """
    found = SavepointStore(store, job, clock).get(savepoint)
    validate_name("job", name)
    _require_new(store, name, read_spec(store, name))
    submitted = read_spec(store, job)
    if code is None and submitted is None:
        raise DefinitionError(f"job {job!r} was not submitted, so its code is not known", fix="name it: --code MODULE:JOB", job=job)
    base = submitted.spec if submitted is not None else JobSpec(job, code or "", definition=definition)
    used = (base.code, base.definition) if code is None else (code, definition)
    renamed = maps or Maps()
    require_uids(found, renamed.uids)
    if outputs is not None:
        _require_apart(store, job, found, name, outputs)
    restore = Restore(
        savepoint,
        uids=renamed.uids,
        allow_non_restored_state=renamed.allow_non_restored_state,
        job=job,
        identity=f"fork-{secrets.token_hex(8)}",
        columns=renamed.columns,
    )
    spec = replace(
        base,
        job=name,
        code=used[0],
        definition=used[1],
        # The job's version is a label of its code, and does not apply to other code.
        version=version or (base.version if used == (base.code, base.definition) and code_paths is None else ""),
        code_paths=base.code_paths if code_paths is None else code_paths,
        folder=folder or base.folder,
        variables={**base.variables, **variables},
        wanted="running" if start else "suspended",
        for_rewind=False,
        restarts=0,
        restore=restore,
        forked=ForkOrigin(restore, found.record.lineage, found.record.epoch),
        outputs_root=outputs or str(store.at(name).location.joined(OUTPUTS)),
    )

    def change(newest: SpecGeneration | None) -> JobSpec:
        _require_new(store, name, newest)
        if outputs is not None:
            # Another fork may have got the same location while the code was checked.
            _require_apart(store, job, found, name, outputs)
        return spec

    judge(store, spec, renamed, savepoint, job).require(by_options=True)
    return change_spec(store, name, change, by=by or current_user(), why=why or f"fork of {job} from {savepoint}", clock=clock)


def diff_output(store: JobStore, job: str, other: str, output: str, *, keys: tuple[str, ...] = (), samples: int = 10) -> RowDiff:
    """Compare the tables that two jobs write an output to.

    If one is a fork of the other, rows that the other had at the savepoint are left out, since a fork's tables begin without them.

    Args:
        store: the root store.
        job: one job.
        other: the other one, such as a fork of it.
        output: the output's name, the same in both.
        keys: key columns of the rows; by default those in the job's record.
        samples: for how many keys to show rows.

    Raises:
        NotReachedError: a job has just started, and its table does not exist yet.
        DefinitionError: a job has no such output, or it is not a Delta table.
        SinkError: a table cannot be read, or its content at the savepoint is no longer known.
        UnknownSavepointError: the savepoint that a fork began with was disposed of.
    """
    first, second = (_record(store, name) for name in (job, other))
    before, after = (_location(record, name, output) for record, name in ((first, job), (second, other)))
    earlier = _earlier(store, first, second, output)
    if earlier is None and (found := _earlier(store, second, first, output)) is not None:
        earlier = replace(found, of_second=True)
    return diff_tables(before, after, keys=keys or _keys(first, output, before), samples=samples, earlier=earlier)


def shared_tables(store: JobStore, job: str, other: str) -> tuple[str, ...]:
    """Return the names of the outputs that two jobs both write to Delta tables.

    Raises:
        NotReachedError: a job has just started, and its outputs are not known yet.
        DefinitionError: there is none.
    """
    found = [set(_delta_outputs(_begun(_record(store, name), name))) for name in (job, other)]
    shared = tuple(sorted(set.intersection(*found)))
    if not shared:
        raise DefinitionError(
            f"jobs {job!r} and {other!r} have no output that both write to a table",
            fix="compare jobs of the same outputs, such as a job and its fork",
            job=other,
        )
    return shared


def _earlier(store: JobStore, head: EpochRecord, fork: EpochRecord, output: str) -> Earlier | None:
    """Return the rows of a job's table that a fork began without; None if it is not a fork of the job, or there were none."""
    generation, now = read_spec(store, fork.job), head.outputs[output]
    origin = generation.spec.origin if generation is not None else None
    if origin is None or origin.job != head.job or now.location is None:
        return None
    savepoints = SavepointStore(store, head.job)
    savepoint = savepoints.get(origin.restore.savepoint)
    stored = savepoint.record
    begun = fork.restored is not None and fork.restored.identity == origin.restore.identity
    other = (origin.lineage, origin.epoch) != (stored.lineage, stored.epoch)
    if other if origin.epoch >= 0 else begun and fork.parent != ParentRef(stored.lineage, stored.epoch):
        raise DefinitionError(
            f"savepoint {savepoint.name!r} has been replaced since {fork.job!r} began with it",
            fix="compare the rows written since in SQL, by a column that identifies them",
            job=fork.job,
        )
    later, now_ms = savepoints.lineages_after(stored), savepoints.clock.now_ms()
    version = savepoint_versions(savepoint, {output: now}, later, now_ms=now_ms).get(output)
    table = open_table(output, now.location)
    if version is None or version.location != now.location or table is None or version.table not in (None, str(table.metadata().id)):
        return None
    return Earlier(version.version, upserted=bool(now.row_keys))


def _record(store: JobStore, job: str) -> EpochRecord:
    head = newest_epoch(store, job)
    if head is None and read_spec(store, job) is not None:
        raise _too_early(job, "has not started yet")
    if head is None:
        raise DefinitionError(f"job {job!r} has no epoch yet", fix="run it first", job=job)
    return head


def _location(record: EpochRecord, job: str, output: str) -> str:
    found = _delta_outputs(_begun(record, job))
    if output not in found:
        raise DefinitionError(f"job {job!r} has no table {output!r}", fix=f"name one of its tables: {', '.join(found) or 'none'}", job=job)
    if open_table(output, found[output]) is None:
        raise _too_early(job, f"has no row of output {output!r} yet, so its table does not exist")
    return found[output]


def _begun(record: EpochRecord, job: str) -> EpochRecord:
    if not record.outputs and record.restored is not None:
        raise _too_early(job, f"is still at epoch {record.epoch}, that of savepoint {record.restored.savepoint!r}, which it began with")
    return record


def _delta_outputs(record: EpochRecord) -> dict[str, str]:
    """Return the locations of an epoch's Delta tables by output name, sorted."""
    found = {name: output.location for name, output in sorted(record.outputs.items()) if output.sink == "delta"}
    return {name: location for name, location in found.items() if location is not None}


def _too_early(job: str, what: str) -> NotReachedError:
    return NotReachedError(
        f"job {job!r} {what}, and there is nothing to compare",
        fix=f"compare after it has written rows; `tidemark status {job}` shows the rows of its outputs",
        job=job,
    )


def _keys(record: EpochRecord, output: str, location: str) -> tuple[str, ...]:
    """Return the key columns of an output: those of an upsert, or a window's keys, bounds and pane."""
    if row_keys := record.outputs[output].row_keys:
        return row_keys
    table = open_table(output, location)
    columns = [field.name for field in table.schema().fields] if table is not None else []
    if BOUNDS[0] not in columns:
        return ()
    named = {key.get("name") for state in record.operators.values() for key in _key_entries(state.definition.get("keys"))}
    return tuple(name for name in columns if name in named or name in (*BOUNDS, *PANE))


def _key_entries(keys: object) -> list[dict[str, object]]:
    return [key for key in keys if isinstance(key, dict)] if isinstance(keys, list) else []


def _require_apart(store: JobStore, job: str, savepoint: Savepoint, name: str, outputs: str) -> None:
    head, root = newest_epoch(store, job), Location.parse(outputs)
    names = {*savepoint.record.outputs, *(head.outputs if head is not None else ())}
    require_disjoint(name, sorted(str(root.joined(output)) for output in names), locations_of_other_jobs(store, name))


def _require_new(store: JobStore, name: str, newest: SpecGeneration | None) -> None:
    folder = store.at(job_folder(name))
    if read_discard(folder) is not None:
        raise DefinitionError(f"the discard of a fork {name!r} is not finished", fix=f"finish it: `tidemark discard {name}`", job=name)
    if newest is not None or LOG in folder.folders():
        raise TakenNameError(f"there is a job {name!r} already", fix="use another name, or discard the existing fork", job=name)
