"""The command with which Spark starts its JVM, as Spark's own launcher builds it, learnt once and kept beside Java's archive of classes.

``spark-submit`` runs two shell scripts and a JVM of its own to build it, which takes half a second of each start. What it builds depends on
Spark, on Java, on files and variables of Spark's configuration, and on the settings. Without such files and variables it differs only by
memory and options, which have their places in the command; with any of them, Spark's launcher is run as before.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER: Final = "org.apache.spark.launcher.Main"
_SHELL: Final = "pyspark-shell"
_MEMORY: Final = "spark.driver.memory"
_DEFAULTS: Final = "spark.driver.defaultJavaOptions"
_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PLACES: Final = {_MEMORY: "4321m", _DEFAULTS: "-Dtidemark.defaults", _OPTIONS: "-Dtidemark.options"}
"""Values by which the launcher's answer shows where those of a session go."""

_DEFAULT_MEMORY: Final = "1g"
_SECONDS: Final = 60
_HARMLESS: Final = frozenset({"SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_USER", "SPARK_LAUNCHER_OPTS"})
"""Variables of Spark's that its launcher does not read, or that are for the launcher's own JVM."""

_OTHERS: Final = frozenset({"PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "_SPARK_CMD_USAGE"})
_READ: Final = re.compile(r"spark\.(?:driver\.\w*(?:ClassPath|LibraryPath)$|submit\.|remote$|api\.mode$|connect\.|launcher\.)")
"""Settings of which the launcher makes more than an argument, besides those with a place."""

_PLAIN: Final = re.compile(r"[^\\'\n]*")
"""Options that Spark's launcher and a shell split at the same places."""


def spark_home() -> Path:
    """Return the folder of PySpark's own Spark, which is not loaded for that."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("PySpark is not installed")
    return Path(found.origin).parent


def learn_command(java: Path, place: Path) -> None:
    """Ask Spark's launcher for the command and keep it; the file holds none where the answer is not understood.

    Args:
        java: the program.
        place: the file.
    """
    _write(place, "")
    conf = [part for name, value in _PLACES.items() for part in ("--conf", f"{name}={value}")]
    home = spark_home()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_") and name not in _OTHERS}
    environment |= _variables(home)
    asked = [str(java), "-cp", f"{home}/jars/*", _LAUNCHER, _SUBMIT, *conf, _SHELL]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return
    # An empty line, and a line for each note of the launcher's, come before the first of the arguments.
    found = done.stdout.partition("\0\n")[2].split("\0")[:-1]
    places = (f"-Xmx{_PLACES[_MEMORY]}", _PLACES[_DEFAULTS], _PLACES[_OPTIONS], _SUBMIT)
    if done.returncode == 0 and found and found[-1] == _SHELL and all(found.count(each) == 1 for each in places):
        kept = {"home": str(home), "command": found[: found.index(_SUBMIT) + 1]}
        _write(place, json.dumps(kept))


def _write(place: Path, text: str) -> None:
    """Write a file in one step; other environments may have links to the one that it replaces."""
    made = place.with_suffix(f".{os.getpid()}")
    made.write_text(text, encoding="utf-8")
    made.replace(place)


def direct_command(settings: Mapping[str, str], place: Path) -> list[str] | None:
    """Return the command that starts Spark's JVM for PySpark; None where Spark's launcher has to build it.

    Args:
        settings: of Spark.
        place: the file with the command that was learnt.
    """
    if not settings.get("spark.master", "").startswith("local") or _configured() or any(map(_READ.match, settings)):
        return None
    options = {name: settings.get(name, "") for name in (_DEFAULTS, _OPTIONS)}
    if any("-Xmx" in text or not _PLAIN.fullmatch(text) for text in options.values()):
        return None
    try:
        learnt = _kept(place)
        split = {_PLACES[name]: shlex.split(text) for name, text in options.items()}
    except (OSError, ValueError):
        return None
    if learnt is None:
        return None
    memory = f"-Xmx{settings.get(_MEMORY, _DEFAULT_MEMORY)}"
    split[f"-Xmx{_PLACES[_MEMORY]}"] = [memory]
    java = [part for each in learnt for part in split.get(each, [each])]
    return [*java, *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")), _SHELL]


def _kept(place: Path) -> list[str] | None:
    """Return the command that was learnt; None of an environment that was copied or moved: it names the jars of the old one.

    Raises:
        OSError, ValueError: there is none.
    """
    kept = json.loads(place.read_text(encoding="utf-8"))
    if not isinstance(kept, dict) or kept.get("home") != str(spark_home()) or not Path(kept["command"][0]).is_file():
        return None
    command: list[str] = kept["command"]
    return command


def command_environment() -> dict[str, str]:
    """Return the environment of such a command: this process's, and what Spark's scripts add."""
    return {**os.environ, **_variables(spark_home())}


def _variables(home: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_ENV_LOADED": "1",
        "SPARK_CONNECT_MODE": "0",
        # Else Python workers hash texts differently.
        "PYTHONHASHSEED": "0",
    }


def _configured() -> bool:
    """Whether variables or files have settings for Spark's launcher."""
    named = any((name.startswith("SPARK_") and name not in _HARMLESS) or name in _OTHERS for name in os.environ)
    conf = spark_home() / "conf"
    return named or (conf.is_dir() and any(conf.iterdir()))
