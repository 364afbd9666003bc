"""Starts Spark, up to its session, in parallel to a driver's imports and the job's code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.control.model.driver_starts import JVM, SESSION
from tidemark.control.model.dynamic_allocation import dynamic_allocation_settings
from tidemark.control.model.spec import JobSpec
from tidemark.errors import EngineError, TidemarkError
from tidemark.state.encoding.redaction import without_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEE_MASTER: Final = "check that the master can be reached and has free resources, and the settings in the spec's conf"


class SparkStart:
    """Starts the JVM and builds the session in it, in a thread, at once.

    Until then Python loads modules in both threads, and two threads that load modules which import one another may see them half loaded;
    so the thread's modules are loaded before it starts.

    Args:
        spec: the job's spec.
        timed: measures a stage.
        log: the file of the JVM's output.
    """

    def __init__(self, spec: JobSpec, timed: Callable[[str], AbstractContextManager[None]], *, log: Path | None) -> None:
        from tidemark.spark.env.jvm import in_parallel, start_jvm
        from tidemark.spark.env.session import build_session
        from tidemark.spark.env.start.session_settings import start_settings

        self._spec = spec
        conf, name = {**dynamic_allocation_settings(spec), **spec.conf}, spec.app_name
        settings = start_settings(spec.master, app_name=name, conf=conf)

        def start() -> SparkSession:
            with timed(JVM):
                start_jvm(settings, log=log)
            with timed(SESSION):
                return build_session(spec.master, app_name=name, conf=conf, log=log)

        self._session = in_parallel("tidemark-jvm", start)

    def session(self) -> SparkSession:
        """Wait for the session, make it the active one of this thread, and return it.

        Raises:
            TidemarkError: it does not start.
        """
        from tidemark.spark.columns.engine_causes import engine_cause, whole_text
        from tidemark.spark.columns.error_text import first_line
        from tidemark.spark.env.session import activate

        try:
            session = self._session.result()
            activate(session)
        except TidemarkError:
            raise
        except Exception as error:  # noqa: BLE001 - Java's, Python's and the operating system's: it does not start
            cause = engine_cause(whole_text(error))
            behind = f"{cause.what}: " if cause is not None else ""
            raise EngineError(
                f"Spark does not start at master {self._spec.master!r}: {behind}{first_line(error)}",
                fix=cause.fix if cause is not None else _SEE_MASTER,
                job=self._spec.job,
            ) from without_secrets(error)
        return session
