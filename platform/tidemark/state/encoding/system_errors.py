"""Finds an operating system's refusal in the text of any library's error, with its fix. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Cause(NamedTuple):
    """The cause of an error, in words, and its fix."""

    what: str
    fix: str


_KNOWN: Final[tuple[tuple[re.Pattern[str], Cause], ...]] = (
    (
        re.compile(r"No space left on device|os error 28\b|\[Errno 28\]|There is not enough space on the disk"),
        Cause("there is no space left on the disk", "free space there (`df -h` shows it), or give the place a larger disk"),
    ),
    (
        re.compile(r"Disk quota exceeded|os error 122\b|\[Errno 122\]"),
        Cause("the disk quota is used up", "free space there, or raise the quota of the user"),
    ),
    (
        re.compile(r"Too many open files|os error 2[34]\b|\[Errno 2[34]\]"),
        Cause("too many files are open", "raise the limit of open files (`ulimit -n`) of the process's user, and start it again"),
    ),
    (
        re.compile(r"Read-only file system|os error 30\b|\[Errno 30\]"),
        Cause("the file system is read-only", "mount it writable; if it became read-only by itself, its disk fails (`dmesg`)"),
    ),
    (
        re.compile(r"Permission denied|Operation not permitted|os error (?:13|1)\b|\[Errno (?:13|1)\]|AccessDeniedException"),
        Cause("permission is denied", "let the user of the process read and write there (`ls -ld` shows the permissions)"),
    ),
    (
        re.compile(r"Input/output error|os error 5\b|\[Errno 5\]"),
        Cause(
            "the disk does not read or write (input/output error)",
            "check the disk (`dmesg`, `smartctl`), or move the place to another one",
        ),
    ),
    (
        re.compile(r"Cannot allocate memory|os error 12\b|\[Errno 12\]"),
        Cause("the machine has no memory left", "end other programs, or give the machine more memory"),
    ),
)


def system_cause(text: str) -> Cause | None:
    """Return the operating system's refusal in an error's text, None if it has none.

    >>> system_cause("Unable to copy data to file: No space left on device (os error 28)").what
    'there is no space left on the disk'
    >>> system_cause("no such table") is None
    True
    """
    return next((cause for pattern, cause in _KNOWN if pattern.search(text)), None)
