"""Starts the JVM of a session: its output goes to a log file, whose last lines are in the error where it does not start."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger

from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.errors import TidemarkError
from tidemark.spark.env.crash_reports import launcher_reports, report_settings
from tidemark.spark.env.java_classes import recognize_numpy_without_pandas
from tidemark.spark.env.launch.direct_gateway import direct_gateway
from tidemark.spark.env.launch.java_process import start_java
from tidemark.spark.env.start.early_java import java_command, take_started
from tidemark.spark.env.start_errors import ended_java
from tidemark.spark.env.uncaught import in_one_line
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.process_identity import is_known_dead
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.log_folder import log_folder

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

logger = logging.getLogger("tidemark")

T = TypeVar("T")

_KEPT_LOGS: Final = 20
_QUIET_MS: Final = 60 * 60 * 1000
_LAST_LINES: Final = 4
_ENDING_SECONDS: Final = 5
"""How long a JVM may take to end after it stopped answering."""
_MAX_LINE: Final = 300
_ASIDE: Final = re.compile(
    r"\t|    at |WARNING: |\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL) |.*\blog4j"
    r"|Setting default log level|To adjust logging level"
)
"""Lines of traces, of Java's own warnings, and of Spark's log."""
_LOGGED: Final = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d ERROR (?P<said>\w+: .+)$", re.MULTILINE)
_USAGE: Final = re.compile(r"^Usage: spark-submit ", re.MULTILINE)
_STARTED_BY_SPARK: Final = "PYSPARK_GATEWAY_PORT"
_PYTHON_LOGS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers with which PySpark writes an exception to standard error before it raises it."""

_starting = threading.Lock()
_printing: tuple[Path, int] | None = None
"""The log of the JVM that this process started last, and its length before that."""


def start_jvm(settings: Mapping[str, str], *, log: Path | None = None) -> None:
    """Start the JVM that the next session of this process runs in; does nothing where one is running.

    It may be called in a thread, before the session is built: both wait for one another.

    Args:
        settings: of Spark, from ``start_settings``, which has found a Java; those of the JVM, such as memory and options, take effect now.
        log: the file for the output of the JVM and its Python workers. By default a new one in the user's folder for logs, whose path is
            printed on standard error.

    Raises:
        SetupError: the JVM does not start with a setting, which the error names.
        EngineError: the JVM ended before it could be reached, for another reason.
    """
    recognize_numpy_without_pandas()
    # Otherwise Spark's Python workers would run any "python3" on PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _starting:
        # Where spark-submit started this Python, the JVM is running already and has its own output.
        if pyspark.SparkContext._gateway is not None or _STARTED_BY_SPARK in os.environ:  # noqa: SLF001
            return
        if log is not None:
            logger.info("starting Spark; the output of its JVM goes to %s", log)
            _launch(settings, log)
            return
        log = new_log()
        sys.stderr.write(f"starting Spark (about 20 s); its log is {log}\n")
        sys.stderr.flush()
        _launch(settings, log)


def _launch(settings: Mapping[str, str], log: Path) -> None:
    global _printing  # noqa: PLW0603  # a process has one JVM
    command = java_command(settings, log)
    early = take_started(command)
    begin = early.begin if early is not None else log.stat().st_size if log.is_file() else 0
    try:
        gateway = _by_launcher(settings, log) if command is None else direct_gateway(early or start_java(command, log))
    except (PySparkRuntimeError, OSError) as error:
        printed = _printed(log, begin)
        what = "Java ended before Spark could start in it"
        raise ended_java(what, last_lines(log, begin), printed, settings, str(log)) from without_secrets(error)
    _printing = log, begin
    pyspark.SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # the only way to hand over a gateway before there is a context
    _keep_off_console(log)
    in_one_line(lambda: log)


def _by_launcher(settings: Mapping[str, str], log: Path) -> JavaGateway:
    """Return PySpark's connection to a JVM that ``spark-submit`` starts; its output goes to a file."""
    conf = pyspark.SparkConf(loadDefaults=False)
    conf.setAll(list({**settings, **report_settings(settings, log.parent)}.items()))
    with launcher_reports(), log.open("ab") as file:
        return launch_gateway(conf, {"stdout": file.fileno(), "stderr": file.fileno()})  # type: ignore[no-untyped-call]


