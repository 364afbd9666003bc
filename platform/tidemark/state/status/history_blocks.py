"""The blocks of a job's history: their numbers, their lines, and the epoch of a line."""

from __future__ import annotations

import json
from typing import Final

from tidemark.errors import CorruptStoreError
from tidemark.state.encoding.envelope import FORMAT, damaged, newer_format
from tidemark.state.log.progress import EpochProgress, decode_progress
from tidemark.state.store.layout import HISTORY, history_path
from tidemark.state.store.store import JobStore

BLOCK_LINES: Final = 100


def blocks_of(folder: JobStore) -> list[int]:
    """Return the numbers of the existing blocks, oldest first. ``folder`` is the store at the job's folder."""
    names = (file.path.removeprefix(f"{HISTORY}/").removesuffix(".jsonl") for file in folder.list(HISTORY))
    return sorted(int(name) for name in names if name.isdecimal())


def read_lines(folder: JobStore, block: int) -> list[bytes]:
    """Return the lines of a block, none if it was deleted."""
    try:
        return folder.get(history_path(block)).splitlines()
    except FileNotFoundError:
        return []  # the writer dropped it as too old just now


def decode_line(line: bytes, number: int, folder: JobStore, block: int, *, splits: bool = True) -> EpochProgress:
    """Return the epoch of a line; ``number`` counts the block's lines from 1.

    Without ``splits`` those of sources are left out: where there are many, that takes half the time.

    Raises:
        CorruptStoreError: the line is damaged.
        FormatError: a newer release wrote it.
    """
    path = str(folder.location.joined(history_path(block)))
    try:
        plain = json.loads(line)
        version = plain.pop("format")
        if isinstance(version, int) and version > FORMAT:
            raise newer_format(version, path)
        if not splits:
            plain["sources"] = {name: {**source, "splits": {}} for name, source in plain["sources"].items()}
        return decode_progress(plain, path=path)
    except (ValueError, KeyError, AttributeError, TypeError, CorruptStoreError) as error:
        raise damaged(f"is damaged in line {number}", path, fix=f"delete {path}; only the job's history is lost") from error
