"""Seeds of random cases: others in every run, but in continuous integration the same each time, so that what passed passes again."""

from __future__ import annotations

import os
from random import Random, SystemRandom

_FIXED = os.environ.get("HYPOTHESIS_PROFILE") == "ci"


def new_seeds(name: str, count: int = 1) -> list[int]:
    """Return seeds for the cases of a test; ``name`` tells it from others."""
    random = Random(name) if _FIXED else SystemRandom()
    return [random.randrange(2**32) for _ in range(count)]
