"""The sweep of unreferenced files: staged before a crash, replaced by compaction, or expired by retention.

Two passes, more than a lease apart: the first writes a tombstone list, the second checks again and deletes files that are still unused.
Only the driver sweeps, and only between epochs. So every file it lists that neither a record nor the plan of the epoch that is to be
replayed names was staged by an attempt that failed, its own or a fenced driver's, and can never be committed. Symbolic links are left,
with the files behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tidemark.crashpoints import crash_point
from tidemark.state.gc.file_references import files_referenced_by_others
from tidemark.state.gc.pins import Pins
from tidemark.state.gc.tombstones import TombstoneList
from tidemark.state.log.epoch_codec import DecodedEpoch
from tidemark.state.log.epoch_intent import read_intent
from tidemark.state.log.joblog import DEFAULT_LEASE_MS, Driver, JobLog
from tidemark.state.log.offset_log import files_of, positions
from tidemark.state.store.layout import SEGMENTS, SOURCES, STATE, SWEEP
from tidemark.state.store.store import ListedFile


@dataclass(frozen=True)
class SweepPlan:
    """The plan of one pass: ``delete`` now; ``marked`` is the tombstone list that it leaves."""

    delete: tuple[str, ...]
    marked: Mapping[str, int]


@dataclass(frozen=True)
class SweepReport:
    """The result of one pass: files marked and waiting, files deleted; of a job's own folder what is left, marked files included."""

    marked: int
    deleted: tuple[str, ...]
    files: int = 0
    bytes: int = 0


def plan_sweep(
    listed: Iterable[ListedFile], referenced: Collection[str], marked: Mapping[str, int], *, now_ms: int, lease_ms: int
) -> SweepPlan:
    """Decide about the files of a folder, of the job's own or of a sink's.

    Args:
        listed: the files there are; for a sink only those that Tidemark could have staged.
        referenced: paths that a retained record, a pin or the sink's table needs.
        marked: the tombstone list of the pass before.
        now_ms: the time, by the clock that wrote the tombstones.
        lease_ms: how long a file is kept after it was written, and how long a tombstone waits.
    """
    delete, kept = [], {}
    for file in listed:
        if _owner_of(file.path) in referenced or now_ms - file.last_modified_ms <= lease_ms:
            continue
        since = marked.get(file.path)
        if since is not None and now_ms - since > lease_ms:
            delete.append(file.path)
        else:
            kept[file.path] = now_ms if since is None else since
    return SweepPlan(tuple(delete), kept)


@dataclass(frozen=True)
class KeptEpochs:
    """The epochs that can be restored: those retained, without a gap and newest first, and those pinned, of any age.

    ``referenced_by_others`` are files that other jobs need, or an import that is under way. ``planned`` are copies of tables and of
    sources' rows that the newest plan names: a crash may have ended its epoch, which is then replayed.
    """

    retained: tuple[DecodedEpoch, ...]
    pinned: tuple[DecodedEpoch, ...]
    referenced_by_others: frozenset[str] = frozenset()
    planned: frozenset[str] = frozenset()

    @property
    def all(self) -> tuple[DecodedEpoch, ...]:
        """Return both; an epoch may be listed twice."""
        return self.retained + self.pinned


def kept_epochs(log: JobLog) -> KeptEpochs:
    """Return the epochs that can be restored.

    Raises:
        CorruptStoreError: a record, pin or file reference cannot be read, so that the files in use are unknown.
        FormatError: a newer release wrote one, or the plan.
    """
    # The log first, the pins afterwards: see ``Pins.put``. References last: one may be added for a pin's files before the pin is removed.
    retained = tuple(decoded for _, decoded in log.retained())
    known = {ref: segment for decoded in retained for ref, segment in decoded.known.items()}
    pinned = tuple(pin.decoded for pin in Pins(log).list(known))
    intent = read_intent(log.store)
    planned = frozenset[str]() if intent is None else intent.files
    return KeptEpochs(retained, pinned, files_referenced_by_others(log.store, now_ms=log.clock.now_ms()), planned)


def referenced_files(log: JobLog) -> frozenset[str]:
    """Return the paths in the job's folder that a retained record, a pin or another job needs.

    Raises:
        CorruptStoreError: a record or pin cannot be read, so that the files in use are unknown.
    """
    return _needed(kept_epochs(log))


def sweep(driver: Driver, *, lease_ms: int = DEFAULT_LEASE_MS, kept: KeptEpochs | None = None) -> SweepReport:
    """Make one pass over the job's state files, segments and source logs; called by the driver between epochs.

    Args:
        driver: the job's.
        lease_ms: how long a file is kept after it was written, milliseconds.
        kept: ``kept_epochs(driver.log)``, where the caller has read them since the driver's last epoch.

    Raises:
        FencedError: a newer driver has begun; nothing was deleted.
        CorruptStoreError: a retained record or a pin cannot be read; nothing was deleted.
    """
    log, now = driver.log, driver.log.clock.now_ms()
    tombstones = TombstoneList(log.store, SWEEP)
    before = tombstones.read()
    listed = [file for folder in (STATE, SEGMENTS, SOURCES) for file in log.store.list(folder, follow_links=False)]
    plan = plan_sweep(listed, _needed(kept or kept_epochs(log)), before, now_ms=now, lease_ms=lease_ms)
    # Files listed before this line are of this term or an earlier one, so no newer driver can be about to commit them.
    driver.confirm()
    tombstones.replace(plan.marked, term=driver.term)
    crash_point("sweep-marked")
    log.store.delete(plan.delete)
    log.store.prune(STATE)
    crash_point("sweep-done")
    deleted = frozenset(plan.delete)
    left = [file.size for file in listed if file.path not in deleted]
    return SweepReport(len(plan.marked), plan.delete, len(left), sum(left))


def _needed(kept: KeptEpochs) -> frozenset[str]:
    return kept.referenced_by_others.union(kept.planned, (path for decoded in kept.all for path in _needs(decoded)))


def _needs(decoded: DecodedEpoch) -> Iterable[str]:
    for state in decoded.record.operators.values():
        yield from (file.path for file in state.files if not file.owner)
    for source in decoded.record.source_logs.values():
        yield from (file.path for file in source.files)
    # Rows of an epoch that were copied, so that a past epoch can be read again.
    for position in positions(decoded.record.offsets).values():
        yield from files_of(position)
    yield from (segment.path for segment in decoded.segments)


def _owner_of(path: str) -> str:
    """Return the file that a Hadoop checksum file, ``.name.crc``, belongs to; other paths as they are."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + name[1:-4] if name.startswith(".") and name.endswith(".crc") else path
