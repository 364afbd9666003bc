"""What a job's log knows of an output's place, and the errors for a place that no longer holds what was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.table_position import LostEpochs
from tidemark.state.log.records import SinkPosition
from tidemark.state.store.store import JobStore

_NAMED: Final = 3


@dataclass(frozen=True)
class Expected:
    """What a job's log knows of a place.

    Args:
        position: of the place before the newest epoch, None where an earlier release wrote the log without it.
        newest: lineage and number of the newest earlier epoch with rows for the place, where only that is known.
    """

    position: SinkPosition | None = None
    newest: tuple[str, int] | None = None


class OutputPosition:
    """One output's position, as far as the job knows.

    Args:
        output: its name.
        job: the job's name.
        store: at the place.
    """

    def __init__(self, output: str, job: str, store: JobStore) -> None:
        self.output = output
        self.job = job
        self.store = store
        self.expected = Expected()
        self.known: SinkPosition | None = None

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the place; a position that this process has seen since takes precedence."""
        self.expected = expected
        self.known = self.known if self.known is not None else expected.position

    def missing(self, known: SinkPosition, lost: LostEpochs) -> MissingEpochsError:
        """Return the error for this place, which no longer holds what was published to it."""
        before = self.expected.position
        exact = before is None or known.epoch != before.epoch
        return missing_error(self.output, self.job, str(self.store.location), known, lost, exact=exact)


def missing_error(output: str, job: str, place: str, known: SinkPosition, lost: LostEpochs, *, exact: bool = False) -> MissingEpochsError:
    """Return the error for a place that no longer holds what was published to it.

    Args:
        output: its name.
        job: the job's name.
        place: of the output.
        known: its known position.
        lost: what it has lost.
        exact: whether nothing was published after that position; the job's log has the one before the newest epoch.
    """
    upto = f" up to epoch {known.epoch}{'' if exact else ', or later'}" if known.epoch >= 0 else ""
    at = f", at version {known.version}" if known.version >= 0 else ""
    now = f"its place is at version {lost.version} and no longer holds all of that" if lost.version >= 0 else "no longer holds any of that"
    name = job or "JOB"
    commands = f"of `tidemark start {name}` and `tidemark run`"
    republish = f"publish again what is missing (`--missing-epochs republish` {commands}, missing_epochs='republish' of tm.run), "
    return MissingEpochsError(
        f"output {output!r} was published{upto}{at}, and {now}: {lost.why}",
        fix=f"{republish if lost.republishable else 'restore the place from a backup, '}rewind the job to where the place is "
        f"(`tidemark rewind {name} --to SAVEPOINT`), or continue without those epochs "
        f"(`--missing-epochs accept`{'' if lost.republishable else f' {commands}'}), which the job's log keeps; nothing was changed",
        job=job or None,
        uid=output,
        epoch=known.epoch if known.epoch >= 0 else None,
        place=place,
    )


def staged_files_lost(output: str, job: str, place: str, epoch: int) -> MissingEpochsError:
    """Return the error for a committed epoch whose staged files were deleted before publication, or together with the place."""
    name = job or "JOB"
    return MissingEpochsError(
        f"output {output!r} does not show epoch {epoch}, which is committed, and the files that were staged for it are deleted",
        fix="restore the place from a backup that has them, rewind the job to an earlier epoch "
        f"(`tidemark rewind {name} --to SAVEPOINT`), or continue without that epoch (`--missing-epochs accept` of `tidemark start {name}` "
        "and `tidemark run`), which the job's log keeps; nothing was changed",
        job=job or None,
        uid=output,
        epoch=epoch,
        place=place,
    )


def data_files_lost(output: str, job: str, place: str, version: int, paths: Sequence[str]) -> MissingEpochsError:
    """Return the error for deleted files that a table's newest version shows."""
    name = job or "JOB"
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    many = f"{len(paths)} data files" if len(paths) > 1 else "a data file"
    return MissingEpochsError(
        f"{many} of output {output!r} {'are' if len(paths) > 1 else 'is'} deleted, though version {version} of its table shows "
        f"{'them' if len(paths) > 1 else 'it'}: {', '.join(paths[:_NAMED])}{more}",
        fix="restore the deleted files from a backup, rewind the job to before they were written "
        f"(`tidemark rewind {name} --to SAVEPOINT`), or continue without their rows (`--missing-epochs accept` of `tidemark start {name}` "
        "and `tidemark run`), which removes them from the table and is kept in the job's log; nothing was changed",
        job=job or None,
        uid=output,
        place=place,
    )


def published_files_lost(output: str, job: str, place: str, epoch: int) -> MissingEpochsError:
    """Return the error for a folder that has no file of the newest published epoch."""
    name = job or "JOB"
    return MissingEpochsError(
        f"output {output!r} was published up to epoch {epoch}, and its place no longer holds any file of that epoch",
        fix="restore the files from a backup; or, if readers move or delete files that they have read, say so: tm.parquet(..., "
        f"readers_move_files=True); or rewind the job to an earlier epoch (`tidemark rewind {name} --to SAVEPOINT`); or continue without "
        f"them (`--missing-epochs accept` of `tidemark start {name}` and `tidemark run`), which the job's log keeps; nothing was changed",
        job=job or None,
        uid=output,
        epoch=epoch,
        place=place,
    )
