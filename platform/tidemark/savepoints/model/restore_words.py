"""How messages show the arguments of a restore: as Python code, and as command-line options."""

from __future__ import annotations

import re
from typing import Final

_BOTH: Final = re.compile(r"tm\.run\(job, restore=tm\.Restore\('SAVEPOINT', .*?\)\) \(--restore SAVEPOINT (.*?)\)")


def by_restore(argument: str, option: str) -> str:
    """Return both forms of a restore with an argument; either can be used as it stands, with a savepoint's name.

    >>> by_restore("uids={'a': 'b'}", "--map a=b")
    "tm.run(job, restore=tm.Restore('SAVEPOINT', uids={'a': 'b'})) (--restore SAVEPOINT --map a=b)"
    """
    return f"tm.run(job, restore=tm.Restore('SAVEPOINT', {argument})) (--restore SAVEPOINT {option})"


def by_option(text: str) -> str:
    """Return a text that shows restores as options only, for a command that takes them and has its savepoint.

    >>> by_option("say so: tm.run(job, restore=tm.Restore('SAVEPOINT', uids={'a': 'b'})) (--restore SAVEPOINT --map a=b); or not")
    'say so: --map a=b; or not'
    """
    return _BOTH.sub(r"\1", text)


def with_savepoint(text: str, job: str) -> str:
    """Return a text that also says how to take the savepoint that its restores name, if it names any.

    >>> with_savepoint("undo the change", "fares")
    'undo the change'
    >>> with_savepoint("--restore SAVEPOINT", "fares")[:78]
    '--restore SAVEPOINT; where there is no savepoint yet, `tidemark savepoint trig'
    """
    taken = f"where there is no savepoint yet, `tidemark savepoint trigger {job}` takes one, also of a job that does not run"
    return f"{text}; {taken}" if "SAVEPOINT" in text else text


LEAVE_BEHIND = by_restore("allow_non_restored_state=True", "--allow-non-restored-state")
"""A restore that leaves behind what nothing in the job claims."""
