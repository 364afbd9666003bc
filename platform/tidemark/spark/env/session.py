"""Spark sessions: builds one when the user passes none, and applies the settings that a job needs while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from tidemark.errors import TidemarkError
from tidemark.spark.changed_settings import blocks_with, changed_settings
from tidemark.spark.columns.engine_causes import root_cause, whole_text
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.env.hadoop_settings import leave_out_yarn
from tidemark.spark.env.java_classes import initialize_java_classes, keep_java_classes, load_compiler
from tidemark.spark.env.jvm import ended_while_starting, in_parallel, start_jvm, startup_animation
from tidemark.spark.env.local_files import compile_file_system, set_modes_by_call
from tidemark.spark.env.start.session_settings import SETTINGS, start_settings
from tidemark.spark.env.start_errors import refused_start
from tidemark.state.encoding.redaction import without_secrets

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark.sql import SparkSession


def build_session(
    master: str = "local[*]", *, app_name: str = "tidemark", conf: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """Return the running session, or build one on this machine.

    Servers bind to loopback. ``conf`` overrides the defaults.

    Args:
        master: Spark's master URL.
        app_name: as Spark shows it.
        conf: Spark settings.
        log: the file for the JVM's output, as in ``jvm.start_jvm``.

    Raises:
        SetupError: no Java 17 or newer is found, or Spark does not start with its settings.
        EngineError: the JVM ended at its start for another reason, or the machine has no room for Spark.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    there = pyspark.SparkContext._active_spark_context  # noqa: SLF001  # of a session that another thread built
    settings = start_settings(master, app_name=app_name, conf=conf)
    with startup_animation():
        start_jvm(settings, log=log)
        local = master.startswith("local")
        jvm = pyspark.SparkContext._jvm  # noqa: SLF001
        compiling = (
            None if jvm is None or there is not None else in_parallel("tidemark-classes", partial(_prepare_classes, jvm, local=local))
        )
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
            # Spark checks a session's settings at their first use.
            session.conf.get("spark.sql.session.timeZone")
        except (PySparkException, Py4JError, OSError) as error:
            answered = isinstance(error, PySparkException | Py4JJavaError)
            ended = ended_while_starting(settings, answered=answered)
            raise (ended or _refused(error, settings, conf or {}, there)) from without_secrets(error)
    session.sparkContext.setLogLevel("ERROR")
    keep_java_classes(session.sparkContext)
    if compiling is not None:
        in_parallel("tidemark-compiler", partial(load_compiler, session.sparkContext._jvm))  # noqa: SLF001
    if local:
        set_modes_by_call(session) if compiling is None else set_modes_by_call(session, lambda _: compiling.result())
        if there is None:
            leave_out_yarn(session)
    return session


def activate(session: SparkSession) -> None:
    """Make a session that another thread built the active one of this thread: what users' functions ask for, and whose settings apply."""
    sessions = session.sparkContext._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]  # noqa: SLF001
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _prepare_classes(jvm: JVMView, *, local: bool) -> JavaObject | None:
    """Have the JVM prepare classes while Spark's context starts; returns that of the local file system, if it is to be replaced."""
    initialize_java_classes(jvm)
    return compile_file_system(jvm) if local else None


def _refused(error: Exception, settings: Mapping[str, str], conf: Mapping[str, str], there: pyspark.SparkContext | None) -> TidemarkError:
    """Return the error where Spark does not start in its JVM; the next has a new context. One that was there goes on."""
    begun = pyspark.SparkContext._active_spark_context  # noqa: SLF001  # there is no session that could be asked
    if begun is not None and begun is not there:
        begun.stop()
    return refused_start(error, (root_cause(whole_text(error)) or first_line(error)).rstrip("."), settings, conf)


def session_of_job(job: str, master: str = "local[*]", *, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, or build one for a job, which errors name.

    Raises:
        SetupError, EngineError: as ``build_session`` does.
    """
    try:
        return build_session(master, app_name=f"tidemark {job}", conf=conf)
    except TidemarkError as error:
        raise error.with_job(job) from error.__cause__


def spark_jobs(spark: SparkSession) -> int:
    """Return the number of jobs that the application has begun, of all job groups."""
    # Spark's public tracker lists the jobs of a group one by one, up to a thousand.
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())  # noqa: SLF001


_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


@contextmanager
def local_checkpoints(spark: SparkSession) -> Iterator[None]:
    """Make queries that start in the block write their checkpoint in the way that is fastest on a local disk.

    Spark's default runs a program for each file that it renames, a fifth of the time of a small epoch.
    """
    with changed_settings(spark, {_CHECKPOINT_FILES: spark.conf.get(_CHECKPOINT_FILES, None) or _BY_FILE_SYSTEM}):
        yield


_PARTITIONS = "spark.sql.shuffle.partitions"


@contextmanager
def engine_settings(spark: SparkSession) -> Iterator[None]:
    """Apply a job's settings to a session; the last of the jobs that share it restores the earlier values."""
    keep_java_classes(spark.sparkContext)
    with changed_settings(spark, SETTINGS, also=(_PARTITIONS,)):
        yield


def jobs_in(spark: SparkSession) -> int:
    """Return the number of jobs that run in a session, as far as ``engine_settings`` has been applied to it."""
    return blocks_with(spark, (*SETTINGS, _PARTITIONS))
