"""Starts the JVM of a session: what it prints goes to a file, and what it said last is in the error where it does not start."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger

from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.errors import EngineError
from tidemark.spark.env.uncaught import in_one_line
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.owners import known_dead
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.log_folder import log_folder

logger = logging.getLogger("tidemark")

_KEPT_LOGS: Final = 20
_QUIET_MS: Final = 60 * 60 * 1000
_LAST_LINES: Final = 4
_LONGEST_LINE: Final = 300
_ASIDE: Final = re.compile(
    r"\t|    at |WARNING: |\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) |.*\blog4j"
    r"|Setting default log level|To adjust logging level"
)
"""Lines of traces, of Java's own warnings, and of Spark's log."""
_STARTED_BY_SPARK: Final = "PYSPARK_GATEWAY_PORT"
_PYTHON_LOGS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers by which PySpark writes an exception on standard error before it raises it."""

_starting = threading.Lock()


def start_jvm(settings: Mapping[str, str], *, log: Path | None = None) -> None:
    """Start the JVM that the next session of this process runs in; does nothing where there is one.

    It may be called in a thread, before the session is built: both wait for one another.

    Args:
        settings: of Spark, from ``session.start_settings``, which has found a Java; those of the JVM, such as its memory and options,
            count from here on.
        log: the file that gets what the JVM and its Python workers print. By default a new one in the user's folder for logs, whose place
            is said on standard error.

    Raises:
        EngineError: the JVM ended before it could be reached.
    """
    # Spark's Python workers would otherwise be whatever "python3" is on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _starting:
        # Where spark-submit started this Python, the JVM is there already and has its own place to print to.
        if pyspark.SparkContext._gateway is not None or _STARTED_BY_SPARK in os.environ:  # noqa: SLF001
            return
        if log is not None:
            logger.info("starting Spark; what its JVM prints goes to %s", log)
            _launch(settings, log)
            return
        log = new_log()
        sys.stderr.write(f"starting Spark (about 20 s); its log is {log}\n")
        sys.stderr.flush()
        _launch(settings, log)


def _launch(settings: Mapping[str, str], log: Path) -> None:
    conf = pyspark.SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    with log.open("ab") as file:
        begin = file.tell()
        try:
            gateway = launch_gateway(conf, {"stdout": file.fileno(), "stderr": file.fileno()})  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, OSError) as error:
            raise EngineError(
                f"Java ended before Spark could start in it: {last_words(log, begin)}",
                fix=f"correct the setting of the JVM that it names, or make room for it; {log} has all that it printed",
            ) from without_secrets(error)
    pyspark.SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # the only way to hand over a gateway before there is a context
    _keep_off_console(log)
    in_one_line(lambda: log)


def last_words(log: Path, begin: int) -> str:
    """Return the newest lines that the JVM printed as one, without the traces of its exceptions, and without what Spark logs."""
    with log.open("rb") as file:
        file.seek(begin)
        printed = file.read().decode(errors="replace").splitlines()
    lines = [line.strip()[:_LONGEST_LINE] for line in printed if line.strip() and not _ASIDE.match(line)]
    return redacted("; ".join(lines[-_LAST_LINES:]).rstrip(".")) or "it printed nothing"


def _keep_off_console(log: Path) -> None:
    """Have PySpark write exceptions to the log, too; whoever handles them gets them as errors."""
    for name in _PYTHON_LOGS:
        known = PySparkLogger.getLogger(name)
        for handler in tuple(known.handlers):
            known.removeHandler(handler)
        known.addHandler(logging.FileHandler(log, encoding="utf-8", delay=True))


def new_log() -> Path:
    """Return a new empty file for the log of a session, and remove those of ended sessions that are older than the newest twenty."""
    name = f"spark-{format_ms(SYSTEM_CLOCK.now_ms()).replace(':', '-').replace('.', '-')}-{os.getpid()}.log"
    try:
        folder = log_folder() / "spark"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / name
        path.touch(mode=0o600)
    except (OSError, RuntimeError):
        # No home, or one that cannot be written to.
        return Path(tempfile.mkdtemp(prefix="tidemark-spark-"), name)
    with suppress(OSError):
        for old in sorted(folder.glob("spark-*.log"))[:-_KEPT_LOGS]:
            if not _is_in_use(old):
                old.unlink(missing_ok=True)
    return path


def _is_in_use(log: Path) -> bool:
    """Say whether a session may still write to its log: its process lives, or something came in the last hour.

    Machines may share the folder, and the processes of others are not seen from here.
    """
    pid = log.stem.rpartition("-")[2]
    if pid.isdecimal() and not known_dead(OwnerInfo(socket.gethostname(), int(pid))):
        return True
    try:
        return log.stat().st_mtime * 1000 > SYSTEM_CLOCK.now_ms() - _QUIET_MS
    except OSError:
        return False


@contextmanager
def shown_to_start() -> Iterator[None]:
    """Let something move on a terminal as long as the block takes, which waits for Spark."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark"):
        yield
