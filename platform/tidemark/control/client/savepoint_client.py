"""Requests about a job's savepoints, each recorded in the history of the job. Starts no JVM; the job may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control.desired.request_log import log_request
from tidemark.control.desired.spec_store import current_user
from tidemark.savepoints.core.retention import SavepointRetention
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.export_format import ExportIndex, OnCopy
from tidemark.savepoints.export.exporting import export_savepoint
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.savepoint import Kind, Savepoint
from tidemark.state.encoding.redaction import redacted
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class SavepointClient:
    """Takes, disposes of, exports and imports savepoints of a job.

    Args:
        store: the root store.
        job: the job's name.
        by: who requests it; ``user@host`` by default.
        clock: processing time.
    """

    store: JobStore
    job: str
    by: str = ""
    clock: Clock = SYSTEM_CLOCK

    @property
    def savepoints(self) -> SavepointStore:
        """The job's savepoints."""
        return SavepointStore(self.store, self.job, self.clock)

    def take(
        self,
        name: str | None = None,
        *,
        epoch: int | None = None,
        lineage: str | None = None,
        kind: Kind = "manual",
        note: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Savepoint:
        """Take a savepoint, as ``SavepointStore.take`` does; the request is recorded once it is taken, with its name.

        Raises:
            TidemarkError: as ``SavepointStore.take``.
        """
        taken = self.savepoints.take(name, epoch=epoch, lineage=lineage, kind=kind, by=self._by, note=note, labels=labels)
        self._log(f"savepoint {taken.name} of epoch {taken.record.epoch} taken", note)
        return taken

    def dispose(self, names: Sequence[str], why: str = "") -> tuple[Savepoint, ...]:
        """Dispose of savepoints, and return them.

        Raises:
            TidemarkError: as ``SavepointStore.dispose``; of an unknown one before any is disposed of.
        """
        savepoints = self.savepoints
        for name in names:
            savepoints.get(name)
        self._log(f"dispose of savepoint {', '.join(names)}", why)
        return tuple(savepoints.dispose(name) for name in names)

    def retire(self, retention: SavepointRetention, why: str = "") -> tuple[Savepoint, ...]:
        """Dispose of the savepoints that retention expires, and return them.

        Raises:
            CorruptStoreError: a savepoint or a file reference is damaged; nothing was disposed of.
        """
        self._log("dispose of the savepoints that retention expires", why)
        return self.savepoints.retire(retention)

    def export(self, name: str, to: str, why: str = "", *, on_copy: OnCopy | None = None) -> ExportIndex:
        """Copy a savepoint with all its files into a folder, as ``export_savepoint`` does.

        Raises:
            TidemarkError: as ``export_savepoint``.
        """
        found = self.savepoints.get(name)
        self._log(f"export of savepoint {name} to {redacted(to)}", why)
        return export_savepoint(self.savepoints.folder, found, to, on_copy=on_copy)

    def take_in(self, source: str, name: str | None = None, *, on_copy: OnCopy | None = None) -> Savepoint:
        """Import an exported savepoint; the job need not have run yet. The request is recorded once it is imported, with its name.

        Raises:
            TidemarkError: as ``import_savepoint``.
        """
        taken = import_savepoint(self.savepoints, source, name=name, by=self._by, on_copy=on_copy)
        self._log(f"savepoint {taken.name} imported from {redacted(source)}")
        return taken

    def _log(self, what: str, why: str = "") -> None:
        log_request(self.store, self.job, what, by=self._by, why=why, clock=self.clock)

    @property
    def _by(self) -> str:
        return self.by or current_user()
