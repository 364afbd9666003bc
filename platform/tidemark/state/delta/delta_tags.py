"""Keys that identify Tidemark's commits to Delta tables, in the commits' metadata."""

from __future__ import annotations

from typing import Final

LINEAGE: Final = "tidemark.lineage"
EPOCH: Final = "tidemark.epoch"
"""The epoch that a commit publishes, as text."""

JOB: Final = "tidemark.job"
"""The job that made a commit; one without it was made by an earlier release, or by another writer."""

MAINTENANCE: Final = "tidemark.maintenance"
"""Of commits that do not change a table's contents, and so do not count as another writer's."""

CREATED: Final = "created"
"""Value of ``MAINTENANCE`` for a commit that creates a table, without rows."""

DESCRIBED: Final = "descriptions"
"""Value of ``MAINTENANCE`` for a commit that changes a table's description, or comments of its columns."""

LOST_FILES: Final = "lost-files"
"""Value of ``MAINTENANCE`` for a commit that removes from a table files which another process deleted."""

REWIND: Final = "tidemark.rewind"
"""Of the commit by which a rewind reverts a table; its lineage and epoch are those that begin there."""

GIVEN_UP: Final = "tidemark.rewind-given-up"
"""Of a commit that changes nothing: it marks a rewind as aborted. Its identity, and the number of the attempt."""

COLUMNS_FOR: Final = "tidemark.columns-for"
"""Of a commit that gives the table columns and no rows: lineage and epoch, with a slash between, of the rows that need them."""

REWRITE_FOLDER: Final = "tidemark.folder"
"""Of a commit that rewrites rows of the table: the folder, within the table, of the files that have them."""

REPUBLISHED: Final = "tidemark.republished"
"""Of a commit that publishes an epoch again, whose rows the table no longer had."""

MODE: Final = "tidemark.mode"
"""Of a commit whose rows replace others: ``upsert``."""
