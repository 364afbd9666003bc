"""The unread input of a submitted job as metadata of its observations: rows, and the consumer lag of each partition."""

from __future__ import annotations

from heapq import nlargest

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.state import JobStatus

MAX_SPLITS = 32
"""How many partitions are shown: those with most unread records."""


def waiting_metadata(status: JobStatus) -> MetadataValues:
    """Return the unread rows of a running job, and those of each partition of Kafka's; empty where they are not known."""
    waiting = status.load.waiting if status.load is not None else {}
    rows = [backlog.rows for backlog in waiting.values() if backlog.rows is not None]
    if not rows:
        return {}
    splits = {f"{source} {split}": count for source, backlog in waiting.items() for split, count in backlog.splits.items()}
    largest = dict(sorted(nlargest(MAX_SPLITS, splits.items(), key=lambda each: each[1]), key=lambda each: -each[1]))
    found: dict[str, MetadataItem] = {"tidemark/waiting_rows": sum(rows)}
    if largest:
        found["tidemark/waiting_rows_by_partition"] = dg.MetadataValue.json(largest)
    return found
