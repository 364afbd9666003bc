"""PyFlink in an environment of its own: made where it is not there, and a reason where it cannot be; and a job that runs in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidemark.errors import EngineError, SetupError
from tidemark.spark.env.java import find_java_home

VERSION: Final = "2.3.0"
_ENVIRONMENT = "PYFLINK_PYTHON"
"""The interpreter of an environment that has PyFlink, for those who have one."""

_INSTALL_SECONDS = 1_200


def flink_python(scratch: Path) -> Path:
    """Return the interpreter that has PyFlink; installs it below a folder where it is not there.

    Raises:
        SetupError: it cannot be installed.
    """
    given = os.environ.get(_ENVIRONMENT)
    python = Path(given) if given else scratch / f"pyflink-{VERSION}" / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", str(python.parents[1])])
        _run([str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={VERSION}"])
    _run([str(python), "-c", "import pyflink"])
    return python


def _run(command: Sequence[str]) -> None:
    fix = f"set {_ENVIRONMENT} to the Python of an environment that has apache-flink {VERSION}"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"PyFlink {VERSION} cannot be installed: {error}", fix=fix) from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"{command[0]} ended with {done.returncode}"]
        raise SetupError(f"PyFlink {VERSION} cannot be installed: {last[0]}", fix=fix)


def run_flink_job(
    engine: str, job: Path, request: Mapping[str, object], folder: Path, *, scratch: Path, java_options: str = ""
) -> dict[str, Any]:
    """Run a program that reads a request's file and writes an answer's with the Python that has PyFlink; return the answer.

    Args:
        engine: for the error.
        job: the program; it does not import Tidemark.
        request: as JSON.
        folder: for both files; made where it is not there.
        scratch: holds PyFlink's environment.
        java_options: of Flink's JVM, such as ``-Xmx6g``; its defaults without them.

    Raises:
        SetupError: there is no PyFlink, or no Java.
        EngineError: the program failed.
    """
    python = flink_python(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    asked, answer = folder / "flink-request.json", folder / "flink-answer.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    packages = subprocess.run([str(python), "-c", "import pyflink; print(pyflink.__path__[0])"], capture_output=True, text=True, check=True)
    # The interpreter within Flink's JVM has no environment of its own.
    variables = {**os.environ, "JAVA_HOME": find_java_home() or "", "PYTHONPATH": str(Path(packages.stdout.strip()).parent)}
    if java_options:
        variables["JVM_ARGS"] = java_options
    done = subprocess.run([str(python), str(job), str(asked), str(answer)], env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(f"{engine} failed: {done.stderr.strip()[-2_000:]}", fix="see what it says")
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found
