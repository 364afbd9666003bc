"""What a rewind does to a Delta table: it puts the table back, and closes it to what the lineage that ends there has not published yet.

A driver may have stopped between the commit of an epoch and its publication, and wake long after the rewind. So the transaction by which
it would know that epoch as published is written by the rewind.
"""

from __future__ import annotations

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError

from tidemark.errors import PublishError, RewindError
from tidemark.savepoints.rewind_note import RewindNote
from tidemark.savepoints.rewind_plan import shown_since
from tidemark.savepoints.savepoint import TableVersion
from tidemark.savepoints.table_versions import open_table
from tidemark.state.delta_tags import EPOCH, LINEAGE, MAINTENANCE, REWIND
from tidemark.state.redaction import redacted, without_secrets


def put_back(output: str, version: TableVersion, note: RewindNote) -> bool:
    """Put a table back, unless that was done; returns whether it had to be.

    Raises:
        RewindError: the table is gone, or somebody else wrote to it since.
        PublishError: it could not be put back now.
    """
    table = open_table(output, version.location)
    if table is None:
        raise RewindError(
            f"the table of output {output!r} is gone in the middle of a rewind",
            fix="put it back, and give the same command again",
            uid=output,
            place=version.location,
        )
    since = shown_since(version, table.version())
    if any(commit.tags.get(REWIND) == note.identity for commit in since):
        return False
    if foreign := [commit for commit in since if commit.foreign]:
        raise RewindError(
            f"somebody else wrote version {foreign[0].version} of the table of output {output!r} while the rewind was under way",
            fix="undo that version (Delta's RESTORE to the one before), see that nobody writes there, and give the same command again",
            uid=output,
            place=version.location,
        )
    try:
        if since:
            tags = {LINEAGE: note.lineage, EPOCH: str(note.epoch), REWIND: note.identity}
            closing = _closing(output, note)
            table.restore(
                version.version, commit_properties=CommitProperties(custom_metadata=tags, app_transactions=[closing] if closing else None)
            )
        else:
            _close(table, output, note)
    except (DeltaError, OSError) as error:
        text = redacted(str(error)).splitlines()
        raise PublishError(
            f"the table of output {output!r} could not be put back to version {version.version}: {text[0] if text else 'no reason given'}",
            fix="mend the table's place (space, permission, network) and give the same command again: it goes on where it stopped",
            uid=output,
            place=version.location,
        ) from without_secrets(error)
    return bool(since)


def _close(table: DeltaTable, output: str, note: RewindNote) -> None:
    """Commit the transaction alone to a table that needs nothing else, if it does not have it."""
    closing = _closing(output, note)
    if closing is None:
        return
    done = table.transaction_version(closing.app_id)
    if done is None or done < closing.version:
        table.create_write_transaction(
            actions=[],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata={MAINTENANCE: "rewind", REWIND: note.identity},
                app_transactions=[closing],
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )


def _closing(output: str, note: RewindNote) -> Transaction | None:
    """Return the transaction of the last epoch that goes, as its publication has it; None where an older release began the rewind."""
    return Transaction(f"{note.ended.lineage}/{output}", note.ended.epoch) if note.ended is not None else None
