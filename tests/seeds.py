"""How many random cases a test draws, and their seeds: others in every run, but in continuous integration the same each time.

What passed there passes again. The profile is ``HYPOTHESIS_PROFILE``: ``dev``, ``ci``, or ``long``, which draws ten times as many.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random, SystemRandom
from typing import TypeVar

import pytest

C = TypeVar("C")
"""A case of a test."""

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "dev")
REPEATABLE = PROFILE == "ci"

only_long = pytest.mark.skipif(PROFILE != "long", reason="other cases of what tests beside it show; HYPOTHESIS_PROFILE=long has them")
"""For what is left out wherever somebody waits for the tests: `make long` runs it."""


def times(ci: int, *, dev: int = 1) -> int:
    """Return how many streams a test draws, from the number in continuous integration and that on a developer's machine."""
    return {"ci": ci, "long": 10 * ci}.get(PROFILE, dev)


def some(cases: Iterable[C], step: int, first: int = 0) -> list[C]:
    """Return each ``step``th of a test's cases, from the ``first`` on; in the long profile all."""
    return list(cases) if PROFILE == "long" else list(cases)[first::step]


def new_seeds(name: str, count: int = 1) -> list[int]:
    """Return seeds for the cases of a test; ``name`` tells it from others.

    All processes of one run draw the same, so that they agree on the cases that there are.
    """
    run = "" if REPEATABLE else os.environ.get("PYTEST_XDIST_TESTRUNUID")
    random = SystemRandom() if run is None else Random(f"{run}{name}")
    return [random.randrange(2**32) for _ in range(count)]
