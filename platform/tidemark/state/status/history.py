"""The job's history: one line of JSON per committed epoch, in blocks, read without a JVM.

It is for users, sensors and plots; the job log is authoritative, and lines that a crash lost are filled in from it.
Blocks are numbered in the order they were begun and hold up to ``BLOCK_LINES`` lines; the newest one is overwritten whole.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from tidemark.crashpoints import crash_point
from tidemark.errors import CorruptStoreError
from tidemark.state.encoding.envelope import FORMAT, canonical
from tidemark.state.log.progress import EpochProgress, encode_progress
from tidemark.state.log.records import EpochRecord
from tidemark.state.status.history_blocks import BLOCK_LINES, blocks_of, decode_line, read_lines
from tidemark.state.store.layout import history_path, job_folder
from tidemark.state.store.store import JobStore

BLOCKS_KEPT = 1000

logger = logging.getLogger("tidemark")


class HistoryWriter:
    """Appends epochs. ``store`` is the root store; the newest ``BLOCKS_KEPT`` blocks are kept."""

    def __init__(self, store: JobStore, job: str) -> None:
        self._store = store.at(job_folder(job))
        blocks = blocks_of(self._store)
        self._block = blocks[-1] if blocks else 0
        # As text: a line never changes, so it is encoded once, however often its block is written.
        self._lines = read_lines(self._store, self._block) if blocks else []

    def backfill(self, records: Iterable[EpochRecord], finished: Collection[tuple[str, int]] = ()) -> int:
        """Append epochs that a crash kept from being written; call it once at start, before ``append``.

        Args:
            records: the retained records, newest first (``JobLog.epochs()``); read until one is found that the history has.
            finished: lineage and number of epochs whose publication this start has finished.

        Returns:
            How many epochs were appended.
        """
        newest, known = self._newest_readable()
        missing: list[EpochProgress] = []
        for record in records:
            identity = _identity(record.progress)
            if newest is not None and identity == _identity(newest):
                break
            if identity not in known:
                missing.append(record.progress)
        for progress in reversed(missing):
            self._add(replace(progress, finished_at_start=True) if _identity(progress) in finished else progress)
        if missing:
            self._write()
        return len(missing)

    def append(self, progress: EpochProgress) -> None:
        """Append one epoch; the whole line is there or none of it."""
        self._add(progress)
        self._write()
        crash_point("history-written")

    def _newest_readable(self) -> tuple[EpochProgress | None, set[tuple[str, int]]]:
        """Return the newest epoch that ends an intact block, or the newest one; and those of damaged blocks after it.

        Damaged lines at the end of the current block are dropped, and written again from the log as far as it has them.

        Raises:
            FormatError: a newer release wrote a line.
        """
        while self._lines:
            try:
                return decode_line(self._lines[-1], len(self._lines), self._store, self._block), set()
            except CorruptStoreError as error:
                logger.warning("a damaged line of the history is dropped, and written again from the log if that has it: %s", error)
                self._lines.pop()
        known: set[tuple[str, int]] = set()
        for block in reversed([block for block in blocks_of(self._store) if block < self._block]):
            lines = read_lines(self._store, block)
            if lines:
                try:
                    return decode_line(lines[-1], len(lines), self._store, block), known
                except CorruptStoreError as error:
                    # It is full, so nothing is appended to it, and its readers get the error.
                    logger.warning("the history's newest epoch is damaged; what its blocks do not have is appended: %s", error)
                for number, line in enumerate(lines, start=1):
                    with suppress(CorruptStoreError):
                        known.add(_identity(decode_line(line, number, self._store, block, splits=False)))
        return None, known

    def _add(self, progress: EpochProgress) -> None:
        if len(self._lines) >= BLOCK_LINES:
            self._write()
            self._block, self._lines = self._block + 1, []
            self._store.delete(history_path(block) for block in blocks_of(self._store)[: -BLOCKS_KEPT + 1])
        self._lines.append(canonical({"format": FORMAT, **encode_progress(progress)}))

    def _write(self) -> None:
        self._store.put(history_path(self._block), b"\n".join(self._lines) + b"\n")


def read_history(store: JobStore, job: str, limit: int = 100) -> list[EpochProgress]:
    """Return up to ``limit`` newest epochs, newest last; empty if there is none. ``store`` is the root store.

    Raises:
        CorruptStoreError: a block is damaged.
        FormatError: a newer release wrote it.
    """
    folder = store.at(job_folder(job))
    found: list[EpochProgress] = []
    for block in reversed(blocks_of(folder)):
        if len(found) >= limit:
            break
        lines = list(enumerate(read_lines(folder, block), start=1))[-(limit - len(found)) :]
        found = [*(decode_line(line, number, folder, block) for number, line in lines), *found]
    return found


def _identity(progress: EpochProgress) -> tuple[str, int]:
    return progress.lineage, progress.epoch
