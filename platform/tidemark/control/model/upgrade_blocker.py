"""What blocks the next step of an upgrade, as the last process that tried it saw it; only displayed, nothing depends on it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidemark.control.model.paths import UPGRADE_BLOCKER
from tidemark.control.model.upgrade_records import UpgradeStep
from tidemark.errors import TidemarkError
from tidemark.state.encoding.redaction import redacted
from tidemark.state.store.documents import read_intact_document, write_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

KIND: Final = "upgrade-trouble"


@dataclass(frozen=True)
class UpgradeBlocker:
    """An error that blocks a step.

    Args:
        step: the step's number; for another step than the newest one the record is outdated.
        since: when it was seen first, milliseconds.
        at: when it was seen last.
        by: the process that tried.
        code: the error's code.
        text: the error's message, with its fix.
    """

    step: int
    since: int
    at: int
    by: str
    code: str
    text: str


def record_blocker(store: JobStore, step: UpgradeStep, error: TidemarkError, *, by: str, now: int) -> None:
    """Write the error that blocks a step; does nothing if that fails, since the caller raises the error. ``store`` is the root store."""
    with suppress(TidemarkError):
        known = read_blocker(store, step)
        since = known.since if known is not None and known.code == error.code else now
        made = UpgradeBlocker(step.number, since, now, by, error.code, redacted(str(error)))
        write_document(store.at(job_folder(step.upgrade.job)), UPGRADE_BLOCKER, kind=KIND, value=made)


def read_blocker(store: JobStore, step: UpgradeStep) -> UpgradeBlocker | None:
    """Return what blocks a step; None if nothing is known to, or the record is damaged. ``store`` is the root store.

    Raises:
        FormatError: a newer release wrote it.
    """
    found = read_intact_document(store.at(job_folder(step.upgrade.job)), UPGRADE_BLOCKER, kind=KIND, form=UpgradeBlocker)
    return found if found is not None and found.step == step.number else None
