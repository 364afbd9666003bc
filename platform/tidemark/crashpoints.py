"""Named points at which a test may kill the process, to prove that a crash there loses and doubles nothing.

``TIDEMARK_CRASH_AT=name`` kills the process with SIGKILL the first time the point is reached, ``name:3`` the third time.
In production the variable is unset and a point costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
from typing import Final

POINTS: Final[tuple[str, ...]] = (
    "term-taken",
    "checkpoint-seeded",
    "epoch-planned",
    "state-staged",
    "compaction-staged",
    "output-staged",
    "outputs-staged",
    "source-log-saved",
    "segment-written",
    "before-commit",
    "after-commit",
    "output-published",
    "outputs-published",
    "history-written",
    "retention-begun",
    "retention-done",
    "sweep-marked",
    "sweep-done",
    "epoch-done",
)

_reached: dict[str, int] = {}


def crash_point(name: str) -> None:
    """Mark a step boundary; dies here when the environment asks for it.

    Raises:
        KeyError: the name is not in ``POINTS``, so that a test cannot wait for a point that does not exist.
    """
    wanted = os.environ.get("TIDEMARK_CRASH_AT")
    if wanted is None:
        return
    if name not in POINTS:
        raise KeyError(name)
    point, _, count = wanted.partition(":")
    if point != name:
        return
    _reached[name] = _reached.get(name, 0) + 1
    if _reached[name] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
