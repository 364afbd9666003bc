"""What a Python worker has loaded for its tasks, in Python's collection of garbage."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Final

_OBJECTS: Final = 50_000
"""So many new objects are there between two collections."""


@cache
def settle_worker(task: str) -> None:
    """Leave what a worker has now out of all later collections; once in a process for each kind of task, at the end of its first.

    Spark's workers collect after every task, and the modules of a task have more objects than the rows of a small epoch. Within a task they
    collect whenever there are more than ``_OBJECTS`` new ones. Python's own number, 700, is less than a tenth of the rows of a batch,
    which are all there at once, and none of which is in a cycle. In a process that is no worker nothing happens.
    """
    del task
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name in ("pyspark.daemon", "pyspark.worker"):
        gc.collect()
        gc.freeze()
        gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
