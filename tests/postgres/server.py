"""A Postgres server for tests, on a free port of loopback: made, started, stopped and killed by them."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import psutil  # type: ignore[import-untyped]  # ships no types
import psycopg
import pytest

from tests.database_server import HOST, DatabaseServer, free_port

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
class Server(DatabaseServer):
    """A server of Postgres."""

    name: ClassVar[str] = "Postgres"
    account: ClassVar[str] = "postgres"
    ends: ClassVar[signal.Signals] = signal.SIGINT  # it ends its connections
    crashes: ClassVar[signal.Signals] = signal.SIGQUIT

    @classmethod
    def make(cls) -> Server:
        """Make the files of a new server, which is not started."""
        folder = cls.new_folder()
        password = folder / "password"
        password.write_text(f"{SECRET}\n", encoding="utf-8")
        password.chmod(0o644)
        made = [
            program("initdb"),
            *("-D", folder / "data", "-U", USER, "-A", "scram-sha-256"),
            *("--pwfile", password, "-E", "UTF8", "--locale=C", "--no-sync"),
        ]
        cls.run(made)
        return cls(folder, free_port())

    def command(self) -> Sequence[object]:
        """Return the command that serves."""
        settings = {
            "port": self.port,
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "max_connections": 40,
        }
        given = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        return [program("postgres"), "-D", self.folder / "data", *given]

    def kill(self) -> None:
        """Kill the server and the processes of its connections at once; its files stay."""
        assert self.process is not None
        whole = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        for process in whole:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        psutil.wait_procs(whole)
        self.process = None

    def dsn(self, *, password: str = SECRET, **options: str) -> str:
        """Return a connection string."""
        extra = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{USER}:{password}@{HOST}:{self.port}/postgres?connect_timeout=5{extra}"

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own; returns its rows."""
        with psycopg.connect(self.dsn()) as connection:
            done = connection.execute(statement.encode(), values or None)
            return done.fetchall() if done.description is not None else []

    def run_outside(self, statement: str) -> None:
        """Run a statement that may not be in a transaction."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def answers(self) -> bool:
        """Whether it takes connections."""
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn()):
            return True
        return False


def program(name: str) -> Path:
    """Return a program of the newest server."""
    folder = binaries()
    assert folder is not None
    return folder / name
