"""Deletes files that were staged for outputs and never committed: by an attempt that crashed, failed or was fenced.

Delta tables hold published rows where they were staged, so whether a staging is in use is known from the records alone, and
only for epochs that are retained. A staging of such an epoch that no record names can never be committed: its epoch has been
committed with another one, or will be. The same holds for lineages that a restore or a rewind has left, as long as
epochs of theirs are retained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.crashpoints import crash_point
from tidemark.spark.sinks.sinks import BoundSink, Sink, sink_of_record
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import after_stagings, first_staging, folder_of, is_staging
from tidemark.state.gc.sweep import KeptEpochs, SweepReport, kept_epochs, plan_sweep
from tidemark.state.gc.tombstones import TombstoneList
from tidemark.state.log.epoch_codec import DecodedEpoch
from tidemark.state.log.joblog import DEFAULT_LEASE_MS, Driver
from tidemark.state.store.layout import OUTPUT_SWEEP
from tidemark.state.store.store import ListedFile


def sweep_outputs(
    driver: Driver,
    sinks: Mapping[str, BoundSink],
    lineage: str,
    *,
    lease_ms: int = DEFAULT_LEASE_MS,
    kept: KeptEpochs | None = None,
) -> SweepReport:
    """Make one pass over the stagings of a job's outputs; called by the driver between epochs, as ``tidemark.state.gc.sweep``.

    Args:
        driver: whose job it is.
        sinks: of the job's outputs, by name; outputs that only retained epochs have are swept, too.
        lineage: the job's. Of lineages that it has left, stagings that no epoch can need are swept; other jobs' are left alone.
        lease_ms: how long a file is left alone after it was written, and how long its tombstone waits, milliseconds.
        kept: ``kept_epochs(driver.log)``, where the caller has read them since the driver's last epoch.

    Raises:
        FencedError: a newer driver has begun; nothing was deleted.
        CorruptStoreError: a retained record or a pin cannot be read; nothing was deleted.
        SinkError: a table cannot be read; nothing was deleted.
    """
    epochs = kept or kept_epochs(driver.log)
    tombstones = TombstoneList(driver.log.store, OUTPUT_SWEEP)
    before = tombstones.read()
    oldest = _oldest_retained(epochs, lineage)
    owner = SinkOwner.of(driver)
    unused = [staging for place in _places(sinks, epochs.all, owner) for staging in place.unused(oldest, before)]
    listed = [file for staging in unused for file in staging.files]
    plan = plan_sweep(listed, (), before, now_ms=driver.log.clock.now_ms(), lease_ms=lease_ms)
    doomed = {place: _deletable(place, plan.delete) for place in {staging.place for staging in unused}}
    driver.confirm()
    tombstones.replace(plan.marked, term=driver.term)
    crash_point("output-sweep-marked")
    for place, paths in doomed.items():
        place.sink.staging.delete(paths)
    for staging in unused:
        staging.place.sink.staging.prune(staging.folder)
    crash_point("output-sweep-done")
    return SweepReport(len(plan.marked), tuple(place.address(path) for place, paths in doomed.items() for path in paths))


def _oldest_retained(epochs: KeptEpochs, lineage: str) -> Mapping[str, int]:
    """Return, by lineage, the first epoch from which on all committed stagings are known: those of the log, which has no gaps.

    Pinned epochs do not count: stagings of epochs retired after them belong to readers, who may need them for time travel.
    """
    oldest: dict[str, int] = {}
    for decoded in epochs.retained:
        record = decoded.record
        oldest[record.lineage] = min(record.epoch, oldest.get(record.lineage, record.epoch))
    return {lineage: 0, **oldest}


@dataclass(frozen=True)
class _Place:
    """One sink's staging location, and the stagings there that a kept epoch names."""

    sink: Sink
    named: frozenset[str]

    def address(self, path: str) -> str:
        """Return the full address of a file, under which its tombstone is listed with those of all outputs."""
        return f"{self.sink.staging.location}/{path}"

    def path(self, address: str) -> str | None:
        """Return the path of a file by its address, None for one of another place."""
        within = self.address("")
        return address.removeprefix(within) if address.startswith(within + self.sink.staging_folder("")) else None

    def unused(self, oldest: Mapping[str, int], marked: Iterable[str]) -> list[_Staging]:
        """Return the stagings that no kept epoch names: of lineages' epochs not older than the oldest retained, and those marked before."""
        store = self.sink.staging
        parent, slash, _ = self.sink.staging_folder("").rpartition("/")
        found: set[str] = set()
        for lineage, epoch in oldest.items():
            start, stop = (self._name(text) for text in (first_staging(lineage, epoch), after_stagings(lineage)))
            found |= {parent + slash + name for name in store.folders(parent, start=start, stop=stop)}
        depth = len(f"{parent}{slash}".split("/"))
        paths = [path for address in marked if (path := self.path(address)) is not None]
        found |= {"/".join(path.split("/")[:depth]) for path in paths}
        folders = [folder for folder in sorted(found - self.named) if is_staging(folder)]
        return [
            _Staging(self, folder, tuple(file._replace(path=self.address(file.path)) for file in store.list(folder, follow_links=False)))
            for folder in folders
        ]

    def _name(self, staging: str) -> str:
        return self.sink.staging_folder(staging).rpartition("/")[2]


@dataclass(frozen=True)
class _Staging:
    """A folder that no kept epoch names; the paths of its files are addresses."""

    place: _Place
    folder: str
    files: tuple[ListedFile, ...]


def _places(sinks: Mapping[str, BoundSink], epochs: Iterable[DecodedEpoch], owner: SinkOwner) -> list[_Place]:
    """Return the places of all outputs that the job has, or that a kept epoch had."""
    by_location = {(name, bound.sink.location): bound.sink for name, bound in sinks.items()}
    named: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for decoded in epochs:
        for name, output in decoded.record.outputs.items():
            if not output.files:
                continue
            key = name, output.location
            named[key].add(folder_of(output))
            if key not in by_location and (former := sink_of_record(name, output, decoded.record.job, owner=owner)) is not None:
                by_location[key] = former.sink
    return [_Place(sink, frozenset(named[key])) for key, sink in by_location.items()]


def _deletable(place: _Place, addresses: Iterable[str]) -> list[str]:
    """Return the files of a place that may be deleted; one that readers see may not, whatever the records say."""
    paths = [path for address in addresses if (path := place.path(address)) is not None]
    if not paths:
        return []
    shown = place.sink.visible_files()
    return [path for path in paths if path not in shown]
