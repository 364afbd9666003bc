"""Has functions killed at named points in processes that start in no time: forks of one that has imported all that they need.

What kills, how a death is told from other endings, and what is left of the process are as with ``run_until_crash``, whose tests are
in ``tests/crash/test_run_until_crash.py``. Only that starts a new interpreter each time, and its imports take longer than most functions.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import KILLED, POINTS
from tidemark.errors import CrashTestError
from tidemark.testing.crash import Ending

CHECKOUT: Final = Path(__file__).parents[1]

_SECONDS: Final = 600
_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.02
_IMPORTED: Final = (
    "deltalake",
    "pyspark.sql",
    "tidemark.cli.program.main",
    "tidemark.spark.loop.run",
    "tests.crash.fares",
    "tests.crash.warm_jvm",
    "tests.kafka.sink_publications",
    "tests.savepoints.delta_jobs",
    "tests.upgrade.upgrade_worlds",
)
"""By the process that is forked; what else a function needs, its own process imports."""


def kill_at(target: str, point: str, args: Sequence[str] = (), *, environment: Mapping[str, str] | None = None) -> Ending:
    """Call a function in a new process until it is killed at a point; the process and all of its group are gone then.

    Args:
        target: ``module:function``, called with ``args`` as texts.
        point: one of the crash points; ``name:3`` for the third time that it is reached.
        args: what the function gets.
        environment: variables to set besides this process's own.

    Raises:
        CrashTestError: the process ended in another way, or not at all.
    """
    assert point.partition(":")[0] in POINTS, point
    variables = {**os.environ, **(environment or {}), "TIDEMARK_CRASH_AT": point}
    with tempfile.NamedTemporaryFile() as output:
        process = _forks().Process(target=_call, args=(target, args, variables, output.name))
        process.start()
        assert process.pid is not None
        process.join(_SECONDS)
        lasts = process.exitcode is None
        _kill_group(process.pid)
        process.join()
        status = process.exitcode
        text = Path(output.name).read_text(errors="replace")
    process.close()
    assert status is not None
    killed = status == -signal.SIGKILL and f"{KILLED} {point}" in text
    if lasts or (status < 0 and not killed):
        raise CrashTestError(f"the process was to be killed at {point!r}; status {status}; its output:\n{text}", fix="see the output")
    return Ending(point, killed, status, text).require_killed()


@cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    return context


def _call(target: str, args: Sequence[str], variables: Mapping[str, str], output: str) -> None:
    # A group of its own, so that a JVM that it starts dies with it.
    os.setsid()
    with open(output, "ab") as file, open(os.devnull, "rb") as nothing:  # noqa: PTH123
        for number, stream in enumerate((nothing, file, file)):
            os.dup2(stream.fileno(), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(CHECKOUT)
    module, _, function = target.partition(":")
    getattr(importlib.import_module(module), function)(*args)


def _kill_group(group: int) -> None:
    """Kill what is left of a group, and wait until the kernel is done with it."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
        for _ in range(_LOOKS):
            os.killpg(group, 0)
            SYSTEM_CLOCK.sleep(_LOOK_SECONDS)
