"""Starts Spark's JVM by its command, and connects PySpark to it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Final

from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.env.launch.java_command import command_environment

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  # the name of a variable
_UNTIL_INTERRUPTED: Final = 'trap "" INT; exec "$@"'
"""As PySpark starts it: an interrupt is for Python, which ends the JVM by closing its standard input."""

_PAUSE_SECONDS: Final = 0.01


def direct_gateway(command: Sequence[str], output: int) -> JavaGateway:
    """Return PySpark's connection to a new JVM, of which it is the parent.

    Args:
        command: that starts the JVM.
        output: file descriptor for its output.

    Raises:
        OSError: it cannot be started, or ended before it could be reached.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "connection")
        process = subprocess.Popen(
            ["/bin/sh", "-c", _UNTIL_INTERRUPTED, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**command_environment(), "_PYSPARK_DRIVER_CONN_INFO_PATH": str(place)},
        )
        try:
            gateway = _connected(*_answer(process, place))
        except BaseException:
            # Nobody else knows of it, also where this is interrupted.
            process.kill()
            process.communicate()
            raise
    gateway.proc = process
    return gateway


def _answer(process: subprocess.Popen[bytes], place: Path) -> tuple[int, str]:
    """Return the port and the secret that the JVM writes into a file."""
    while not place.is_file():
        if process.poll() is not None:
            raise OSError(f"Java ended with {process.returncode}")
        SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)
    with place.open("rb") as file:
        return read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]


def _connected(port: int, secret: str) -> JavaGateway:
    """Return PySpark's connection to a JVM that is there.

    PySpark reads port and secret from the environment. Other threads, which run the user's code meanwhile, have the same one, and so have
    the processes that they start: they would know the secret, and use this JVM as their own. This call alone has another.
    """
    environment = {**os.environ, _PORT: str(port), _SECRET: secret}
    names = {**launch_gateway.__globals__, "os": SimpleNamespace(environ=environment)}
    connect = FunctionType(launch_gateway.__code__, names, argdefs=launch_gateway.__defaults__)
    gateway: JavaGateway = connect()
    return gateway
