"""The process of Spark's JVM, before PySpark is connected to it. Loads no PySpark."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.spark.env.launch.java_command import command_environment

_UNTIL_INTERRUPTED: Final = 'trap "" INT; exec "$@"'
"""As PySpark starts it: an interrupt is for Python, which ends the JVM by closing its standard input."""


@dataclass(frozen=True)
class JavaProcess:
    """A JVM that this process started.

    Args:
        command: that started it.
        process: its process.
        begin: bytes of the file of its output that were there before.
        folder: a temporary one of its own.
    """

    command: tuple[str, ...]
    process: subprocess.Popen[bytes]
    begin: int
    folder: tempfile.TemporaryDirectory[str]

    @property
    def connection(self) -> Path:
        """The file into which it writes how it is reached."""
        return _connection(self.folder)

    def forget_connection(self) -> None:
        """Remove the file with its port and secret."""
        self.folder.cleanup()

    def kill(self) -> None:
        """End it at once; nobody else knows of it."""
        self.process.kill()
        with suppress(OSError, ValueError):
            self.process.communicate()
        self.forget_connection()


def start_java(command: Sequence[str], output: Path) -> JavaProcess:
    """Start a JVM, of which this process is the parent, and return at once.

    Args:
        command: that starts it.
        output: the file to which its output is appended.

    Raises:
        OSError: it cannot be started.
    """
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        with output.open("ab") as file:
            begin = file.tell()
            process = subprocess.Popen(
                ["/bin/sh", "-c", _UNTIL_INTERRUPTED, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**command_environment(), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_connection(folder))},
            )
    except BaseException:
        folder.cleanup()
        raise
    return JavaProcess(tuple(command), process, begin, folder)


def _connection(folder: tempfile.TemporaryDirectory[str]) -> Path:
    return Path(folder.name, "connection")
