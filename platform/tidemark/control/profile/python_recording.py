"""Samples the stacks of running Python processes with py-spy (the extra ``profile``), from outside: they run no code for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import Final

from tidemark.control.profile.driver_processes import DriverProcesses
from tidemark.control.profile.stacks import Stack, python_stacks, without_waiting
from tidemark.errors import ProfileError, SetupError
from tidemark.state.encoding.redaction import redacted

PER_SECOND: Final = 100
DRIVER: Final = "driver"
WORKERS: Final = "Python workers"

_END_SECONDS: Final = 60
_REFUSED: Final = ("permission denied", "operation not permitted", "os error 1)", "os error 13)")
_PERMISSION: Final = (
    "allow this user to look into its own processes: sudo sysctl kernel.yama.ptrace_scope=0; in a container add the capability SYS_PTRACE"
    " (docker run --cap-add SYS_PTRACE); or look at the JVM alone: --only jvm"
)


class PythonRecording:
    """A recording of one Python process and all below it.

    Args:
        driver: the driver's processes.
        root: the process's id.
        folder: for what py-spy writes.
        idle: also sample threads that wait.

    Raises:
        SetupError: py-spy is not installed.
    """

    def __init__(self, driver: DriverProcesses, root: int, folder: Path, *, idle: bool) -> None:
        self._driver, self._root, self._idle = driver, root, idle
        self._file, self._log = folder / f"python-{root}.raw", folder / f"python-{root}.log"
        self._program = _py_spy()
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, seconds: int) -> None:
        """Begin to record; the processes are not stopped for samples.

        Args:
            seconds: for how long.
        """
        options = ["--pid", str(self._root), "--duration", str(seconds), "--rate", str(PER_SECOND), "--subprocesses", "--function"]
        options += ["--nonblocking", "--format", "raw", "--output", str(self._file), *(["--idle"] if self._idle else [])]
        with self._log.open("wb") as log:
            self._running = subprocess.Popen([self._program, "record", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def check(self) -> None:
        """Raise if it has failed.

        Raises:
            SetupError: the system does not allow it.
            ProfileError: for another reason, such as that the process has ended.
        """
        if self._running is not None and self._running.poll():
            raise self._failed()

    def stacks(self) -> Counter[Stack]:
        """Wait until it has ended, and return its stacks.

        Raises:
            SetupError, ProfileError: as ``check`` does.
        """
        if self._running is None:
            return Counter()
        try:
            self._running.wait(_END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise self._failed() from error
        self.check()
        if not self._file.exists():
            raise self._failed()
        text = self._file.read_text(encoding="utf-8", errors="replace")
        found = python_stacks(text, {self._driver.python: DRIVER}, other=WORKERS)
        return found if self._idle else without_waiting(found)

    def discard(self) -> None:
        """End it if it goes on."""
        if self._running is not None and self._running.poll() is None:
            self._running.kill()
            self._running.wait()

    def _failed(self) -> SetupError | ProfileError:
        said = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        if any(words in said.lower() for words in _REFUSED):
            return SetupError(f"py-spy may not look into process {self._root}", fix=_PERMISSION, job=self._driver.job)
        last = redacted(lines[-1]).rstrip(".") if lines else "it said nothing"
        return ProfileError(
            f"py-spy cannot sample process {self._root}: {last}",
            fix="try again; if the driver was restarted meanwhile, tidemark status says so",
            job=self._driver.job,
        )


def _py_spy() -> str:
    beside = Path(sysconfig.get_path("scripts"), "py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise SetupError(
            f"py-spy is not installed beside {sys.executable}",
            fix="run pip install -e '.[profile]' in the checkout, or look at the JVM alone: --only jvm",
        )
    return found
