"""A restore request, and the first record of the lineage that it begins. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Literal, get_args

from tidemark.errors import DefinitionError, StateMismatchError
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.names import is_blank
from tidemark.savepoints.model.offset_log_sources import offset_log_sources, without_sources
from tidemark.savepoints.model.restore_words import LEAVE_BEHIND, by_restore
from tidemark.savepoints.model.savepoint import Savepoint
from tidemark.state.log.offset_log import positions
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, OutputRecord, ParentRef, RestoreRef, SourceLogRef, row_keys_option
from tidemark.state.log.totals import Totals

Mode = Literal["no-claim", "claim"]
"""Whether the savepoint keeps its owner, or the restored job claims it and disposes of it later."""


@checked_methods("__init__")
@dataclass(frozen=True)
class Restore:
    """Resume a job from a savepoint: under a new lineage, with the savepoint's state and positions.

    Its outputs stay as they are; ``rewind`` reverts them, too.

    Args:
        savepoint: its name.
        uids: operators whose state another one takes over, ``{old: new}``.
        allow_non_restored_state: skip state and positions that nothing in the job claims; otherwise they are an error, which lists them.
        mode: ``no-claim``: the savepoint stays. ``claim``: it is disposed of once the job's retained epochs are all newer.
        job: the job that owns the savepoint; by default the restored job itself.
        identity: the restore's unique name, so that it is made once however often a driver starts; without one, each run makes it again.
        columns: new names of keys, aggregates and stream columns by old ones, for each uid of the job's operators,
            ``{uid: {old: new}}``; None for an aggregate whose state is dropped.
    """

    savepoint: str
    uids: Mapping[str, str] = field(default_factory=dict)
    allow_non_restored_state: bool = False
    mode: Mode = "no-claim"
    job: str = ""
    identity: str = ""
    columns: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the types of the fields.

        Raises:
            DefinitionError: one is of another type.
        """
        if is_blank(self.savepoint):
            raise _not_a(f"savepoint={self.savepoint!r}", "the name of a savepoint", "tm.Restore('before-friday')")
        if not _is_map(self.uids, str):
            raise _not_a(f"uids={self.uids!r}", "a dict of new uids by old ones", "uids={'hourly': 'per-hour'}")
        if not _is_map(self.columns, Mapping) or not all(_is_map(names, str | None) for names in self.columns.values()):
            raise _not_a(
                f"columns={self.columns!r}", "a dict of new names by old ones for each uid", "columns={'hourly': {'total': 'sum'}}"
            )
        if self.mode not in get_args(Mode):
            raise _not_a(f"mode={self.mode!r}", "'no-claim' or 'claim'", "mode='claim', or leave it out")
        if not isinstance(self.allow_non_restored_state, bool):
            raise _not_a(f"allow_non_restored_state={self.allow_non_restored_state!r}", "true or false", "allow_non_restored_state=True")


@dataclass(frozen=True)
class RestoreTargets:
    """The operators and sources of a job that can claim stored state and positions."""

    operators: Collection[str]
    sources: Collection[str]


def restored_record(
    savepoint: Savepoint, restore: Restore, *, job: str, term: int, lineage: str, targets: RestoreTargets | None = None
) -> EpochRecord:
    """Return the first record of a lineage: the savepoint's epoch again, with nothing for the outputs.

    Files that lie with another job are named with it.

    Args:
        savepoint: the savepoint to restore.
        restore: the request, with its identity.
        job: the job that is restored.
        term: its driver's.
        lineage: the new lineage's token.
        targets: the job's operators and sources; None if they are not known yet, and the next start checks them.

    Raises:
        DefinitionError: the map of uids names an operator that does not exist.
        StateMismatchError: state or positions belong to nothing in the job, and ``allow_non_restored_state`` is not set.
    """
    # Loaded on this call: a spec holds requests, and commands and drivers that restore nothing start in half of the time without all kinds.
    from tidemark.graph.operators.registry import stored_state

    stored = savepoint.record
    require_uids(savepoint, restore.uids, targets)
    names = {uid: restore.uids.get(uid, uid) for uid in stored.operators}
    kept_uids = {old: new for old, new in names.items() if targets is None or new in targets.operators}
    unread = set() if targets is None else {*offset_log_sources(stored.offsets), *stored.sources} - set(targets.sources)
    lost = sorted(uid for uid in set(names) - set(kept_uids) if stored_state(stored.operators[uid].definition))
    # A source that never had input has no position to lose.
    missed = sorted(unread & set(positions(stored.offsets)))
    if (lost or missed) and not restore.allow_non_restored_state:
        raise _not_restored(savepoint, job, lost, missed, targets)
    progress = _without_activity(stored.progress, kept_uids, unread)
    return replace(
        stored,
        job=job,
        lineage=lineage,
        parent=ParentRef(stored.lineage, stored.epoch),
        term=term,
        offsets=without_sources(stored.offsets, unread),
        progress=replace(progress, job=job, lineage=lineage),
        source_logs={name: log for name, log in stored.source_logs.items() if name not in unread},
        sources={name: state for name, state in stored.sources.items() if name not in unread},
        topics={name: ids for name, ids in stored.topics.items() if name not in unread},
        operators={new: _relocated(stored.operators[old], savepoint.job, job) for old, new in kept_uids.items()},
        outputs=_emptied(stored.outputs) if savepoint.job == job else {},
        totals=_renamed(stored.totals, names),
        restored=RestoreRef(restore.identity, savepoint.job, savepoint.name, dict(restore.uids), dict(restore.columns)),
    )


