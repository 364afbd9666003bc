"""A JVM that outlives the processes that use it.

A driver that is killed takes its JVM with it, and the next one waits ten seconds for another to start and warm up. Everything that
decides is in Python, so most of the tests kill only that and let the JVM go on, whose job then comes to its end or fails; some kill both.
It is the JVM of the tests' own session, which tries no task again; ``warm_jvm`` starts another, which does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).parents[2]


def variables_of(session: SparkSession) -> dict[str, str]:
    """Return the variables by which another process finds a session's JVM."""
    parameters = session.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]  # noqa: SLF001
    return {"PYSPARK_GATEWAY_PORT": str(parameters.port), "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token)}


@contextmanager
def warm_jvm() -> Iterator[dict[str, str]]:
    """Keep another JVM with a Spark context while the block runs; yields the variables by which a process finds it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.warm_jvm"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=CHECKOUT,
    )
    assert process.stdout is not None
    try:
        while not (line := process.stdout.readline()).startswith("gateway "):
            assert line, "the JVM did not start"
        yield dict(text.split("=", 1) for text in line.split()[1:])
    finally:
        process.communicate()  # the end of its input ends it, and the JVM with it


def attach(settings: Mapping[str, str]) -> SparkSession:
    """Return a new session on the Spark context of the JVM that the environment names."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    assert jvm is not None
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jvm=jvm, _jconf=java_context.getConf()))
    session = SparkSession(context).newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def serve() -> None:
    """Start a JVM, say where it is, and keep it until standard input ends."""
    from tests.crash.fares import JVM_SETTINGS
    from tidemark.spark.env.session import build_session

    # A task that fails is tried four times, as on a cluster.
    session = build_session("local[2, 4]", app_name="tidemark crash tests", conf=JVM_SETTINGS)
    print("gateway", *(f"{name}={value}" for name, value in variables_of(session).items()), flush=True)
    sys.stdin.read()
    session.stop()


if __name__ == "__main__":
    serve()
