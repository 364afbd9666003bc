"""What a restore is asked to do, and the record that a lineage begins with because of it. Pure."""

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
from tidemark.state.log.records import EpochRecord, OperatorState, OutputRecord, ParentRef, RestoreRef, SourceLogRef
from tidemark.state.log.totals import Totals

Mode = Literal["no-claim", "claim"]
"""Whether the savepoint goes on belonging to whom it did, or to the job that is restored from it, which then disposes of it."""


@checked_methods("__init__")
@dataclass(frozen=True)
class Restore:
    """A job goes on from a savepoint: under a new lineage, with the savepoint's state and positions.

    Its outputs stay as they are; ``rewind`` puts them back, too.

    Args:
        savepoint: its name.
        uids: operators whose state another one takes over, ``{old: new}``.
        allow_non_restored_state: leave out state and positions that nothing in the job claims; else that is an error which lists them.
        mode: ``no-claim``: the savepoint stays. ``claim``: it is disposed of once the job's retained epochs are all newer.
        job: whose savepoint it is; the job's own by default.
        identity: the restore's own name, so that it is made once however often a driver starts; without one, each run makes it anew.
        columns: of the job's operators by uid, new names of keys, aggregates and columns of the stream by old ones,
            ``{uid: {old: new}}``; None for an aggregate whose state is left behind.
    """

    savepoint: str
    uids: Mapping[str, str] = field(default_factory=dict)
    allow_non_restored_state: bool = False
    mode: Mode = "no-claim"
    job: str = ""
    identity: str = ""
    columns: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what it was given.

        Raises:
            DefinitionError: it is of another type.
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
    """What a job has for stored state and positions to belong to."""

    operators: Collection[str]
    sources: Collection[str]


def restored_record(
    savepoint: Savepoint, restore: Restore, *, job: str, term: int, lineage: str, targets: RestoreTargets | None = None
) -> EpochRecord:
    """Return the record that a lineage begins with: the savepoint's epoch once more, with nothing for the outputs.

    Files that lie with another job are named with it.

    Args:
        savepoint: to go on from.
        restore: how, with its identity.
        job: the job that goes on.
        term: of its driver.
        lineage: the new lineage's token.
        targets: what the job has; None where that is not known yet, and the next start is to find out.

    Raises:
        DefinitionError: the map of uids names what is not there.
        StateMismatchError: state or positions belong to nothing in the job, and were not to be left out.
    """
    stored = savepoint.record
    require_uids(savepoint, restore.uids, targets)
    names = {uid: restore.uids.get(uid, uid) for uid in stored.operators}
    kept_uids = {old: new for old, new in names.items() if targets is None or new in targets.operators}
    unread = set() if targets is None else {*offset_log_sources(stored.offsets), *stored.sources} - set(targets.sources)
    lost = sorted(set(names) - set(kept_uids))
    # Of a source that never had input nothing is lost.
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
        operators={new: _relocated(stored.operators[old], savepoint.job, job) for old, new in kept_uids.items()},
        outputs=_emptied(stored.outputs) if savepoint.job == job else {},
        totals=_renamed(stored.totals, names),
        restored=RestoreRef(restore.identity, savepoint.job, savepoint.name),
    )


def require_uids(savepoint: Savepoint, uids: Mapping[str, str], targets: RestoreTargets | None = None) -> None:
    """Make sure that a map of uids names operators that there are, and no two the same.

    Args:
        savepoint: whose operators stand on the left.
        uids: new ones by stored ones.
        targets: what the job has; None where that is not known yet.

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
            fix="map the state that has that uid now to another operator of the job, too; or, to leave it behind, give the job's operator "
            "a uid of which nothing is stored, map the other state to that, and set allow_non_restored_state=True "
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
    """Return outputs that an epoch adds nothing to; where they lie is still known from them."""
    return {name: OutputRecord(output.sink, output.location) for name, output in outputs.items()}


def _relocated(state: OperatorState, owner: str, job: str) -> OperatorState:
    """Return the state with its files named by the job they lie with, seen from another one."""

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
        f"savepoint {savepoint.name!r} has what nothing in the job claims: {', '.join(parts)}",
        fix=f"say whose it is now ({hint}), or leave it out: {LEAVE_BEHIND}; "
        "it is lost then, and a source that comes back under another name is read from its beginning",
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
    return {**totals, "operators": {names.get(uid, uid): counts for uid, counts in totals["operators"].items()}}
