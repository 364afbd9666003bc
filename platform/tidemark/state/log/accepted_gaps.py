"""Gaps of outputs that the user accepted, until an epoch of the job's log records them: a crash in between does not ask again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.state.log.progress import OutputRepair
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.documents import read_intact_document, write_document
from tidemark.state.store.layout import ACCEPTED_GAPS
from tidemark.state.store.store import JobStore

KIND = "accepted-gaps"


@dataclass(frozen=True)
class AcceptedGaps:
    """The gaps that were accepted while an epoch was the newest, by output; void once another one is.

    Args:
        lineage: of the newest epoch then.
        epoch: its number.
        repairs: by output.
    """

    lineage: str
    epoch: int
    repairs: Mapping[str, OutputRepair]


def write_accepted(store: JobStore, head: EpochRecord, repairs: Mapping[str, OutputRepair]) -> None:
    """Record the accepted gaps, before they take effect. ``store`` is the store at the job's folder."""
    write_document(store, ACCEPTED_GAPS, kind=KIND, value=AcceptedGaps(head.lineage, head.epoch, repairs))


def read_accepted(store: JobStore, head: EpochRecord) -> Mapping[str, OutputRepair]:
    """Return the gaps accepted while an epoch is the newest, by output; none if the file is damaged: the user is then asked again.

    Raises:
        FormatError: a newer release wrote it.
    """
    found = read_intact_document(store, ACCEPTED_GAPS, kind=KIND, form=AcceptedGaps)
    return found.repairs if found is not None and (found.lineage, found.epoch) == (head.lineage, head.epoch) else {}
