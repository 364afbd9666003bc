"""Errors of a start of Spark: of the settings, which stay wrong, or of what may pass."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyspark
import pytest
from py4j.protocol import Py4JError

from tidemark.errors import EngineError, SetupError
from tidemark.spark.env.jvm import ended_while_starting
from tidemark.spark.env.session import build_session
from tidemark.spark.env.start_errors import ended_java, refused_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.master": "local[x]", "spark.ui.enabled": "false"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
        (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused"),
        (Py4JError("..."), "java.io.IOException: No space left on device"),
        (Py4JError("..."), "java.lang.OutOfMemoryError: Java heap space"),
        (Py4JError("..."), "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory or limits reached"),
    ],
)
def test_what_is_wrong_with_the_machine_is_no_setting_and_may_pass(error: Exception, said: str) -> None:
    found = refused_start(error, said, SETTINGS, {})
    assert isinstance(found, EngineError)
    assert found.transient
    assert str(found).startswith(f"[TM502] Spark does not start: {said}. Fix: make room")


@pytest.mark.parametrize(
    "said",
    [
        "# An error report file is saved as:; # /home/me/master/hs_err_pid7.log",
        "Error: Unable to access jarfile /opt/spark-master/lib/spark.jar",
        "#  SIGSEGV (0xb) at pc=0x7f; # file:///builds/master",
    ],
)
def test_a_folder_named_master_is_no_setting(said: str) -> None:
    found = ended_java("Java ended before Spark could start in it", said, said, SETTINGS, "spark.log")
    assert isinstance(found, EngineError)


@pytest.mark.parametrize(
    "said", ["Master must either be yarn or start with spark, k8s, or local", "Asked to run locally with 0 threads", "Error: no master."]
)
def test_a_master_that_spark_refuses_is_named(said: str) -> None:
    found = ended_java("Java ended before Spark could start in it", said, said, SETTINGS, "spark.log")
    assert isinstance(found, SetupError)
    assert "Fix: correct spark.master=local[x] (--conf" in str(found)


def test_a_setting_that_spark_refuses_is_named() -> None:
    found = refused_start(Py4JError("..."), "Could not parse Master URL: 'local[x]'", SETTINGS, {})
    assert isinstance(found, SetupError)
    assert "Fix: correct spark.master=local[x] (--master, --conf" in str(found)
    unnamed = refused_start(Py4JError("..."), "no", SETTINGS, {"spark.a": "1"})
    assert "Fix: correct spark.master or spark.a (--master, --conf" in str(unnamed)


@pytest.mark.spark
def test_a_session_of_another_thread_is_not_stopped_where_settings_are_refused(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(SetupError, match=r"Fix: correct spark\.sql\.shuffle\.partitions=abc"):
        pool.submit(build_session, conf={"spark.sql.shuffle.partitions": "abc"}).result()
    assert spark.range(3).count() == 3


@pytest.mark.parametrize(("answered", "waited"), [(True, 0), (False, 5)])
def test_a_java_that_answered_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, answered: bool, waited: int) -> None:  # noqa: FBT001
    seen = []

    def wait(timeout: float) -> int:
        seen.append(timeout)
        raise subprocess.TimeoutExpired("java", timeout)

    monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=SimpleNamespace(wait=wait)))
    monkeypatch.setattr("tidemark.spark.env.jvm._printing", ("spark.log", 0))
    assert ended_while_starting(SETTINGS, answered=answered) is None
    assert seen == [waited]
