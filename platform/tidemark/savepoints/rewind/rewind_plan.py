"""What a rewind would do, and what blocks it: worked out before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.errors import SinkError
from tidemark.graph.connectors.kafka import spec as kafka
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.locations import Location
from tidemark.savepoints.delta.folder_note import folder_lost
from tidemark.savepoints.delta.table_position import lost_of_record
from tidemark.savepoints.delta.table_versions import Commit, commits_back, open_table, savepoint_versions, shows, table_versions
from tidemark.savepoints.model.rewind_journal import FORMER, RewoundPlace
from tidemark.savepoints.model.savepoint import Savepoint, TableVersion
from tidemark.savepoints.rewind.place_rewinds import PLACE_REWINDS
from tidemark.state.delta.delta_tags import JOB
from tidemark.state.gc.pins import LaterLineages
from tidemark.state.log.records import EpochRecord, OutputRecord
from tidemark.state.store.store import JobStore

NOT_REVERTED = {
    "parquet": "files that were written since stay in the folder, and their rows are written again",
    "console": "what was printed stays printed",
    "memory": "it lives within one process and starts empty in the next",
    KafkaSpec.kind: kafka.NOT_REVERTED,
}

FOREIGN_COMMITS = "newer versions by other writers"


@dataclass(frozen=True)
class RewindPlan:
    """What a rewind does.

    Args:
        savepoint: its name.
        epoch: the savepoint's.
        from_epoch: the job's newest epoch.
        tables: the versions that the Delta tables are reverted to, by output; a former table has its own name, as in the journal.
        changed: tables whose content differs from that version now; the others need nothing.
        left: outputs that cannot be reverted, and what that means.
        refusals: why the rewind is refused; empty if it is possible.
        places: the places of connectors that are rewound, by output.
        unpublished: outputs whose tables do not show the newest epoch yet, which is committed; it is published first, since it could not
            be afterwards, and undoing the rewind leads back to it.
    """

    savepoint: str
    epoch: int
    from_epoch: int
    tables: Mapping[str, TableVersion]
    changed: tuple[str, ...]
    left: Mapping[str, str]
    refusals: tuple[str, ...]
    unpublished: tuple[str, ...] = ()
    places: Mapping[str, RewoundPlace] = field(default_factory=dict)


def plan_rewind(
    savepoint: Savepoint,
    head: EpochRecord,
    later: LaterLineages,
    *,
    now_ms: int,
    between: Iterable[EpochRecord] = (),
    although_unpublished: bool = False,
) -> RewindPlan:
    """Return what rewinding a job to a savepoint would do.

    Args:
        savepoint: one of the job's own.
        head: the job's newest epoch.
        later: lineages of the job that came after the savepoint's epoch.
        now_ms: the time.
        between: epochs that came after the savepoint's, as far as they are known; tables that were outputs then are reverted, too.
        although_unpublished: whether tables need not show the newest epoch: a driver is about to publish it, or its rows may be dropped.

    Raises:
        SinkError: a table cannot be read.
    """
    savepoint = _with_former_tables(savepoint, head)
    stored = savepoint.record
    outputs = {**stored.outputs, **head.outputs}
    tables = savepoint_versions(savepoint, outputs, later, now_ms=now_ms)
    refusals: list[str] = []
    changed: list[str] = []
    unpublished: list[str] = []
    for name in sorted(outputs):
        output, version = outputs[name], tables.get(name)
        if output.sink != "delta" or output.location is None:
            continue
        table = open_table(name, output.location)
        # An epoch that a table has lost can no longer be published: a start refuses it.
        if not although_unpublished and _is_unpublished(table, name, head) and lost_of_record(head, name, only=False) is None:
            unpublished.append(name)
        elif version is None:
            refusals += _unversioned(name, output.location, table, stored)
        if version is not None:
            # Another job may write to the place by now.
            own = {stored.lineage, *later.names} if name.endswith(FORMER) else None
            reasons, moved = _obstacles(name, version, table, savepoint.job, own)
            refusals += reasons
            if moved and not reasons:
                changed.append(name)
    left = {name: _why_not_reverted(stored, head, name, output) for name, output in outputs.items() if output.sink in NOT_REVERTED}
    left |= _moved_places(stored, head)
    places = _places(outputs)
    plans = {name: PLACE_REWINDS[place.sink].plan(name, place.location, stored, head, later) for name, place in places.items()}
    places = {name: replace(place, to=plans[name].to) for name, place in places.items()}
    refusals += [reason for plan in plans.values() for reason in plan.refusals]
    changed += [name for name, plan in plans.items() if plan.changed]
    unpublished += [name for name, plan in plans.items() if plan.unpublished and not although_unpublished]
    for name, output in _former_outputs(between, outputs).items():
        found = _version_of_former(name, output, savepoint, later, now_ms=now_ms)
        if isinstance(found, str):
            left[name] = f"what was written to it since stays: {found}"
        elif found is not None:
            tables[name] = found
            changed.append(name)
    return RewindPlan(savepoint.name, stored.epoch, head.epoch, tables, tuple(changed), left, tuple(refusals), tuple(unpublished), places)


def _places(outputs: Mapping[str, OutputRecord]) -> dict[str, RewoundPlace]:
    """Return the places of connectors, by output."""
    return {
        name: RewoundPlace(output.sink, output.location)
        for name, output in sorted(outputs.items())
        if output.sink in PLACE_REWINDS and output.location is not None
    }


def _moved_places(stored: EpochRecord, head: EpochRecord) -> dict[str, str]:
    """Return the outputs of connectors that have another place since the savepoint, with what that means."""
    return {
        name + FORMER: f"what was written to {then.location} since stays there"
        for name, then in stored.outputs.items()
        if then.sink in PLACE_REWINDS and name in head.outputs and head.outputs[name].location != then.location
    }


def _why_not_reverted(stored: EpochRecord, head: EpochRecord, name: str, output: OutputRecord) -> str:
    """Return what it means that an output is not reverted; the next start refuses a folder that lost files of the savepoint's."""
    meaning = NOT_REVERTED.get(output.sink, "it is no table")
    # An unpublished newest epoch is published first.
    lost = folder_lost(stored, name, published=(stored.lineage, stored.epoch) != (head.lineage, head.epoch))
    if lost is None:
        return meaning
    gap = f"the folder {stored.outputs[name].location} no longer holds all that was published to it up to epoch {stored.epoch}"
    return f"{meaning}; and {gap}: {lost.why}; the next start refuses that (TM302) unless it is started with `--missing-epochs`"


