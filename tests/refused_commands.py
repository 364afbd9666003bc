"""Commands that must be refused, as acts that raise what they say: in this process, or in a new one for settings of Java."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from click.testing import CliRunner

from tidemark.cli.program.main import main


class HasFolder(Protocol):
    """A place with a store in ``jobs``, and importable code in ``code``."""

    folder: Path


def command(*arguments: str) -> Callable[[HasFolder], object]:
    """Return the act of a command, which raises what it says; options of the wrong form are click's to refuse."""

    def act(place: HasFolder) -> object:
        done = CliRunner().invoke(main, [argument.replace("STORE", str(place.folder / "jobs")) for argument in arguments])
        line = done.stderr.strip().splitlines()[-1]
        assert done.exit_code != 0, done.output
        assert "Traceback" not in done.stderr
        raise RefusedError(line)

    return act


def started_with(setting: str) -> Callable[[HasFolder], object]:
    """Return the act of a command in a new process, whose Java is started with a setting."""

    def act(place: HasFolder) -> object:
        program = "from tidemark.cli.program.main import main; main()"
        command = [sys.executable, "-c", program, "run", "paying:job", "--store", str(place.folder / "jobs"), "--conf", setting]
        environment = {**os.environ, "TIDEMARK_LOGS": str(place.folder / "logs")}
        done = subprocess.run(command, cwd=place.folder / "code", env=environment, capture_output=True, text=True, check=False)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stderr
        raise RefusedError(done.stderr.strip().splitlines()[-1])

    return act


class RefusedError(Exception):
    """What a command said as its last line."""
