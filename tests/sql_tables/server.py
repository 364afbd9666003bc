"""A MariaDB server for tests, on a free port of loopback: made, started, stopped and killed by them."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pymysql
import pytest

from tests.database_server import HOST, DatabaseServer, free_port

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
class MariadbServer(DatabaseServer):
    """A server of MariaDB."""

    name: ClassVar[str] = "MariaDB"
    account: ClassVar[str] = "mysql"
    ends: ClassVar[signal.Signals] = signal.SIGTERM
    crashes: ClassVar[signal.Signals] = signal.SIGKILL

    @classmethod
    def make(cls) -> MariadbServer:
        """Make the files of a new server, which is not started."""
        folder = cls.new_folder()
        # A server that starts removes temporary tables from its folder of these, also those of others.
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o777)
        made = [
            _program("mariadb-install-db"),
            *("--no-defaults", f"--datadir={folder / 'data'}", f"--tmpdir={folder / 'tmp'}", "--auth-root-authentication-method=normal"),
            *("--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=16M"),
        ]
        cls.run(made)
        (folder / "init.sql").write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'{HOST}' IDENTIFIED BY '{SECRET}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION;\nCREATE DATABASE IF NOT EXISTS admin;\n"
        )
        (folder / "init.sql").chmod(0o644)
        return cls(folder, free_port())

    def command(self) -> Sequence[object]:
        """Return the command that serves."""
        settings = {
            "datadir": self.folder / "data",
            "tmpdir": self.folder / "tmp",
            "init-file": self.folder / "init.sql",
            "port": self.port,
            "bind-address": HOST,
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "innodb-log-file-size": "16M",
            "innodb-flush-log-at-trx-commit": 2,
        }
        given = (f"--{name}={value}" for name, value in settings.items())
        return [_program("mariadbd"), "--no-defaults", "--skip-name-resolve", *given]

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

    def answers(self) -> bool:
        """Whether it takes connections."""
        with suppress(pymysql.OperationalError):
            return self.query("admin", "SELECT 1") == [(1,)]
        return False