def content_commits(commits: Iterable[Commit]) -> list[Commit]:
    """Return the commits of a table that changed its contents."""
    return [commit for commit in commits if commit.epoch is not None or commit.foreign]


def effective_commits(commits: Iterable[Commit]) -> list[Commit]:
    """Return commits of a table, newest first, without those undone since by a RESTORE to a version before them."""
    found: list[Commit] = []
    for commit in commits:
        later = found[-1].restored if found else None
        if later is None or commit.version <= later:
            found.append(commit)
    return found


def commits_since(version: TableVersion, newest: int) -> list[Commit]:
    """Return all commits of a table after a version, newest first; the list ends at the first whose entry was deleted."""
    return list(takewhile(lambda commit: commit.version > version.version, commits_back(version.location, newest)))


def has_missing_commits(version: TableVersion, newest: int, since: Sequence[Commit]) -> bool:
    """Return whether entries of commits since a version were deleted, so that what they changed is unknown."""
    return len(since) < newest - version.version


def _with_former_tables(savepoint: Savepoint, head: EpochRecord) -> Savepoint:
    """Return a savepoint in which the tables of outputs that now lie elsewhere, or are no tables, have separate names."""
    outputs, tables = dict(savepoint.record.outputs), dict(savepoint.info.tables)
    for name, now in head.outputs.items():
        then = outputs.get(name)
        place = tables[name].location if name in tables else then.location if then is not None and then.sink == "delta" else None
        if place is not None and not _lies_at(now, place):
            outputs[name + FORMER] = then if then is not None else OutputRecord("delta", place)
            outputs.pop(name, None)
            if name in tables:
                tables[name + FORMER] = tables.pop(name)
    return replace(savepoint, record=replace(savepoint.record, outputs=outputs), info=replace(savepoint.info, tables=tables))


def _former_outputs(between: Iterable[EpochRecord], outputs: Mapping[str, OutputRecord]) -> dict[str, OutputRecord]:
    """Return the tables that were outputs only between the savepoint and now, as former ones."""
    places = {Location.parse(output.location) for output in outputs.values() if output.sink == "delta" and output.location is not None}
    found: dict[str, OutputRecord] = {}
    for record in between:
        for name, output in record.outputs.items():
            if output.sink != "delta" or output.location is None or Location.parse(output.location) in places:
                continue
            former = name + FORMER
            while former in {*found, *outputs}:
                former += FORMER
            places.add(Location.parse(output.location))
            found[former] = replace(output, files=())
    return found


