"""Starts the JVM of a process's session as the first thing that the process does, before it loads PySpark and the engine.

A driver's launcher describes the session in a variable. A JVM takes longer to start than the modules take to load, so the driver waits for
neither of them any more. It is used only if the command that the driver itself derives later from its spec is the same.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

from tidemark.errors import TidemarkError
from tidemark.spark.env.class_archive import command_path
from tidemark.spark.env.crash_reports import report_settings
from tidemark.spark.env.launch.java_command import direct_command
from tidemark.spark.env.launch.java_process import JavaProcess, start_java
from tidemark.spark.env.start.described_session import VARIABLE
from tidemark.spark.env.start.session_settings import start_settings

_started: list[JavaProcess] = []


def java_command(settings: Mapping[str, str], output: Path) -> list[str] | None:
    """Return the command that starts the JVM of a session; None where Spark's own launcher has to.

    Args:
        settings: of Spark, from ``start_settings``, which has found a Java.
        output: the file of the JVM's output, beside which a report of a crash goes.
    """
    return direct_command({**settings, **report_settings(settings, output.parent)}, command_path(os.environ.get("JAVA_HOME", "")))


def start_early(environment: MutableMapping[str, str]) -> None:
    """Start the JVM that the variable describes, if it does, and take the variable from the environment.

    What is wrong with it is found, and raised, when the session is built.
    """
    text = environment.pop(VARIABLE, None)
    if text is None:
        return
    with suppress(TidemarkError, OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError):
        given = json.loads(text)
        output = Path(given["output"])
        command = java_command(start_settings(given["master"], app_name=given["app_name"], conf=given["conf"]), output)
        if command is not None:
            # Otherwise Spark's Python workers would run any "python3" on PATH.
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
            _started.append(start_java(command, output))


def take_started(command: Sequence[str] | None) -> JavaProcess | None:
    """Return the JVM that was started early, once, if it was by this command; another one is ended."""
    if not _started:
        return None
    found = _started.pop()
    if command is not None and found.command == tuple(command):
        return found
    found.kill()
    return None
