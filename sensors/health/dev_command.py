"""Whether the `dagster dev` that started this code server was killed.

Its code server and daemon then live on for a minute and more, and tick. What they write to their log nobody sees.
"""

from __future__ import annotations

import os
from typing import Final

import psutil  # type: ignore[import-untyped]  # ships no types

_SET_BY_DEV: Final = "DAGSTER_IS_DEV_CLI"
"""The variable that `dagster dev` sets for the processes that it starts; it is not in its own environment."""


class DevCommand:
    """The `dagster dev` that this process was started by, as it is when this is made; none in a deployment."""

    def __init__(self) -> None:
        self._process = _dev_process() if _SET_BY_DEV in os.environ else None

    @property
    def has_ended(self) -> bool:
        """Whether there was one and it has ended, also if nobody has reaped it."""
        if self._process is None:
            return False
        try:
            return not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True


def _dev_process() -> psutil.Process | None:
    try:
        return next((each for each in psutil.Process().parents() if _SET_BY_DEV not in each.environ()), None)
    except psutil.Error:
        return None
