"""Where a Java that crashes, or finds no memory, writes its report: beside its log or in the folder for temporary files.

Without an option it is ``hs_err_pid*.log`` in the working folder, which is the user's project.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidemark.spark.env.launch.java_command import spark_home

DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Spark puts these options before those of ``spark.driver.extraJavaOptions``, which so override them."""

_OPTION: Final = "-XX:ErrorFile="
_OVERRIDDEN: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Variables whose options every Java takes; those of its command line override them."""

_LAUNCHER: Final = "SPARK_LAUNCHER_OPTS"
"""Options of the Java that builds the command line of Spark's own; a shell splits them at blanks and expands patterns."""
_ONE_WORD: Final = re.compile(r"[\w./%:=+-]+")


def report_options(folder: Path | None = None) -> tuple[str, ...]:
    """Return the Java option for the report's path; none where a variable of the environment has the user's own.

    Args:
        folder: of the report; that for temporary files by default.
    """
    if any(_OPTION in os.environ.get(name, "") for name in _OVERRIDDEN):
        return ()
    path = str((Path(tempfile.gettempdir()) if folder is None else folder).absolute())
    return (f"{_OPTION}{path.replace('%', '%%')}/hs_err_pid%p.log",)


def report_settings(settings: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return settings of Spark with which its JVM writes the report into a folder; empty where the user has set such options.

    Args:
        settings: that Spark is started with.
        folder: of the report.
    """
    if DEFAULT_OPTIONS in settings or is_in_spark_defaults(DEFAULT_OPTIONS):
        return {}
    quoted = ['"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"')) for option in report_options(folder)]
    return {DEFAULT_OPTIONS: " ".join(quoted)} if quoted else {}


@contextmanager
def launcher_reports() -> Iterator[None]:
    """Make the Java that builds Spark's command line write its report into the folder for temporary files."""
    earlier, options = os.environ.get(_LAUNCHER), [option for option in report_options() if _ONE_WORD.fullmatch(option)]
    # The last one counts, which is the user's.
    os.environ[_LAUNCHER] = " ".join([*options, earlier or ""]).strip()
    try:
        yield
    finally:
        if earlier is None:
            del os.environ[_LAUNCHER]
        else:
            os.environ[_LAUNCHER] = earlier


def is_in_spark_defaults(name: str) -> bool:
    """Return whether the user's ``spark-defaults.conf`` has a setting."""
    home = os.environ.get("SPARK_HOME") or str(spark_home())
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    lines = defaults.read_text(encoding="utf-8").splitlines() if defaults.is_file() else []
    return any(line.strip().startswith(name) for line in lines)