def require_uids(savepoint: Savepoint, uids: Mapping[str, str], targets: RestoreTargets | None = None) -> None:
    """Make sure that a map of uids names existing operators, and maps no two to the same one.

    Args:
        savepoint: the one whose operators stand on the left.
        uids: new ones by stored ones.
        targets: the job's operators and sources; None if they are not known yet.

    Raises:
        DefinitionError: it does not.
    """
    stored = savepoint.record.operators
    for old, new in uids.items():
        if old not in stored:
            raise DefinitionError(
                f"uids= maps {old!r}, and savepoint {savepoint.name!r} has no such operator{_similar(old, stored)}",
                fix=f"name one that it has: {', '.join(sorted(stored)) or 'none'}",
                job=savepoint.job,
                uid=old,
            )
        if targets is not None and new not in targets.operators:
            raise DefinitionError(
                f"uids= maps {old!r} to {new!r}, and the job has no such operator{_similar(new, targets.operators)}",
                fix=f"name one that it has: {', '.join(sorted(targets.operators)) or 'none'}",
                job=savepoint.job,
                uid=new,
            )
    taken = [uids.get(uid, uid) for uid in stored]
    twice = sorted({uid for uid in taken if taken.count(uid) > 1})
    if twice:
        raise DefinitionError(
            f"two operators' state would go to {', '.join(twice)}",
            fix="map the state that has that uid now to another operator of the job, too; or, to drop it, give the job's operator "
            "a uid without stored state, map the other state to that, and set allow_non_restored_state=True "
            "(--allow-non-restored-state)",
            job=savepoint.job,
        )


def _is_map(value: object, of: type | UnionType) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) and isinstance(each, of) for name, each in value.items())


def _not_a(given: str, wanted: str, example: str) -> DefinitionError:
    return DefinitionError(f"tm.Restore({given}) is not {wanted}", fix=f"write {example}", place=call_site())


def with_source_logs(record: EpochRecord, logs: Mapping[str, SourceLogRef]) -> EpochRecord:
    """Return a record with other copies of the sources' logs."""
    return replace(record, source_logs=dict(logs))


def _emptied(outputs: Mapping[str, OutputRecord]) -> dict[str, OutputRecord]:
    """Return outputs without files, so that an epoch adds nothing to them; their locations and the keys of upserts stay."""
    return {name: OutputRecord(each.sink, each.location, options=row_keys_option(each.row_keys)) for name, each in outputs.items()}


def _relocated(state: OperatorState, owner: str, job: str) -> OperatorState:
    """Return the state with each file's owning job set, as seen from another job."""

    def owner_of(file_owner: str) -> str:
        home = file_owner or owner
        return "" if home == job else home

    return replace(state, files=tuple(replace(file, owner=owner_of(file.owner)) for file in state.files))


def _similar(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _not_restored(savepoint: Savepoint, job: str, lost: list[str], unread: list[str], targets: RestoreTargets | None) -> StateMismatchError:
    stored = savepoint.record
    rows = {uid: sum(file.rows for file in stored.operators[uid].files) for uid in lost}
    parts = [f"state of {uid!r} ({count:,} rows)" for uid, count in rows.items()] + [f"the position of source {name!r}" for name in unread]
    new = sorted(set(targets.operators) - set(stored.operators)) if targets is not None else []
    old, now = (lost[0], new[0]) if lost and new else ("OLD", "NEW")
    hint = by_restore(f"uids={{{old!r}: {now!r}}}", f"--map {old}={now}")
    return StateMismatchError(
        f"savepoint {savepoint.name!r} has state or positions that nothing in the job claims: {', '.join(parts)}",
        fix=f"map it to its new operator ({hint}), or drop it: {LEAVE_BEHIND}; "
        "it is lost then, and a source that was renamed is read from its beginning",
        job=job,
        epoch=stored.epoch,
    )


def _without_activity(progress: EpochProgress, uids: Mapping[str, str], unread: Collection[str]) -> EpochProgress:
    """Return the progress of an epoch in which nothing was read or written; watermarks and sizes stay."""
    sources = {
        name: replace(
            source,
            rows_read=0,
            rows_passed=0,
            rows_malformed=0,
            splits={split: replace(state, rows=0) for split, state in source.splits.items()},
        )
        for name, source in progress.sources.items()
        if name not in unread
    }
    operators = {
        uids[uid]: replace(
            operator,
            rows_in=0,
            rows_accepted=0,
            rows_late=0,
            panes_on_time=0,
            panes_late=0,
            panes_early=0,
            windows_closed=0,
            late_windows=(),
            refired_windows=(),
            counters=dict.fromkeys(operator.counters, 0),
            timers_fired=0,
            state_expired=0,
            keys_emptied=0,
            keys_expired=0,
            expired={},
        )
        for uid, operator in progress.operators.items()
        if uid in uids
    }
    return replace(
        progress,
        duration_ms=0,
        rows_in=0,
        rows_out=0,
        sources=sources,
        filters={},
        operators=operators,
        outputs={},
        stages={},
        spark_jobs=0,
    )


def _renamed(totals: Totals, names: Mapping[str, str]) -> Totals:
    found: Totals = {**totals, "operators": {names.get(uid, uid): counts for uid, counts in totals["operators"].items()}}
    if "late" in totals:
        found["late"] = {names.get(uid, uid): rows for uid, rows in totals["late"].items()}
    return found
