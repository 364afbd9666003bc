"""Builds a session for a job while the engine's modules load, which takes as long as a JVM takes to start."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import pyspark

from tidemark.spark.env.jvm import in_parallel, startup_animation
from tidemark.spark.env.session import activate, session_of_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENGINE: Final = ("tidemark.spark.loop.driver", "tidemark.spark.loop.planned_run", "tidemark.spark.loop.query.query_run")


def load_engine() -> None:
    """Load the modules that a run needs."""
    for name in _ENGINE:
        import_module(name)
    # PyArrow loads it, where it is installed, with the first rows of an epoch that are made in Python.
    with suppress(ImportError):
        import_module("pandas")


def session_and_engine(job: str, master: str = "local[*]", *, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, or build one for a job, which errors name; either way the engine is loaded.

    Args:
        job: its name.
        master: Spark's master URL.
        conf: Spark settings.

    Raises:
        SetupError, EngineError: as ``session.build_session`` does.
    """
    build = partial(session_of_job, job, master, conf=conf)
    if pyspark.SparkContext._active_spark_context is not None:  # noqa: SLF001  # the session of this thread may be its own
        return build()
    # Here, not in the other thread, which an interrupt would leave with the cursor of the terminal hidden.
    with startup_animation():
        starting = in_parallel("tidemark-session", build)
        load_engine()
        session = starting.result()
    activate(session)
    return session
