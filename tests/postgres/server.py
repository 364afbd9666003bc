"""A Postgres server for tests, on a free port of loopback: made, started, stopped and killed by them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tests.control.drivers import until

HOST: Final = "127.0.0.1"
USER: Final = "writer"
SECRET: Final = "marker-8f3c1d-of-the-password"  # noqa: S105 - what must be shown nowhere
_PLACES: Final = "/usr/lib/postgresql"


def binaries() -> Path | None:
    """Return the folder of the newest server's programs, None where there are none."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(Path(_PLACES).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


NEEDS_POSTGRES: Final = pytest.mark.skipif(binaries() is None, reason="no initdb on PATH or in /usr/lib/postgresql: install postgresql")


@dataclass
class Server:
    """A server, its files in a folder of their own."""

    folder: Path
    programs: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls) -> Server:
        """Make the files of a new server, which is not started."""
        programs = binaries()
        assert programs is not None
        # Not below pytest's folder: that is closed to the user of the server.
        folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
        if os.geteuid() == 0:
            os.chown(folder, _account().pw_uid, _account().pw_gid)
        password = folder / "password"
        password.write_text(f"{SECRET}\n", encoding="utf-8")
        password.chmod(0o644)
        server = cls(folder, programs, _free_port())
        made = [
            programs / "initdb",
            *("-D", folder / "data", "-U", USER, "-A", "scram-sha-256"),
            *("--pwfile", password, "-E", "UTF8", "--locale=C", "--no-sync"),
        ]
        subprocess.run(list(map(str, made)), check=True, capture_output=True, **_as_user())
        return server

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "port": self.port,
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "max_connections": 40,
        }
        given = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), *given]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, **_as_user())
        self.process = process
        until(lambda: process.poll() is not None or self._answers(), "a Postgres server")
        assert process.poll() is None, (self.folder / "log").read_text()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends its connections, SIGQUIT ends it as a crash does."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
            self.process = None

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, *, password: str = SECRET, **options: str) -> str:
        """Return a connection string."""
        extra = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{USER}:{password}@{HOST}:{self.port}/postgres?connect_timeout=5{extra}"

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own; returns its rows."""
        with psycopg.connect(self.dsn()) as connection:
            done = connection.execute(statement.encode(), values or None)
            return done.fetchall() if done.description is not None else []

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn()):
            return True
        return False


def _account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("no user that a server could run as")


def _as_user() -> dict[str, Any]:
    """Return how a program is started that refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    account = _account()
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])
