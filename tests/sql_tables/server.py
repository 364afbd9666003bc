"""A MariaDB server for tests, on a free port of loopback: made, started, stopped and killed by them."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest

from tests.control.drivers import until

HOST: Final = "127.0.0.1"
USER: Final = "writer"
SECRET: Final = "marker-5b90e2-of-the-password"  # noqa: S105 - what must be shown nowhere
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin"


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


NEEDS_MARIADB: Final = pytest.mark.skipif(
    _program("mariadbd") is None or _program("mariadb-install-db") is None,
    reason="no mariadbd on PATH or in /usr/sbin: install mariadb-server",
)


@dataclass
class MariadbServer:
    """A server, its files in a folder of their own."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls) -> MariadbServer:
        """Make the files of a new server, which is not started."""
        folder = Path(tempfile.mkdtemp(prefix="tidemark-mariadb-"))
        if os.geteuid() == 0:
            os.chown(folder, _account().pw_uid, _account().pw_gid)
        made = [
            str(_program("mariadb-install-db")),
            *("--no-defaults", f"--datadir={folder / 'data'}", "--auth-root-authentication-method=normal"),
            *("--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M"),
        ]
        subprocess.run(made, check=True, capture_output=True, **_as_user())
        (folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'{HOST}' IDENTIFIED BY '{SECRET}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;\nCREATE DATABASE IF NOT EXISTS admin;\n"
        )
        (folder / "init.sql").chmod(0o644)
        with socket.socket() as taken:
            taken.bind((HOST, 0))
            port = int(taken.getsockname()[1])
        return cls(folder, port)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "datadir": self.folder / "data",
            "init-file": self.folder / "init.sql",
            "port": self.port,
            "bind-address": HOST,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "innodb-log-file-size": "16M",
            "innodb-flush-log-at-trx-commit": 2,
        }
        command = [
            str(_program("mariadbd")),
            "--no-defaults",
            "--skip-name-resolve",
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, **_as_user())
        self.process = process
        until(lambda: process.poll() is not None or self._answers(), "a MariaDB server")
        assert process.poll() is None, (self.folder / "log").read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it: SIGTERM ends it in order, SIGKILL as a crash does."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)
            self.process = None

    def remove(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str, *, user: str = USER, password: str = SECRET, port: int | None = None) -> str:
        """Return a connection string."""
        return f"mariadb://{user}:{password}@{HOST}:{port or self.port}/{database}?connect_timeout=5"

    def query(self, database: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own; returns its rows."""
        connection = pymysql.connect(host=HOST, port=self.port, user=USER, password=SECRET, database=database, connect_timeout=5)
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            found = list(cursor.fetchall())
            connection.commit()
            return found

    def _answers(self) -> bool:
        with suppress(pymysql.OperationalError):
            return self.query("admin", "SELECT 1") == [(1,)]
        return False


def _account() -> pwd.struct_passwd:
    for name in ("mysql", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise AssertionError("no user that a server could run as")


def _as_user() -> dict[str, Any]:
    """Return how a program is started that should not run as root."""
    if os.geteuid() != 0:
        return {}
    account = _account()
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}
