"""Connects PySpark to a JVM that was started by its command."""

from __future__ import annotations

import os
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Final

from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.env.launch.java_process import JavaProcess

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"  # noqa: S105  # the name of a variable

_PAUSE_SECONDS: Final = 0.01


def direct_gateway(java: JavaProcess) -> JavaGateway:
    """Return PySpark's connection to a JVM, which is ended where it cannot be reached.

    Raises:
        OSError: it ended before it could be reached.
    """
    try:
        gateway = _connected(*_answer(java))
    except BaseException:
        # Nobody else knows of it, also where this is interrupted.
        java.kill()
        raise
    java.forget_connection()
    gateway.proc = java.process
    return gateway


def _answer(java: JavaProcess) -> tuple[int, str]:
    """Return the port and the secret that the JVM writes into a file."""
    while not java.connection.is_file():
        if java.process.poll() is not None:
            raise OSError(f"Java ended with {java.process.returncode}")
        SYSTEM_CLOCK.sleep(_PAUSE_SECONDS)
    with java.connection.open("rb") as file:
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
