"""Data checks that failed, as told by who ran them (such as Dagster): small files, which the supervisor's alerts take up.

They lie in ``_alerts/checks/<job>/<check>/`` at the store's root, one file per verdict; a verdict is never written over, so that a
check that failed and passed between two looks is told all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from uuid import uuid4

from tidemark.control.alerts.engine.alert_rules import FailedCheck
from tidemark.control.model.upgrade_records import UpgradeCheck, newest_step, report_upgrade_check
from tidemark.errors import CorruptStoreError, FormatError
from tidemark.names import validate_name
from tidemark.state.store.documents import create_document, read_document
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore

CHECKS: Final = "_alerts/checks"
KIND: Final = "check-verdict"
_NAME = re.compile(r"(?P<at>\d{13,16})-(?P<verdict>failed|passed)-[0-9a-f]{8}\.json")


@dataclass(frozen=True)
class CheckVerdict:
    """What a check said of a job's data: when, and, if it failed, how bad that is and in words."""

    job: str
    check: str
    passed: bool
    at: int
    severity: Literal["warn", "error"] = "error"
    text: str = ""


@dataclass(frozen=True)
class VerdictFile:
    """A stored verdict by its path, which says the most important of it."""

    path: str
    job: str
    check: str
    passed: bool
    at: int


def report_check(root: JobStore, verdict: CheckVerdict) -> None:
    """Tell the verdict of a check; one that passes and had not failed leaves nothing behind, unless an upgrade of the job waits for it.

    Raises:
        InvalidNameError: the name of the job or the check could lead elsewhere.
        StoreError: the store cannot be reached.
    """
    folder = f"{CHECKS}/{job_folder(verdict.job)}/{validate_name('check', verdict.check)}"
    earlier = _files(root, folder)
    if verdict.passed:
        _report_to_upgrade(root, verdict)
    if verdict.passed and not any(not file.passed for file in earlier):
        return
    word = "passed" if verdict.passed else "failed"
    create_document(root, f"{folder}/{verdict.at:013d}-{word}-{uuid4().hex[:8]}.json", kind=KIND, value=verdict)
    if not verdict.passed:
        # Of failures the newest says all, so that they do not become many where no supervisor takes them up.
        root.delete(file.path for file in earlier if not file.passed and file.at <= verdict.at)


def _report_to_upgrade(root: JobStore, verdict: CheckVerdict) -> None:
    """Tell an upgrade whose new code is watched that a check has passed since; that of a failure looks at the verdicts themselves."""
    step = newest_step(root, verdict.job)
    if step is not None and step.step == "watching" and verdict.at >= step.at:
        told = UpgradeCheck(step.upgrade.identity, verdict.check, passed=True, at=verdict.at, text=verdict.text)
        report_upgrade_check(root, verdict.job, told)


def verdict_files(root: JobStore) -> Mapping[str, tuple[VerdictFile, ...]]:
    """Return the stored verdicts of all jobs, by job, oldest first."""
    found: dict[str, list[VerdictFile]] = {}
    for file in _files(root, CHECKS):
        found.setdefault(file.job, []).append(file)
    return {job: tuple(sorted(files, key=lambda file: (file.at, file.path))) for job, files in found.items()}


def failed_checks(root: JobStore, files: Iterable[VerdictFile]) -> tuple[FailedCheck, ...]:
    """Return the checks that failed and were not taken up yet, or still fail, by name. ``files`` are those of one job."""
    newest = {file.check: file for file in files if not file.passed}
    found = []
    for name, file in sorted(newest.items()):
        try:
            verdict = read_document(root, file.path, kind=KIND, form=CheckVerdict)
        except (CorruptStoreError, FormatError):
            # Its name says enough to tell that it failed.
            verdict = CheckVerdict(file.job, name, passed=False, at=file.at, text="what it said cannot be read")
        if verdict is not None:
            found.append(FailedCheck(name, verdict.severity, verdict.at, verdict.text))
    return tuple(found)


def delete_processed(root: JobStore, files: Iterable[VerdictFile]) -> None:
    """Delete verdicts that were taken up: all but the newest failure of a check that still fails. ``files`` are those of one job."""
    by_check: dict[str, list[VerdictFile]] = {}
    for file in files:
        by_check.setdefault(file.check, []).append(file)
    root.delete(file.path for found in by_check.values() for file in (found if found[-1].passed else found[:-1]))


def _files(root: JobStore, folder: str) -> list[VerdictFile]:
    found = []
    for file in root.list(folder):
        *_, job, check, name = ("", "", *file.path.split("/"))
        parts = _NAME.fullmatch(name)
        if parts is not None:
            found.append(VerdictFile(file.path, job, check, parts["verdict"] == "passed", int(parts["at"])))
    return found
