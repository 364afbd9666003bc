"""Verdicts of data checks, reported by the process that ran them (such as Dagster): small files, which the supervisor's alerts read.

They are in ``_alerts/checks/<job>/<check>/`` at the store's root, one file per verdict; a verdict is never overwritten, so that a check
that failed and passed between two evaluations is notified, too.
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
    """A check's verdict on a job's data: its time and, if it failed, its severity and text."""

    job: str
    check: str
    passed: bool
    at: int
    severity: Literal["warn", "error"] = "error"
    text: str = ""


@dataclass(frozen=True)
class VerdictFile:
    """A stored verdict by its path, which contains its main fields."""

    path: str
    job: str
    check: str
    passed: bool
    at: int


def report_check(root: JobStore, verdict: CheckVerdict) -> None:
    """Report the verdict of a check; a pass without an earlier failure stores nothing, unless an upgrade of the job waits for it.

    Raises:
        InvalidNameError: the name of the job or the check cannot be part of a path.
        StoreError: the store cannot be reached.
    """
    folder = f"{CHECKS}/{job_folder(verdict.job)}/{validate_name('check', verdict.check)}"
    earlier = _files(root, folder)
    if verdict.passed:
        _report_to_upgrade(root, verdict)
    if verdict.passed and (all(file.passed for file in earlier) or earlier[-1].passed):
        # One pass after a failure is enough, so that they do not accumulate where no process evaluates the rule.
        return
    word = "passed" if verdict.passed else "failed"
    create_document(root, f"{folder}/{verdict.at:013d}-{word}-{uuid4().hex[:8]}.json", kind=KIND, value=verdict)
    if not verdict.passed:
        # Only the newest failure is kept, so that they do not accumulate without a supervisor.
        root.delete(file.path for file in earlier if not file.passed and file.at <= verdict.at)


def _report_to_upgrade(root: JobStore, verdict: CheckVerdict) -> None:
    """Report to an upgrade in probation that a check has passed; for failures the upgrade reads the verdicts themselves."""
    step = newest_step(root, verdict.job)
    if step is not None and step.step == "watching" and verdict.at >= step.at:
        passed = UpgradeCheck(step.upgrade.identity, verdict.check, passed=True, at=verdict.at, text=verdict.text)
        report_upgrade_check(root, verdict.job, passed)


def verdict_files(root: JobStore) -> Mapping[str, tuple[VerdictFile, ...]]:
    """Return the stored verdicts of all jobs, by job, oldest first."""
    found: dict[str, list[VerdictFile]] = {}
    for file in _files(root, CHECKS):
        found.setdefault(file.job, []).append(file)
    return {job: tuple(files) for job, files in found.items()}


def failed_checks(root: JobStore, files: Iterable[VerdictFile]) -> tuple[FailedCheck, ...]:
    """Return the checks with a failure that was not processed yet, or that still fail, by name. ``files`` are those of one job."""
    newest = {file.check: file for file in files if not file.passed}
    found = []
    for name, file in sorted(newest.items()):
        try:
            verdict = read_document(root, file.path, kind=KIND, form=CheckVerdict)
        except (CorruptStoreError, FormatError):
            # Its name shows that it failed.
            verdict = CheckVerdict(file.job, name, passed=False, at=file.at, text="its verdict cannot be read")
        if verdict is not None:
            found.append(FailedCheck(name, verdict.severity, verdict.at, verdict.text))
    return tuple(found)


def delete_processed(root: JobStore, files: Iterable[VerdictFile]) -> None:
    """Delete processed verdicts: all but the newest failure of a check that still fails. ``files`` are those of one job."""
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
    return sorted(found, key=lambda file: (file.at, file.path))
