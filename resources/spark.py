"""The Spark session of a Dagster run, on dagster-pyspark, started on first use."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import dagster as dg
from pydantic import PrivateAttr

from tidemark.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@runtime_checkable
class SparkProvider(Protocol):
    """Anything that has a session: ``SparkResource``, and dagster-pyspark's own resources."""

    @property
    def spark_session(self) -> SparkSession:
        """The session."""
        ...


class SparkResource(dg.ConfigurableResource[Any]):
    """A Spark session, started on first use; definitions and sensors that hold this resource start no JVM.

    It is built on dagster-pyspark's ``LazyPySparkResource``, imported on first use too, since importing PySpark takes longer
    than a code location should take to load.

    Args:
        spark_config: Spark settings, flat (``{"spark.executor.memory": "2g"}``) or nested.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    _session: Any = PrivateAttr(default=None)

    @property
    def spark_session(self) -> SparkSession:
        """The session, started now if there is none.

        Raises:
            SetupError: dagster-pyspark is not installed, or no Java that Spark can run on was found.
        """
        if self._session is None:
            self._session = _start(self.spark_config)
        session: SparkSession = self._session
        return session


@contextmanager
def preserved_interrupts() -> Iterator[None]:
    """Keep SIGINT's handler through the start of a session.

    A SparkContext installs its own, with which Dagster could no longer terminate a run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def session_of(resource: object) -> SparkSession:
    """Return the session of a resource.

    Raises:
        SetupError: the resource has none.
    """
    with preserved_interrupts():
        if isinstance(resource, SparkProvider):
            return resource.spark_session
    raise SetupError(
        f"{type(resource).__name__} has no attribute spark_session",
        fix="pass TidemarkResource(spark=SparkResource(...)) or a resource of dagster-pyspark",
    )


def _start(settings: dict[str, Any]) -> SparkSession:
    from tidemark.spark import SETTINGS, local_settings, start_jvm

    try:
        from dagster_pyspark import LazyPySparkResource
    except ImportError as error:
        raise SetupError("dagster-pyspark is not installed", fix="run pip install -e '.[dagster]' in the checkout") from error
    local = local_settings() if master_of(settings).startswith("local") else {}
    all_settings = {**local, **SETTINGS, **settings}
    # Before the resource starts one, whose JVM would print into the run's log.
    start_jvm(flat_settings(all_settings))
    session: SparkSession = LazyPySparkResource(spark_config=all_settings).spark_session
    return session


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return settings by their full names, as text.

    >>> flat_settings({"spark": {"ui": {"enabled": False}}, "spark.app.name": "fares"})
    {'spark.ui.enabled': 'false', 'spark.app.name': 'fares'}
    """
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def master_of(settings: Mapping[str, Any]) -> str:
    """Return the master of a session's settings, flat or nested as dagster-pyspark takes them; this machine by default.

    >>> master_of({"spark": {"master": "yarn"}}), master_of({"spark.master": "local[2]"}), master_of({})
    ('yarn', 'local[2]', 'local')
    """
    nested = settings.get("spark")
    inner = nested.get("master") if isinstance(nested, Mapping) else None
    return str(settings.get("spark.master") or inner or "local")
