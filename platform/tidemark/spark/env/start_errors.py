"""Finds the wrong Spark setting in the output of Java or Spark that did not start with it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidemark.errors import EngineError, SetupError, TidemarkError
from tidemark.state.encoding.redaction import redacted

_DRIVER_MEMORY: Final = "spark.driver.memory"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MASTER: Final = "spark.master"

_BY_WORDS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # First, since its message also matches the next pattern.
    (re.compile(r"Not allowed to (?:specify|set) .{0,80}java options", re.IGNORECASE), JAVA_OPTIONS),
    (re.compile(r"maximum heap|heap size: -Xmx|-Xmx\S* ", re.IGNORECASE), _DRIVER_MEMORY),
    (re.compile(r"\bVM option\b|[Uu]nrecognized option|[Ii]nvalid .{0,40}option|agent library"), JAVA_OPTIONS),
    (re.compile(r"[Mm]aster URL|run locally|(?<![\w/-])[Mm]aster\b(?![/-])"), _MASTER),
)
_NO_ROOM: Final = re.compile(
    r"insufficient memory|Could not reserve|Cannot allocate memory|Native memory allocation|No space left|OutOfMemoryError"
)


def wrong_setting(said: str, settings: Mapping[str, str]) -> str | None:
    """Return the setting that Java or Spark rejected; None where their output names none.

    >>> wrong_setting("Invalid maximum heap size: -Xmxlots", {"spark.driver.memory": "lots"})
    'spark.driver.memory'
    >>> wrong_setting("Executor memory must be a positive number", {"spark.executor.memory": "lots"})
    'spark.executor.memory'

    Args:
        said: the output, or an error.
        settings: that Spark was started with; the result may be another one, from Spark's configuration files.
    """
    longest_first = sorted(settings, key=len, reverse=True)
    named = next((key for key in longest_first if re.search(rf"{re.escape(key)}\b", said)), None)
    in_words = next((key for key in longest_first if key.count(".") > 1 and _words(key) in said.lower()), None)
    by_words = next((key for pattern, key in _BY_WORDS if pattern.search(said)), None)
    return named or in_words or by_words


def shown_setting(name: str, settings: Mapping[str, str]) -> str:
    """Return a setting with its value, without credentials; or where it is set, if it is not among those given."""
    if name in settings:
        return f"{name}={redacted(settings[name])}"
    return f"{name}, which Spark's configuration files or a variable of the environment set"


def ended_java(what: str, said: str, printed: str, settings: Mapping[str, str], log: str) -> TidemarkError:
    """Return the error for a JVM that ended at its start: SetupError where its output names a setting, else EngineError.

    Args:
        what: when it ended.
        said: its last output, in one line.
        printed: all of its output.
        settings: that it was started with.
        log: the file with its output.
    """
    message = f"{what}: {said}"
    rest = f"{log} has its whole output"
    named = None if _NO_ROOM.search(printed) else wrong_setting(said, settings)
    if named is None:
        return EngineError(message, fix=f"correct the setting of the JVM that it names, or make room for it; {rest}")
    return SetupError(message, fix=f"correct {shown_setting(named, settings)} (--conf, or the Dagster resource's conf); {rest}")


def refused_start(error: Exception, said: str, settings: Mapping[str, str], given: Mapping[str, str]) -> TidemarkError:
    """Return the error for a Spark that did not start in a living JVM: SetupError, or EngineError where the machine had no room.

    Args:
        error: what was raised.
        said: its cause, in one line.
        settings: that Spark was started with.
        given: those of them that the user gave.
    """
    message = f"Spark does not start: {said}"
    # An OSError is raised in Python, which no setting of Spark makes fail.
    if isinstance(error, OSError) or _NO_ROOM.search(said):
        return EngineError(message, fix="make room for it (memory, disk, processes, open files), or see what Java printed; start it again")
    named = wrong_setting(said, settings)
    wrong = shown_setting(named, settings) if named else " or ".join([_MASTER, *given])
    return SetupError(message, fix=f"correct {wrong} (--master, --conf, or the Dagster resource's conf)")


def _words(key: str) -> str:
    """Return the name of a setting as Spark's messages have it: ``executor memory`` for ``spark.executor.memory``."""
    return " ".join(key.split(".")[1:]).lower()