def in_parallel(name: str, work: Callable[[], T]) -> Future[T]:
    """Begin work in a thread of a name, which does not keep this process alive, and return its future result."""
    found: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            found.set_exception(error)
        else:
            found.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return found


def ended_while_starting(settings: Mapping[str, str], *, answered: bool) -> TidemarkError | None:
    """Return the error for the JVM that ended while Spark started in it; None where it is alive, or this process did not start it.

    The next start in this process gets a new JVM.

    Args:
        settings: that it was started with.
        answered: whether the error is the JVM's own answer; one that gave none is given time to end.
    """
    with _starting:
        if _printing is None or not _forget_ended(0 if answered else _ENDING_SECONDS):
            return None
        log, begin = _printing
        printed = _printed(log, begin)
        logged = _LOGGED.findall(printed)
        said = redacted(logged[-1][:_MAX_LINE].rstrip(".")) if logged else last_lines(log, begin)
        return ended_java("Java ended while Spark started in it", said, printed, settings, str(log))


def _forget_ended(seconds: int) -> bool:
    """Make PySpark drop its JVM if this process started it and it has ended; return whether it did."""
    gateway = pyspark.SparkContext._gateway  # noqa: SLF001  # PySpark itself keeps a gateway for good
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    pyspark.SparkContext._gateway = None  # noqa: SLF001
    pyspark.SparkContext._jvm = None  # noqa: SLF001
    return True


def last_lines(log: Path, begin: int) -> str:
    """Return the last lines that the JVM printed as one line, without traces of exceptions and without Spark's log lines."""
    before_usage = _USAGE.split(_printed(log, begin))[0]
    lines = [line.strip()[:_MAX_LINE] for line in before_usage.splitlines() if line.strip() and not _ASIDE.match(line)]
    return redacted("; ".join(lines[-_LAST_LINES:]).rstrip(".")) or "it printed nothing"


def _printed(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def _keep_off_console(log: Path) -> None:
    """Make PySpark write exceptions to the log instead of the console; the caller gets them as errors."""
    for name in _PYTHON_LOGS:
        known = PySparkLogger.getLogger(name)
        for handler in tuple(known.handlers):
            known.removeHandler(handler)
        known.addHandler(logging.FileHandler(log, encoding="utf-8", delay=True))


def new_log() -> Path:
    """Create an empty log file for a session; remove logs of ended sessions, and reports of crashes, beyond the newest twenty."""
    name = f"spark-{format_ms(SYSTEM_CLOCK.now_ms()).replace(':', '-').replace('.', '-')}-{os.getpid()}.log"
    try:
        folder = log_folder() / "spark"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / name
        path.touch(mode=0o600)
    except (OSError, RuntimeError):
        # No home folder, or one that cannot be written to.
        return Path(tempfile.mkdtemp(prefix="tidemark-spark-"), name)
    with suppress(OSError):
        for old in sorted(folder.glob("spark-*.log"))[:-_KEPT_LOGS]:
            if not _is_in_use(old):
                old.unlink(missing_ok=True)
        for old in sorted(folder.glob("hs_err_pid*.log"), key=lambda report: report.stat().st_mtime)[:-_KEPT_LOGS]:
            old.unlink(missing_ok=True)
    return path


def _is_in_use(log: Path) -> bool:
    """Return whether a session may still write to its log: its process is alive, or it wrote in the last hour.

    Machines may share the folder, and processes on other machines are not visible from here.
    """
    pid = log.stem.rpartition("-")[2]
    if pid.isdecimal() and not is_known_dead(OwnerInfo(socket.gethostname(), int(pid))):
        return True
    try:
        return log.stat().st_mtime * 1000 > SYSTEM_CLOCK.now_ms() - _QUIET_MS
    except OSError:
        return False


@contextmanager
def startup_animation() -> Iterator[None]:
    """Show an animation on a terminal during the block, which waits for Spark, where that is the main thread's."""
    if not sys.stderr.isatty() or threading.current_thread() is not threading.main_thread():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark"):
        yield
