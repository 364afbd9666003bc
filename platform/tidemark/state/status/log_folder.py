"""Where processes of this machine keep their logs: one folder for each user, or the one that an environment names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

LOGS_VARIABLE: Final = "TIDEMARK_LOGS"


def log_folder() -> Path:
    """Return ``$TIDEMARK_LOGS``, else the user's folder for state (``$XDG_STATE_HOME``, else ``~/.local/state``), absolute."""
    state = os.environ.get("XDG_STATE_HOME")
    usual = (Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state") / "tidemark" / "logs"
    return Path(os.environ.get(LOGS_VARIABLE) or usual).absolute()
