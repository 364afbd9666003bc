"""Functions of these tests in a process of their own, which nobody kills."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from tests.crash.warm_jvm import CHECKOUT

CALL = "import importlib, sys; sys.path.insert(0, ''); getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])"


def call(module: str, function: str, *args: str, environment: Mapping[str, str] | None = None) -> str:
    """Call a function with texts in a new process; returns what it printed, when it came to its end."""
    command = [sys.executable, "-c", CALL, module, function, *args]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, env=variables, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-20_000:]}"
    return done.stdout
