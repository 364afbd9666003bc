"""What a rewind does to a Delta table: it reverts the table, and fences it against epochs that the ended lineage has not published yet.

A driver may be suspended between the commit of an epoch and its publication, and wake long after the rewind. So the rewind writes the
transaction by which that driver recognizes the epoch as published.
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from tidemark.errors import PublishError, RewindError
from tidemark.savepoints.delta.table_versions import Commit, open_table
from tidemark.savepoints.model.rewind_journal import FORMER, RewindJournal
from tidemark.savepoints.model.savepoint import TableVersion
from tidemark.savepoints.rewind.rewind_plan import commits_since, content_commits, effective_commits, has_missing_commits
from tidemark.state.delta.delta_hooks import KEEP_LOG
from tidemark.state.delta.delta_tags import EPOCH, GIVEN_UP, JOB, LINEAGE, MAINTENANCE, REWIND
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.records import EpochRecord


def revert_table(job: str, output: str, version: TableVersion, journal: RewindJournal) -> bool:
    """Revert one of a job's tables, unless that was done already; return whether it had to be.

    Raises:
        RewindError: the table does not exist, another writer changed it since, or the rewind was aborted.
        PublishError: it could not be reverted now.
    """
    table = open_table(output, version.location)
    if table is None:
        raise RewindError(
            f"the table of output {output!r} was deleted during a rewind",
            fix="restore it, and give the same command again",
            uid=output,
            place=version.location,
        )
    after = commits_since(version, table.version())
    if any(_was_aborted_since(commit, journal) for commit in after):
        raise RewindError("the rewind was aborted by another process", fix="begin it again if wanted", uid=output, place=version.location)
    # For a table that needed nothing: the fencing commit shows it, or what the job published since, as a suspended process may be late.
    if any(commit.lineage == journal.lineage or commit.tags.get(REWIND) == journal.identity for commit in after):
        return False
    since = content_commits(effective_commits(after))
    if has_missing_commits(version, table.version(), after):
        raise RewindError(
            f"the Delta log of output {output!r} no longer covers the rewind: its entries were deleted",
            fix="restore the entries of its log from a backup, or write a version of the table (Delta's RESTORE) that has what it had "
            f"at version {version.version}; nothing of the rewind is lost",
            uid=output,
            place=version.location,
        )
    if foreign := [commit for commit in since if (commit.foreign and not commit.keeps(version.version)) or commit.of_other(job)]:
        raise RewindError(
            f"another writer wrote version {foreign[0].version} of the table of output {output!r} while the rewind was under way",
            fix=f"undo that (Delta's RESTORE to version {foreign[-1].version - 1}), stop all other writers, and give the same "
            "command again",
            uid=output,
            place=version.location,
        )
    try:
        if since:
            tags = {JOB: job, LINEAGE: journal.lineage, EPOCH: str(journal.epoch), REWIND: journal.identity}
            closing = _closing(output, journal)
            table.restore(
                version.version,
                commit_properties=CommitProperties(custom_metadata=tags, app_transactions=[closing] if closing else None),
                post_commithook_properties=KEEP_LOG,
            )
        else:
            _close(table, output, journal)
    except (DeltaError, OSError) as error:
        text = redacted(str(error)).splitlines()
        raise PublishError(
            f"the table of output {output!r} could not be reverted to version {version.version}: {text[0] if text else 'no reason given'}",
            fix="repair the table's place (space, permission, network) and give the same command again: it resumes where it stopped",
            uid=output,
            place=version.location,
        ) from without_secrets(error)
    return bool(since)


def applied_change(output: str, version: TableVersion, journal: RewindJournal, head: EpochRecord | None) -> str | None:
    """Return what a rewind already did to a table that cannot be undone, None if nothing.

    Args:
        output: the name of the job's output.
        version: the version that the table is to be reverted to.
        journal: the rewind's journal.
        head: the job's newest epoch.

    Raises:
        SinkError: the table cannot be read.
    """
    table = open_table(output, version.location)
    return _applied_change(table, output, version, journal, head) if table is not None else f"the table of output {output!r} was deleted"


def fence_aborted_rewind(
    output: str, version: TableVersion, journal: RewindJournal, head: EpochRecord | None, *, tries: int = 3
) -> str | None:
    """Commit to a table that the rewind is aborted, so that a suspended one cannot change it; returns what ``applied_change`` does.

    Raises:
        SinkError: the table cannot be read.
        PublishError: it cannot be written to now.
    """
    table = open_table(output, version.location)
    if table is None:
        return applied_change(output, version, journal, head)
    reason = _applied_change(table, output, version, journal, head)
    if reason is not None:
        return reason
    try:
        _commit_nothing(table, {GIVEN_UP: f"{journal.identity}/{journal.tries}"}, _current_transaction(table, output, journal))
    except (DeltaError, OSError) as error:
        if tries == 1:
            raise _not_written(output, version, error) from without_secrets(error)
        # The rewinding process may have been faster: check again.
        return fence_aborted_rewind(output, version, journal, head, tries=tries - 1)
    return None


def _not_written(output: str, version: TableVersion, error: Exception) -> PublishError:
    text = redacted(str(error)).splitlines()
    return PublishError(
        f"the table of output {output!r} cannot be written to: {text[0] if text else 'no reason given'}",
        fix="repair the table's place (space, permission, network) and give the same command again",
        uid=output,
        place=version.location,
    )


def _applied_change(table: DeltaTable, output: str, version: TableVersion, journal: RewindJournal, head: EpochRecord | None) -> str | None:
    newest = table.version()
    after = commits_since(version, newest)
    if has_missing_commits(version, newest, after):
        return f"the Delta log of output {output!r} no longer covers the rewind: its entries were deleted"
    own = [commit for commit in after if commit.tags.get(REWIND) == journal.identity]
    if any(commit.lineage is not None for commit in own):
        return f"the table of output {output!r} is reverted already, to version {version.version}"
    # The newest epoch has rows for the place that an output has now; a former one showed all before it had another.
    staged = not output.endswith(FORMER) and (head is None or output not in head.outputs or bool(head.outputs[output].files))
    if own and staged:
        epoch = f"epoch {journal.ended.epoch}" if journal.ended is not None else "the newest epoch"
        return f"the table of output {output!r} is fenced against {epoch} already, which it does not show yet"
    return None


def _was_aborted_since(commit: Commit, journal: RewindJournal) -> bool:
    """Return whether a commit aborts a rewind after the process that resumes it read the journal."""
    identity, _, number = commit.tags.get(GIVEN_UP, "").rpartition("/")
    return identity == journal.identity and int(number) > journal.tries


def _current_transaction(table: DeltaTable, output: str, journal: RewindJournal) -> Transaction | None:
    """Return the table's current fencing transaction: of two processes that commit it at once, one fails."""
    closing = _closing(output, journal)
    if closing is None:
        return None
    done = table.transaction_version(closing.app_id)
    return Transaction(closing.app_id, done if done is not None else -1)


def _close(table: DeltaTable, output: str, journal: RewindJournal) -> None:
    """Commit only the fencing transaction to a table that needs nothing else, if it does not have it."""
    closing = _closing(output, journal)
    if closing is None:
        return
    done = table.transaction_version(closing.app_id)
    if done is None or done < closing.version:
        _commit_nothing(table, {REWIND: journal.identity}, closing)


def _commit_nothing(table: DeltaTable, tags: Mapping[str, str], transaction: Transaction | None) -> None:
    """Make a commit that does not change a table's contents."""
    table.create_write_transaction(
        actions=[],
        mode="append",
        schema=table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=CommitProperties(
            custom_metadata={MAINTENANCE: "rewind", **tags}, app_transactions=[transaction] if transaction is not None else None
        ),
        post_commithook_properties=KEEP_LOG,
    )


def _closing(output: str, journal: RewindJournal) -> Transaction | None:
    """Return the publication transaction of the ended lineage's newest epoch; None if an older release began the rewind."""
    return Transaction(f"{journal.ended.lineage}/{output.partition(FORMER)[0]}", journal.ended.epoch) if journal.ended is not None else None