def _version_of_former(
    name: str, output: OutputRecord, savepoint: Savepoint, later: LaterLineages, *, now_ms: int
) -> TableVersion | str | None:
    """Return the version that a table of ``_former_outputs`` is reverted to, why it cannot be, or None if there is nothing to do."""
    stored = savepoint.record
    try:
        table = open_table(name, str(output.location))
        version = table_versions(replace(stored, outputs={name: output}), later, now_ms=now_ms).get(name)
    except SinkError as error:
        return error.what
    if table is None:
        return None
    if version is None:
        return f"no version of it is known to show nothing later than epoch {stored.epoch}"
    reasons, moved = _obstacles(name, version, table, savepoint.job, {stored.lineage, *later.names})
    return "; ".join(reasons) if reasons else version if moved else None


def _lies_at(output: OutputRecord, place: str) -> bool:
    return output.sink == "delta" and output.location is not None and Location.parse(output.location) == Location.parse(place)


def _is_unpublished(table: DeltaTable | None, name: str, head: EpochRecord) -> bool:
    """Return whether the newest epoch has rows for an output that its table, which need not exist yet, does not show."""
    if table is None:
        return name in head.outputs and bool(head.outputs[name].files)
    return not shows(table, name, head)


def _unversioned(name: str, location: str, table: DeltaTable | None, stored: EpochRecord) -> list[str]:
    """Return why an output without a known version that shows the savepoint's epoch blocks the rewind."""
    if table is not None:
        wanted = f"epoch {stored.epoch} with all before it and nothing later"
        return [f"output {name!r}: no version of the table at {location} is known to show {wanted}"]
    if name not in stored.outputs or not stored.outputs[name].files:
        return []
    # Its rows would never be shown; or a driver that stopped before it published them would publish them after all.
    return [f"output {name!r}: epoch {stored.epoch} has rows for it, and there is no table at {location}"]


def _obstacles(name: str, version: TableVersion, table: DeltaTable | None, job: str, own: Collection[str] | None) -> tuple[list[str], bool]:
    """Return why a table cannot be reverted to a version, and whether its contents differ from it now.

    Args:
        name: of the output.
        version: of the table.
        table: at its newest version, None if it does not exist.
        job: the job to rewind.
        own: the lineages of that job that may have written to the table since; None for any.
    """
    place = f"output {name!r}: the table at {version.location}"
    if table is None:
        return [f"{place} no longer exists"], False
    newest = table.version()
    if version.table is not None and str(table.metadata().id) != version.table:
        return [f"{place} is not the savepoint's: it was recreated"], False
    if newest < version.version:
        return [f"{place} is at version {newest}, which comes before version {version.version}: it was recreated"], False
    commits = commits_since(version, newest)
    since = content_commits(effective_commits(commits))
    theirs = [commit for commit in since if not commit.keeps(version.version)]
    foreign = [
        commit for commit in theirs if commit.epoch is None or commit.of_other(job) or (own is not None and commit.epoch[0] not in own)
    ]
    if foreign:
        listed = ", ".join(f"{commit.version} ({_maker(commit, job)})" for commit in foreign[:3])
        return [f"{place} has {FOREIGN_COMMITS}, which would be undone: {listed}"], True
    if has_missing_commits(version, newest, commits):
        return [f"{place} no longer has version {version.version}: its log was cleaned up"], True
    if not since:
        return [], False
    try:
        table.load_as_version(version.version)
    except (DeltaError, OSError):
        return [f"{place} no longer has version {version.version}: its log was cleaned up"], True
    paths = {unquote(str(path)) for path in table.get_add_actions()["path"].to_pylist()}
    there = {file.path for file in JobStore.open(version.location).list()}
    missing = [path for path in paths if path not in there and "://" not in path and not path.startswith("/")]
    return ([f"{place} has lost {len(missing)} of {len(paths)} files of version {version.version} to a vacuum"] if missing else []), True


def _maker(commit: Commit, job: str) -> str:
    return f"job {commit.tags[JOB]!r}" if commit.of_other(job) else commit.operation or "unknown"
