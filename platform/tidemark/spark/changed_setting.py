"""A setting of a Spark session that has another value while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_changed: dict[tuple[str, str], tuple[int, str | None]] = {}
_changing = threading.Lock()


@contextmanager
def changed_setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Change a setting in the block.

    Jobs that share a session may do so at once, each in a thread of its own: the last one restores the value from before the first. If
    each restored the value that it found, the last one might leave that of another job.
    """
    place = str(spark._jsparkSession.sessionUUID()), key  # noqa: SLF001  # several Python objects may stand for one session
    with _changing:
        blocks, before = _changed.get(place) or (0, spark.conf.get(key, None))
        spark.conf.set(key, value)
        _changed[place] = blocks + 1, before
    try:
        yield
    finally:
        with _changing:
            blocks, before = _changed.pop(place)
            if blocks > 1:
                _changed[place] = blocks - 1, before
            else:
                # The JVM may have ended; the error to report is then the one that ended the block.
                with suppress(Py4JError, OSError):
                    spark.conf.unset(key) if before is None else spark.conf.set(key, before)
