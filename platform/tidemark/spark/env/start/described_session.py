"""The variable in which a launcher describes the session of the driver that it starts. Loads nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "TIDEMARK_SESSION"


def described(master: str, app_name: str, conf: Mapping[str, str], output: Path) -> str:
    """Return the value of the variable for a session whose JVM appends its output to a file."""
    return json.dumps({"master": master, "app_name": app_name, "conf": dict(conf), "output": str(output)})
