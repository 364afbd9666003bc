"""What a job's log says of an output's place, and the error for a place that no longer holds it."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.table_position import Lost
from tidemark.state.log.records import SinkPosition
from tidemark.state.store.store import JobStore


@dataclass(frozen=True)
class Expected:
    """What a job's log knows of a place.

    Args:
        position: where it stood before the newest epoch, None where the log of an earlier release does not say.
        newest: lineage and number of the newest epoch before that one with rows for the place, where only that is known.
    """

    position: SinkPosition | None = None
    newest: tuple[str, int] | None = None


class OutputPosition:
    """Where one output's place stands, as far as the job knows.

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
        """Say what the job's log knows of the place; what this process has seen of it since goes before that."""
        self.expected = expected
        self.known = self.known if self.known is not None else expected.position

    def missing(self, known: SinkPosition, lost: Lost) -> MissingEpochsError:
        """Return the error that the place no longer holds what was published to it."""
        return missing_error(self.output, self.job, str(self.store.location), known, lost)


def missing_error(output: str, job: str, place: str, known: SinkPosition, lost: Lost) -> MissingEpochsError:
    """Return the error for a place that no longer holds what was published to it."""
    upto = f" up to epoch {known.epoch}" if known.epoch >= 0 else ""
    at = f", at version {known.version}" if known.version >= 0 else ""
    now = f"is at version {lost.version}" if lost.version >= 0 else "has nothing"
    name = job or "JOB"
    return MissingEpochsError(
        f"output {output!r} was published{upto}{at}, and its place {now} and no longer holds all of that: {lost.why}",
        fix=f"publish again what is missing (`--missing-epochs republish` of `tidemark start {name}` and `tidemark run`, "
        "missing_epochs='republish' of tm.run), put the job back to where the place is "
        f"(`tidemark rewind {name} --to SAVEPOINT`), or go on without those epochs (`--missing-epochs accept`), which the job's log keeps; "
        "nothing was changed",
        job=job or None,
        uid=output,
        epoch=known.epoch if known.epoch >= 0 else None,
        place=place,
    )


def staged_files_lost(output: str, job: str, place: str, epoch: int) -> MissingEpochsError:
    """Return the error for a committed epoch whose staged files were deleted before they were shown, or together with the place."""
    name = job or "JOB"
    return MissingEpochsError(
        f"output {output!r} does not show epoch {epoch}, which is committed, and the files that were staged for it are deleted",
        fix="restore the place from a backup that has them, put the job back to an epoch before "
        f"(`tidemark rewind {name} --to SAVEPOINT`), or go on without that epoch (`--missing-epochs accept` of `tidemark start {name}` and "
        "`tidemark run`), which the job's log keeps; nothing was changed",
        job=job or None,
        uid=output,
        epoch=epoch,
        place=place,
    )


def published_files_lost(output: str, job: str, place: str, epoch: int) -> MissingEpochsError:
    """Return the error for a folder in which no file of the newest published epoch is left."""
    name = job or "JOB"
    return MissingEpochsError(
        f"output {output!r} was published up to epoch {epoch}, and its place no longer holds any file of that epoch",
        fix="restore the files from a backup; or, if readers move or delete files that they have read, say so: tm.parquet(..., "
        f"readers_move_files=True); or put the job back to an epoch before (`tidemark rewind {name} --to SAVEPOINT`); or go on without "
        f"them (`--missing-epochs accept` of `tidemark start {name}` and `tidemark run`), which the job's log keeps; nothing was changed",
        job=job or None,
        uid=output,
        epoch=epoch,
        place=place,
    )
