"""Maintenance of a Delta table over many thousands of commits: merges small files, cleans up the log, vacuums removed files.

Runs after some publications. It never changes the table's rows, and may fail or be skipped: it is due again at the next
publication. Only files that Tidemark staged are merged, not those of other writers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from deltalake import DeltaTable, Schema

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import crash_point
from tidemark.errors import ConservationError
from tidemark.savepoints.delta.table_versions import retention_ms
from tidemark.savepoints.delta.vacuuming import vacuum
from tidemark.spark.sinks.delta.delta_commits import add_actions, new_attempt, remove_actions, rewrite, sweep_attempts
from tidemark.spark.sinks.delta.delta_files import LiveFile, live_files
from tidemark.spark.sinks.delta.delta_rewrite import Rewriter
from tidemark.state.delta.delta_tags import MAINTENANCE, REWRITE_FOLDER
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.records import StateFile
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

NEW_TABLE: Final[Mapping[str, str | None]] = {
    # As long as removed files are kept: a version whose files were deleted cannot be read anyway. Delta's default is a month, in
    # which a trigger of ten seconds makes a quarter of a million log files.
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.checkpointInterval": "100",
}
"""Settings of tables that Tidemark creates; users may create or alter tables with others."""

CHECK_EVERY: Final = 16
"""Publications between two checks of the table's files."""

LOG_EVERY: Final = 100
VACUUM_EVERY_MS: Final = 24 * 60 * 60 * 1000
MIN_FILES: Final = 32
"""Files of about one size that are merged; twice as many of the smallest."""

MAX_FILES: Final = 128
MAX_MERGES: Final = 8
_OURS: Final = "tidemark-"
_STAGING: Final = re.compile(rf"\b{_OURS}[^/]+(?=/)")


@dataclass
class Maintenance:
    """Maintains one table while a process writes to it.

    Args:
        output: that writes to the table.
        store: at the table.
        rewriter: merges files.
        protected_versions: versions of the table that savepoints need; these stay readable whatever the table's settings are. None while
            unknown: then nothing old is deleted.
    """

    output: str
    store: JobStore
    rewriter: Rewriter
    protected_versions: frozenset[int] | None = None
    _log_is_due: bool = field(default=False, init=False)
    _published: int = field(default=0, init=False)
    _vacuumed_at: int | None = field(default=None, init=False)
    _links_named: bool = field(default=False, init=False)

    def after_publication(self, table: DeltaTable, folder: str) -> None:
        """Do what is due.

        Args:
            table: that was published to.
            folder: the staging of the epoch that was published; merged files go into it.
        """
        number, self._published = self._published, self._published + 1
        self._log_is_due |= number % LOG_EVERY == 0
        if number % CHECK_EVERY and not (self._log_is_due and self.protected_versions is not None):
            return
        table.update_incremental()
        if number % CHECK_EVERY == 0 and _may_rewrite(table):
            self._compact(table, folder)
        if number == 0:
            # Left by an earlier process; none of it can be committed once this one has committed something.
            sweep_attempts(self.store, table, folder)
        if self._log_is_due and self.protected_versions is not None:
            self._log_is_due = False
            if table.metadata().configuration.get("delta.enableExpiredLogCleanup") != "false" and not self._needs_old_log(table):
                self._shorten_log(table)
            self._vacuum(table)

    def _compact(self, table: DeltaTable, folder: str) -> None:
        for _ in range(MAX_MERGES):
            # Checked each time: another writer's version may have been loaded together with the last merge.
            group = next(iter(due(live_files(table), self.rewriter.file_bytes)), None)
            if group is None or not self._merge(table, group, folder):
                return
            table.update_incremental()

    def _merge(self, table: DeltaTable, group: list[LiveFile], folder: str) -> bool:
        attempt = new_attempt(folder, "compacted", table.version())
        schema = table.schema().to_json()
        files = self.rewriter.merged(schema, group, attempt)
        rows, written = sum(file.rows or 0 for file in group), sum(file.rows for file in files)
        if rows != written:
            raise ConservationError(
                f"{rows} rows of the table were to be put into fewer files and {written} were written; the table is as it was",
                fix="if the table's files were changed by hand, restore them; else report this",
                uid=self.output,
                place=str(self.store.location),
            )
        crash_point("compaction-staged")
        actions = [*add_actions(files, data_change=False), *remove_actions(group, data_change=False)]
        if rewrite(table, actions, Schema.from_json(schema), metadata={MAINTENANCE: "compact", REWRITE_FOLDER: attempt}):
            return True
        sweep_attempts(self.store, table, folder)
        logger.info("output %r: another commit came before a merge of files, which is postponed", self.output)
        return False

    def _needs_old_log(self, table: DeltaTable) -> bool:
        """Whether a savepoint needs a log entry that is about to expire; then the log is kept."""
        if not self.protected_versions:
            return False
        written = self.store.modified_ms(f"_delta_log/{min(self.protected_versions):020d}.json")
        return written is None or SYSTEM_CLOCK.now_ms() - written > retention_ms(table.metadata().configuration) // 2

    def _shorten_log(self, table: DeltaTable) -> None:
        """Have deltalake delete expired log entries, unless the log has symbolic links: deltalake would delete their targets, too."""
        links = self.store.links("_delta_log")
        if not links:
            table.cleanup_metadata()
        elif not self._links_named:
            self._links_named = True
            logger.warning("output %r: old entries of its table's log are kept, since %s is a symbolic link", self.output, links[0])

    def _vacuum(self, table: DeltaTable) -> None:
        """Delete files whose removal from the table is older than its settings retain them; once a day."""
        now = SYSTEM_CLOCK.now_ms()
        if self._vacuumed_at is not None and now - self._vacuumed_at < VACUUM_EVERY_MS:
            return
        self._vacuumed_at = now
        deleted = vacuum(table, self.store, self.protected_versions or ())
        for folder in sorted({found[0] for path in deleted if (found := _STAGING.search(path))}):
            # Spark's checksums are left, and nothing else needs the folder.
            if not any(file.path.endswith(".parquet") for file in self.store.list(folder)):
                self.store.remove_folder(folder)


def due(files: Sequence[LiveFile], file_bytes: int) -> list[list[LiveFile]]:
    """Return groups of files, each to be merged into fewer; size-tiered, so that a row is rewritten about once per tier.

    Args:
        files: of the table, oldest first.
        file_bytes: target file size; files of half that size or more are left alone.
    """
    by_path = {file.path: file for file in files if file.path.startswith(_OURS) and file.rewritable and file.rows is not None}
    entries = [StateFile(file.path, file.rows or 0, file.bytes, None, None, 0) for file in by_path.values()]
    plan = plan_compaction(entries, min_files=MIN_FILES, max_files=MAX_FILES, largest_file=file_bytes // 2)
    return [[by_path[entry.path] for entry in group] for group in plan.merge]


def _may_rewrite(table: DeltaTable) -> bool:
    """Whether files may be replaced by others with the same rows; rows that deletion vectors hide would reappear."""
    return "deletionVectors" not in (table.protocol().writer_features or ())
