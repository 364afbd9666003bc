"""Runs a job in a new process and kills it at a named point, as a machine that loses power would.

    died = run_until_crash("tests.taxi:drain", "after-commit", [str(folder)])
    tm.run(job)        # a restart finishes what the killed process had committed
    ...                # compare the tables with those of an undisturbed run

Points are listed in ``tidemark.crashpoints.POINTS``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import KILLED, POINTS
from tidemark.errors import CrashTestError, DefinitionError

__all__ = ["CrashTestError", "Ending", "run_until_crash"]

_VARIABLE: Final = "TIDEMARK_CRASH_AT"
_SHOWN_LINES: Final = 40
_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.02
_CALL: Final = """
import importlib, sys
module, _, function = sys.argv[1].partition(":")
sys.path.insert(0, "")
getattr(importlib.import_module(module), function)(*sys.argv[2:])
"""


@dataclass(frozen=True)
class Ending:
    """How a process ended: killed at the requested point, or by itself with an exit status; and its output."""

    point: str
    killed: bool
    status: int
    output: str

    def require_killed(self) -> Ending:
        """Return this ending if the process was killed at the point.

        Raises:
            CrashTestError: the point was not reached, or not often enough; or the process failed before it.
        """
        if self.killed:
            return self
        how = "came to its end without reaching it" if self.status == 0 else f"ended with status {self.status} before it"
        raise CrashTestError(
            f"the process should have been killed at {self.point!r} and {how}; its last lines:\n{_last_lines(self.output)}",
            fix="choose a point that the function reaches, for 'name:3' at least three times",
        )


def run_until_crash(
    target: str,
    point: str,
    args: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_seconds: float = 600,
) -> Ending:
    """Call a function in a new process that is killed with SIGKILL when it reaches a point.

    The whole process group is killed, including the JVM if the process started one. When this returns none of them is running.

    Args:
        target: ``module:function``, importable from ``cwd``; called with ``args`` as texts.
        point: one of ``tidemark.crashpoints.POINTS``; ``name:3`` for the third time that it is reached.
        args: passed to the function.
        environment: variables to set besides this process's own.
        cwd: the process's working directory; this one's by default.
        timeout_seconds: how long the process may take.

    Raises:
        DefinitionError: there is no such point, or the target is not of that form.
        CrashTestError: the process took too long, or another signal ended it; it is not running any more.
    """
    name, _, count = point.partition(":")
    if name not in POINTS or (count and not (count.isdecimal() and int(count))):
        raise DefinitionError(
            f"{point!r} is not a crash point", fix=f"name one of {', '.join(POINTS)}, with ':3' after it for the third time"
        )
    if not all(target.partition(":")):
        raise DefinitionError(f"{target!r} does not name a function", fix="write 'module:function'")
    with tempfile.TemporaryFile() as output:
        command = [sys.executable, "-c", _CALL, target, *args]
        # A new process group, so that the JVM is killed with it; a file, since a pipe stays open as long as the JVM lives.
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {}), _VARIABLE: point},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise _lost(f"took more than {timeout_seconds} s to reach {point!r}", output) from error
        finally:
            _kill_group(process)
        text = _text(output)
    killed = status == -signal.SIGKILL and f"{KILLED} {point}" in text
    if status < 0 and not killed:
        raise CrashTestError(
            f"the process should have been killed at {point!r}; signal {-status} ended it elsewhere; its last lines:\n{_last_lines(text)}",
            fix="see the lines; the machine may be short of memory",
        )
    return Ending(point, killed, status, text)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the rest of the group, and wait until the kernel has removed it; processes that no parent reaps count as ended at last."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for _ in range(_LOOKS):
            os.killpg(process.pid, 0)
            SYSTEM_CLOCK.sleep(_LOOK_SECONDS)


def _lost(how: str, output: IO[bytes]) -> CrashTestError:
    return CrashTestError(
        f"the process {how}; its last lines:\n{_last_lines(_text(output))}", fix="raise timeout_seconds, or correct what blocks the process"
    )


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read().decode(errors="replace")


def _last_lines(text: str) -> str:
    return "\n".join(text.splitlines()[-_SHOWN_LINES:])
