"""Whether a table still holds what a job published to it, decided by what the job's log knows and what the table's log says since. Pure.

A partial DELETE, UPDATE or MERGE by another writer is allowed. A table that is restored to an older version, emptied or replaced
has lost epochs, and its application transaction does not show that: a RESTORE leaves it unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidemark.savepoints.delta.table_entries import Entry
from tidemark.state.delta.delta_tags import REPUBLISHED
from tidemark.state.log.records import SinkPosition


@dataclass(frozen=True)
class ContentCheck:
    """Whether a table still holds its published rows.

    Args:
        since: the first version from which on the table holds all of them.
        loss: how epochs were lost, in words; None if all are there.
        others: partial changes by other writers, in words.
    """

    since: int
    loss: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Content:
    """The content of a version: the rows of the epoch that version ``since`` showed and of all before it, unless some were lost."""

    since: int
    loss: str | None = None


def check_content(
    position: SinkPosition,
    entries: Iterable[Entry],
    *,
    job: str,
    has_staged: Callable[[], bool] = lambda: True,
    needed: Callable[[str, int], bool] = lambda _lineage, _epoch: True,
) -> ContentCheck:
    """Return whether a table holds what a job published to it.

    Args:
        position: of the table, as the job's log knows it.
        entries: of the table's log since, oldest first; some may have expired.
        job: its name.
        has_staged: returns whether the newest version has files that jobs wrote; called only after another writer removed some.
        needed: which epochs, by lineage and number, have to be there; later ones may be lost, such as those that a restore discards.
    """
    now = _Content(position.since)
    last = position.since
    contents = {position.version: now}
    others: list[str] = []
    for entry in entries:
        if entry.of_job(job) and needed(*(entry.epoch or ("", -1))):
            last = entry.version
            # After a rewind the table matches the job's log, whatever came before.
            now = _Content(last, None if entry.restores else now.loss)
        elif entry.restores:
            now = _restored(entry, now, last, position, contents)
        elif entry.foreign and entry.removed and last >= 0:
            if _is_lost(entry, has_staged):
                now = replace(now, loss=now.loss or str(entry))
            elif entry.removes_staged:
                others.append(str(entry))
        contents[entry.version] = now
    return ContentCheck(now.since, now.loss, tuple(others))


def _restored(entry: Entry, now: _Content, last: int, position: SinkPosition, contents: dict[int, _Content]) -> _Content:
    target = entry.restored_version
    if target is None:
        # The restored version is unknown: rows were lost if it removed files that jobs wrote.
        return replace(now, loss=now.loss or str(entry)) if entry.removes_staged and last >= 0 else now
    if target < position.version:
        then = _Content(position.since, None if target >= position.since else str(entry))
    else:
        # An entry between may have expired.
        then = contents[max(version for version in contents if version <= target)]
    return then if then.since >= last or then.loss else replace(then, loss=str(entry))


def _is_lost(entry: Entry, has_staged: Callable[[], bool]) -> bool:
    if entry.replaces_all:
        return True
    if not entry.removes_staged:
        return False
    return not entry.replaces_some or (not entry.added and not has_staged())


@dataclass(frozen=True)
class ShownEpochs:
    """Which epochs a table's newest version shows.

    Args:
        order: their lineages and numbers, as far back as the table's log goes, in order of publication.
        complete: whether it lists all; else those before the first are there, too.
        unclear: why the log does not show which are there, in words; empty if it does.
        again: those that were published again, and the versions that did so.
    """

    order: tuple[tuple[str, int], ...]
    complete: bool
    unclear: str = ""
    again: Mapping[tuple[str, int], int] = field(default_factory=dict, compare=False)

    @property
    def epochs(self) -> frozenset[tuple[str, int]]:
        """The epochs in ``order``, as a set."""
        return frozenset(self.order)


def shown_epochs(entry_at: Callable[[int], Entry | None], newest: int, *, job: str, seen: int = -1) -> ShownEpochs:
    """Return which epochs of a job a table shows: from the newest version back, skipping those that a RESTORE or a rewind removed.

    Args:
        entry_at: returns the entry of a version, None where it has expired.
        newest: the table's version.
        job: its name.
        seen: the newest version that the job's log knows as whole, -1 where the table's log does not continue that one.
    """
    found: dict[tuple[str, int], Entry] = {}

    def shown(*, complete: bool, unclear: str = "") -> ShownEpochs:
        again = {epoch: entry.version for epoch, entry in found.items() if REPUBLISHED in entry.tags}
        return ShownEpochs(tuple(reversed(found)), complete, unclear, again)

    version = newest
    restored: Entry | None = None
    while version >= 0:
        entry = entry_at(version)
        if entry is None:
            if restored is not None:
                return shown(complete=False, unclear=f"{restored}, whose entry was deleted")
            # Anything older is known only up to the version at which the job saw the table whole.
            return shown(complete=False, unclear=f"the entry of version {version} was deleted" if 0 <= seen < version else "")
        if entry.of_job(job) and entry.epoch is not None:
            found.setdefault(entry.epoch, entry)
            restored = None
        before = version - 1
        if entry.restores:
            target = entry.restored_version
            if target is None or target >= version:
                return shown(complete=False, unclear=f"{entry}, which names no version")
            restored = entry if entry.foreign and version > seen else restored
            before = target
        elif entry.foreign and entry.replaces_all:
            break
        elif entry.foreign and entry.removes_staged and not (entry.replaces_some and entry.added):
            return shown(complete=False, unclear=f"{entry}, which removed {entry.removes_staged} of the jobs' files")
        version = before
    return shown(complete=True)
