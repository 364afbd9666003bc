"""Gaps of outputs that somebody accepted, until an epoch of the job's log notes them: a crash in between asks nobody again."""

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
    """What was accepted when an epoch was the newest, by output; of no use once another one is.

    Args:
        lineage: of the newest epoch then.
        epoch: its number.
        repairs: by output.
    """

    lineage: str
    epoch: int
    repairs: Mapping[str, OutputRepair]


def write_accepted(store: JobStore, head: EpochRecord, repairs: Mapping[str, OutputRepair]) -> None:
    """Write down what is accepted, before anything is done about it. ``store`` is the store at the job's folder."""
    write_document(store, ACCEPTED_GAPS, kind=KIND, value=AcceptedGaps(head.lineage, head.epoch, repairs))


def read_accepted(store: JobStore, head: EpochRecord) -> Mapping[str, OutputRepair]:
    """Return what was accepted while an epoch is the newest, by output; nothing where the file is damaged: then it is asked for again.

    Raises:
        FormatError: a newer release wrote it.
    """
    found = read_intact_document(store, ACCEPTED_GAPS, kind=KIND, form=AcceptedGaps)
    return found.repairs if found is not None and (found.lineage, found.epoch) == (head.lineage, head.epoch) else {}
