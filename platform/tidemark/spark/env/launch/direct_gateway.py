"""Starts Spark's JVM by its command, and connects PySpark to it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
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
        while not place.is_file():
            if process.poll() is not None:
                raise OSError(f"Java ended with {process.returncode}")
            SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)
        with place.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    # PySpark connects to a JVM that is there by these.
    os.environ |= {_PORT: str(port), _SECRET: secret}
    try:
        gateway: JavaGateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    gateway.proc = process
    return gateway
