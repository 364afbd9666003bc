"""Settings of a Spark session that have other values while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Place = tuple[str, frozenset[str]]

_changed: dict[_Place, tuple[int, Mapping[str, str | None]]] = {}
_changing = threading.Lock()


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str], *, also: Collection[str] = ()) -> Iterator[None]:
    """Change settings in the block.

    Jobs that share a session may do so at once, each in a thread of its own: the last one restores the values from before the first. If
    each restored the values that it found, the last one might leave those of another job.

    Args:
        spark: the session.
        settings: the values in the block.
        also: further settings, which the block changes itself and which are restored, too.
    """
    place = _place(spark, (*settings, *also))
    with _changing:
        blocks, before = _changed.get(place) or (0, {key: spark.conf.get(key, None) for key in place[1]})
        _changed[place] = blocks + 1, before
        for key, value in settings.items():
            spark.conf.set(key, value)
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
                    for key, earlier in before.items():
                        spark.conf.unset(key) if earlier is None else spark.conf.set(key, earlier)


def blocks_with(spark: SparkSession, keys: Collection[str]) -> int:
    """Return how many blocks that change just these settings of a session run."""
    with _changing:
        return _changed.get(_place(spark, keys), (0, {}))[0]


def _place(spark: SparkSession, keys: Collection[str]) -> _Place:
    # Several Python objects may stand for one session.
    return str(spark._jsparkSession.sessionUUID()), frozenset(keys)  # noqa: SLF001
