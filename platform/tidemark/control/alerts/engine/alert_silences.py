"""Silences suppress alerts for a time, such as during maintenance. Small files of the job store.

They are in ``_alerts/silences/`` at the store's root; no job can have that name. A silence expires by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tidemark.control.alerts.model.alert_settings import RULES, RuleName
from tidemark.errors import CorruptStoreError, DefinitionError, FormatError, TakenNameError
from tidemark.names import validate_name
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.store.documents import create_document, read_document
from tidemark.state.store.store import JobStore

SILENCES = "_alerts/silences"
KIND = "alert-silence"


@dataclass(frozen=True)
class Silence:
    """A silence: alerts that are not sent until it ends.

    Args:
        name: its name, with which it can be ended early.
        until: when it ends, milliseconds.
        jobs: names of jobs, with ``*`` and ``?``.
        rule: one rule, None for all.
        at: when it was created, milliseconds.
        by: who created it.
        why: the reason.
    """

    name: str
    until: int
    jobs: str = "*"
    rule: RuleName | None = None
    at: int = 0
    by: str = ""
    why: str = ""

    def covers(self, job: str, rule: RuleName) -> bool:
        """Return whether it covers a job's rule."""
        return self.rule in (None, rule) and fnmatchcase(job, self.jobs)


def silenced(silences: Iterable[Silence], *, job: str, rule: RuleName) -> bool:
    """Return whether one of the silences covers a job's rule."""
    return any(silence.covers(job, rule) for silence in silences)


def add_silence(root: JobStore, silence: Silence) -> None:
    """Begin a silence.

    Raises:
        InvalidNameError: its name is not allowed.
        DefinitionError: there is one of that name that has not ended, it ends before it begins, its rule is unknown, or one of its texts
            contains a secret.
    """
    require_no_secret(name=silence.name, jobs=silence.jobs, by=silence.by, why=silence.why)
    if silence.until <= silence.at:
        raise DefinitionError(f"silence {silence.name!r} ends before it begins", fix="set an end in the future")
    if silence.rule is not None and silence.rule not in RULES:
        raise DefinitionError(f"silence {silence.name!r} has an unknown rule {silence.rule!r}", fix=f"name one of {', '.join(RULES)}")
    path = _path(silence.name)
    there = _read(root, path)
    if there is not None and there.until <= silence.at:
        root.delete([path])
    if not create_document(root, path, kind=KIND, value=silence):
        raise TakenNameError(f"there is a silence {silence.name!r} already", fix="choose another name, or end that one first")


def end_silence(root: JobStore, name: str) -> bool:
    """End a silence early; False if there is none of that name.

    Raises:
        LinkedPathError: it lies behind a symbolic link.
    """
    path = _path(name)
    there = root.exists(path)
    root.require_no_link(path)
    root.delete([path])
    return there


def read_silences(root: JobStore, now: int) -> tuple[Silence, ...]:
    """Return the silences that have not ended, sorted by name. One that cannot be read silences nothing."""
    found = []
    for file in root.list(SILENCES):
        silence = _read(root, file.path)
        if silence is not None and silence.until > now:
            found.append(silence)
    return tuple(sorted(found, key=lambda silence: silence.name))


def delete_expired(root: JobStore, now: int, *, kept_ms: int = 604_800_000) -> None:
    """Delete silences that ended a week ago or more."""
    files = [file.path for file in root.list(SILENCES)]
    ended = []
    for path in files:
        silence = _read(root, path)
        if silence is not None and silence.until + kept_ms <= now:
            ended.append(path)
    root.delete(ended)


def _read(root: JobStore, path: str) -> Silence | None:
    """Return a silence; None if it does not exist or cannot be read."""
    try:
        return read_document(root, path, kind=KIND, form=Silence)
    except (CorruptStoreError, FormatError):
        return None


def _path(name: str) -> str:
    return f"{SILENCES}/{validate_name('silence', name)}.json"
