"""A database server for tests, on a free port of loopback: started, stopped and killed by them, as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.control.drivers import until

HOST: Final = "127.0.0.1"


class ServerError(Exception):
    """A program of a server failed."""


@dataclass
class DatabaseServer(ABC):
    """A server, its files in a folder of their own."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    name: ClassVar[str]
    account: ClassVar[str]
    """Whom it runs as, where the tests run as root and there is such a user."""

    ends: ClassVar[signal.Signals]
    """The signal that ends it in order."""

    crashes: ClassVar[signal.Signals]
    """The signal that ends it as a crash does."""

    @classmethod
    def new_folder(cls) -> Path:
        """Make a folder for its files; not below pytest's, which is closed to the server's user."""
        folder = Path(tempfile.mkdtemp(prefix=f"tidemark-{cls.name.lower()}-"))
        if os.geteuid() == 0:
            os.chown(folder, cls._user().pw_uid, cls._user().pw_gid)
        return folder

    @classmethod
    def run(cls, command: Sequence[object]) -> None:
        """Run a program as the server's user."""
        done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, **cls._as_user())
        if done.returncode:
            raise ServerError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    @abstractmethod
    def command(self) -> Sequence[object]:
        """Return the command that serves."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it takes connections."""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(list(map(str, self.command())), stdout=log, stderr=log, **self._as_user())
        self.process = process
        until(lambda: process.poll() is not None or self.answers(), f"a {self.name} server")
        assert process.poll() is None, (self.folder / "log").read_text()

    def stop(self, how: signal.Signals | None = None) -> None:
        """Stop it, in order if not by another signal."""
        if self.process is not None:
            self.process.send_signal(how or self.ends)
            self.process.wait(timeout=30)
            self.process = None

    def remove(self) -> None:
        self.stop(self.crashes)
        shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def _user(cls) -> pwd.struct_passwd:
        for name in (cls.account, "nobody"):
            with suppress(KeyError):
                return pwd.getpwnam(name)
        raise AssertionError("no user that a server could run as")

    @classmethod
    def _as_user(cls) -> dict[str, Any]:
        """Return how a program is started that refuses to run as root."""
        if os.geteuid() != 0:
            return {}
        user = cls._user()
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])
