"""The epochs of a job's history after a known one, oldest first and a bounded number at a time: for readers that follow it.

A reader remembers the lineage and the number of the last epoch it read. However far behind it is, it reads only the blocks it needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.history_blocks import BLOCK_LINES, blocks_of, decode_line, read_lines
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

_MARKS: Final = ("lineage", "epoch")


def epochs_after(store: JobStore, job: str, lineage: str, epoch: int, *, limit: int, splits: bool = True) -> tuple[EpochProgress, ...]:
    """Return up to ``limit`` epochs that follow a known one, oldest first, also those of later lineages.

    If the history no longer has the known one, all its epochs are returned as following.

    Args:
        store: the root store.
        job: the job's name.
        lineage: of the known epoch.
        epoch: its number.
        limit: greatest number of epochs.
        splits: read the splits of sources, too; without them it takes half the time where there are many.

    Raises:
        CorruptStoreError: a block is damaged.
        FormatError: a newer release wrote it.
    """
    folder = store.at(job_folder(job))
    blocks = blocks_of(folder)
    found = _place_of(folder, blocks, lineage, epoch)
    first, after = found if found is not None else (0, -1)
    epochs: list[EpochProgress] = []
    for block in blocks[first:]:
        lines = read_lines(folder, block)
        start = after + 1 if block == blocks[first] else 0
        for number, line in enumerate(lines[start : start + limit - len(epochs)], start + 1):
            epochs.append(decode_line(line, number, folder, block, splits=splits))
        if len(epochs) >= limit:
            break
    return tuple(epochs)


def epoch_numbered(store: JobStore, job: str, epoch: int, *, before: EpochProgress) -> EpochProgress | None:
    """Return the newest epoch of a number that is older in the history than another one; None if the history has none.

    Used to find where a new lineage began: at the epoch before its first one.

    Args:
        store: the root store.
        job: the job's name.
        epoch: the number.
        before: an epoch of the history.
    """
    folder = store.at(job_folder(job))
    passed = False
    for block, number, line in _backwards(folder, blocks_of(folder)):
        if passed and _is(line, None, epoch):
            return decode_line(line, number, folder, block)
        passed = passed or _is(line, before.lineage, before.epoch)
    return None


def _place_of(folder: JobStore, blocks: list[int], lineage: str, epoch: int) -> tuple[int, int] | None:
    """Return the index of the block that an epoch is in, and that of its line."""
    if not blocks:
        return None
    newest = read_lines(folder, blocks[-1])
    at = _guess(newest, len(blocks), lineage, epoch)
    if at is not None:
        index, line = at
        lines = newest if index == len(blocks) - 1 else read_lines(folder, blocks[index])
        if line < len(lines) and _is(lines[line], lineage, epoch):
            return at
    places = {block: index for index, block in enumerate(blocks)}
    for block, number, text in _backwards(folder, blocks):
        if _is(text, lineage, epoch):
            return places[block], number - 1
    return None


def _guess(newest: list[bytes], blocks: int, lineage: str, epoch: int) -> tuple[int, int] | None:
    """Return the likely place of an epoch of the newest lineage: one line per epoch, and all blocks but the newest are full."""
    last = _marks(newest[-1]) if newest else None
    if last is None or last[0] != lineage or last[1] < epoch:
        return None
    back = last[1] - epoch
    if back < len(newest):
        return blocks - 1, len(newest) - 1 - back
    full, rest = divmod(back - len(newest), BLOCK_LINES)
    return (blocks - 2 - full, BLOCK_LINES - 1 - rest) if full <= blocks - 2 else None


def _backwards(folder: JobStore, blocks: list[int]) -> Iterator[tuple[int, int, bytes]]:
    for block in reversed(blocks):
        lines = read_lines(folder, block)
        yield from ((block, number, lines[number - 1]) for number in range(len(lines), 0, -1))


def _is(line: bytes, lineage: str | None, epoch: int) -> bool:
    # Most lines are ruled out by their text, without decoding them.
    if b'"epoch":%d' % epoch not in line:
        return False
    found = _marks(line)
    return found is not None and found[1] == epoch and lineage in {None, found[0]}


def _marks(line: bytes) -> tuple[str, int] | None:
    try:
        plain = json.loads(line)
        lineage, epoch = (plain[name] for name in _MARKS)
    except (ValueError, KeyError, TypeError):
        return None
    return str(lineage), int(epoch)
