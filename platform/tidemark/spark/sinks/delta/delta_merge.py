"""Publishing an upsert: one table version that adds the new rows' files and rewrites the files with the rows that they replace.

The rows to replace are determined after the commit point, from the table as it is then. So there is one path, whatever other
writers did and however often it is taken: while another version comes first, all of it is computed again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from deltalake import DeltaTable, Schema, Transaction

from tidemark.crashpoints import crash_point
from tidemark.errors import ConservationError, PublishError, SinkError
from tidemark.graph.checks.upsert_keys import END, START
from tidemark.spark.sinks.delta.delta_changes import is_deletion
from tidemark.spark.sinks.delta.delta_commits import add_actions, add_columns, new_attempt, remove_actions, rewrite, sweep_attempts
from tidemark.spark.sinks.delta.delta_files import Bounds, LiveFile, bounds_of_staged, files_containing, live_files, may_contain
from tidemark.spark.sinks.delta.delta_rewrite import Change, Rewriter
from tidemark.state.delta.delta_tags import MODE, REWRITE_FOLDER
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

logger = logging.getLogger("tidemark")

ATTEMPTS: Final = 10
FEW_FILES: Final = 4
"""Reading the keys of up to so many files costs no more than finding out which of them need not be read."""

MAX_STARTS: Final = 500


@dataclass(frozen=True)
class Merge:
    """One epoch's upsert into a table.

    ``folder`` is the epoch's staging, ``application`` the table's application id of the output's lineage. ``metadata`` goes into the
    commit, ``columns_for`` into the commit before it that adds columns. ``again`` publishes an epoch that the table's transaction
    already has: its rows were lost, or earlier epochs were published after it.
    """

    output: str
    change: Change
    folder: str
    application: str
    epoch: int
    metadata: Mapping[str, str]
    columns_for: Mapping[str, str]
    again: bool = False

    def publish(self, table: DeltaTable, store: JobStore, rewriter: Rewriter) -> None:
        """Commit the upsert, unless the table has it.

        Raises:
            PublishError: other writers' commits came first each time.
            SinkError: a file that may have to be rewritten has a path that is not ``rewritable``.
            ConservationError: the rewritten files do not have the number of rows that were to stay.
        """
        for _ in range(ATTEMPTS):
            table.update_incremental()
            done = table.transaction_version(self.application)
            if not self.again and done is not None and done >= self.epoch:
                return
            if add_columns(table, self.change.schema, self.columns_for) and self._attempt(table, rewriter):
                return
            sweep_attempts(store, table, self.folder)
            logger.info("output %r: another commit came before that of epoch %d; the merge is computed again", self.output, self.epoch)
        raise commit_conflict(self.output, self.epoch, str(store.location))

    def _attempt(self, table: DeltaTable, rewriter: Rewriter) -> bool:
        # Rows that stay keep every column, also those that new rows no longer have.
        schema = table.schema().to_json()
        # An epoch that is published again may have files of its own in the table; those that exist hold only its newest rows.
        there = {unquote(str(path)) for path in table.get_add_actions()["path"].to_pylist()} if self.again else set()
        counts, files = self._touched(table, rewriter, own={file.path for file in self.change.files if file.path in there})
        attempt = new_attempt(self.folder, "merged", table.version())
        kept: list[StagedFile] = []
        if partly := [file for file in files if file.rows is None or counts[file.path] < file.rows]:
            kept = rewriter.survivors(schema, self.change, partly, attempt)
            self._require_kept(partly, counts, kept)
            crash_point("output-staged")
        replaced = sum(counts.values())
        new = [file for file in self.change.files if file.path not in there and not is_deletion(file)]
        if self.change.upsert.versions:
            new = rewriter.versions(schema, self.change, files, f"{attempt}/versions")
        return rewrite(
            table,
            [*add_actions(new), *add_actions(kept), *remove_actions(files)],
            Schema.from_json(schema),
            transaction=Transaction(self.application, max(self.epoch, table.transaction_version(self.application) or -1)),
            metadata={**self.metadata, REWRITE_FOLDER: attempt, MODE: self.change.upsert.mode, "tidemark.rows_replaced": str(replaced)},
        )

    def _touched(self, table: DeltaTable, rewriter: Rewriter, *, own: Collection[str]) -> tuple[Mapping[str, int], list[LiveFile]]:
        """Return the other files with rows to replace, and how many: first by the log's statistics, then by their key columns."""
        types = self._types
        keys = {key: types[key] for key in self.change.upsert.keys}
        changes = [change for file in self.change.files for change in self._bounds(file, keys)]
        files = [file for file in live_files(table, keys) if unquote(file.path) not in own and may_contain(file, changes)]
        if len(files) > FEW_FILES and types.get(START) == "timestamp" and START in keys:
            # The bounds of an early window and a late one in one epoch include all windows between them.
            starts = rewriter.starts(self.change, MAX_STARTS)
            files = files if starts is None else files_containing(files, START, starts)
        for file in files:
            if not file.rewritable:
                raise SinkError(
                    f"output {self.output!r} may replace rows of {file.path}, whose path is a URI or has escapes",
                    fix="make a deep copy of the table, or write to another path",
                    uid=self.output,
                    epoch=self.epoch,
                )
        counts = rewriter.touched(self.change, files) if files else {}
        return counts, [file for file in files if file.path in counts]

    @property
    def _types(self) -> dict[str, str]:
        fields = json.loads(self.change.schema)["fields"]
        return {field["name"]: field["type"] if isinstance(field["type"], str) else "nested" for field in fields}

    def _bounds(self, file: StagedFile, types: Mapping[str, str]) -> list[dict[str, Bounds]]:
        """Return the bounds of the keys that a staged file's rows replace: their own, and those of sessions that they replace."""
        own = bounds_of_staged(file, types)
        if self.change.replaced is None:
            return [own]
        low, high = self.change.replaced
        # Only the starts of the replaced sessions are known.
        others = {key: bounds for key, bounds in own.items() if key != END}
        return [own, {**others, START: Bounds(low, high, 0)}]

    def _require_kept(self, files: list[LiveFile], counts: Mapping[str, int], kept: list[StagedFile]) -> None:
        rows = [file.rows for file in files]
        known = [count for count in rows if count is not None]
        left = sum(known) - sum(counts[file.path] for file in files)
        written = sum(file.rows for file in kept)
        if len(known) == len(rows) and left != written:
            raise ConservationError(
                f"{left} rows of the table were to stay and {written} were written",
                fix="if the table's files were changed by hand, restore them; else report this",
                uid=self.output,
                epoch=self.epoch,
            )


def commit_conflict(output: str, epoch: int | None, place: str) -> PublishError:
    """Return the error for a publication that another commit came before each time; without an epoch, for accepting a table as it is."""
    what = "of a committed epoch could not be published" if epoch is not None else "could not be accepted as it is"
    return PublishError(
        f"output {output!r} {what}: {ATTEMPTS} times another commit to its table came first",
        fix="stop other writers that commit to the table all the time, and start the job again: it finishes this epoch first",
        uid=output,
        epoch=epoch,
        place=place,
    )
