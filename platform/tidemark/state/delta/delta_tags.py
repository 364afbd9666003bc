"""Keys by which Tidemark's commits to Delta tables are known; they stand in a commit's own metadata."""

from __future__ import annotations

from typing import Final

LINEAGE: Final = "tidemark.lineage"
EPOCH: Final = "tidemark.epoch"
"""The epoch that a commit publishes, as text."""

JOB: Final = "tidemark.job"
"""The job that made a commit; one without it was made by an earlier release, or by somebody else."""

MAINTENANCE: Final = "tidemark.maintenance"
"""Of commits that change nothing of what a table says, and so are no foreign ones."""

CREATED: Final = "created"
"""What ``MAINTENANCE`` says of a commit that makes a table, without rows."""

LOST_FILES: Final = "lost-files"
"""What ``MAINTENANCE`` says of a commit that takes files out of a table which somebody deleted."""

REWIND: Final = "tidemark.rewind"
"""Of the commit by which a rewind puts a table back; its lineage and epoch are those that begin there."""

GIVEN_UP: Final = "tidemark.rewind-given-up"
"""Of a commit that changes nothing: by it a rewind knows that it was given up. Its name, and the number of the try."""

COLUMNS_FOR: Final = "tidemark.columns-for"
"""Of a commit that gives the table columns and no rows: lineage and epoch, with a slash between, of the rows that need them."""

REWRITE_FOLDER: Final = "tidemark.folder"
"""Of a commit that writes rows of the table anew: the folder, within the table, of the files that have them."""

REPUBLISHED: Final = "tidemark.republished"
"""Of a commit that publishes an epoch again, whose rows the table no longer had."""

MODE: Final = "tidemark.mode"
"""Of a commit whose rows replace others: ``upsert``."""
