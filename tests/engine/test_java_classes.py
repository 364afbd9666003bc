"""PySpark finds the classes that it uses for columns and frames without asking the JVM each time."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import numpy as np
import py4j.java_gateway
import pytest
from pyspark.sql import Observation, SparkSession, Window
from pyspark.sql import functions as F

from tidemark.spark.env.java_classes import keep_java_classes, load_compiler

pytestmark = pytest.mark.spark


def test_frames_are_made_without_asking_for_classes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_java_classes(spark.sparkContext)

    def make() -> list[tuple[int, ...]]:
        observation = Observation()
        rows = spark.range(9).select(F.col("id"), F.expr("id % 2 AS odd"), F.lit(1).alias("one"))
        placed = rows.withColumn("place", F.row_number().over(Window.partitionBy("odd").orderBy("id")))
        found = placed.groupBy("odd").agg(F.max("place").alias("n")).orderBy("odd").observe(observation, F.count(F.lit(1)).alias("rows"))
        made = [tuple(row) for row in found.collect()]
        return [*made, (observation.get["rows"],)]

    assert make() == [(0, 5), (1, 4), (2,)]
    asked: list[str] = []
    view = py4j.java_gateway.JVMView
    monkeypatch.setattr(view, "__getattr__", lambda _, name: asked.append(name))
    assert make() == [(0, 5), (1, 4), (2,)]
    assert not asked


def test_a_class_is_asked_for_once_part_by_part(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    assert jvm.org.apache.spark.sql.types.StructType().size() == 0
    asked: list[str] = []
    ask = py4j.java_gateway.JavaPackage.__getattr__

    def noted(package: Any, name: str) -> Any:
        asked.append(name)
        return ask(package, name)

    monkeypatch.setattr(py4j.java_gateway.JavaPackage, "__getattr__", noted)
    assert jvm.org.apache.spark.sql.types.StructType().size() == 0
    assert asked == []
    # A class may come with a jar.
    for _ in range(2):
        assert isinstance(jvm.org.apache.NoSuchClass, py4j.java_gateway.JavaPackage)
    assert asked == ["NoSuchClass", "NoSuchClass"]


def test_a_class_that_comes_with_a_jar_is_found_then(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    for _ in range(2):
        with pytest.raises(TypeError, match="'JavaPackage' object is not callable"):
            jvm.org.apache.nowhere.functions.from_text("a")
    ask = py4j.java_gateway.JavaPackage.__getattr__

    def with_jar(package: Any, name: str) -> Any:
        return jvm.java.lang.Math if name == "functions" else ask(package, name)

    monkeypatch.setattr(py4j.java_gateway.JavaPackage, "__getattr__", with_jar)
    assert jvm.org.apache.nowhere.functions.abs(-3) == 3
    monkeypatch.undo()
    assert jvm.org.apache.nowhere.functions.abs(-3) == 3, "kept"
    vars(jvm.org.apache).pop("nowhere")


def test_arguments_of_numpy_are_converted(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    assert jvm.java.lang.Math.abs(np.int64(-3)) == 3
    assert jvm.java.util.Arrays.toString(np.array([1, 2])) == "[1, 2]"
    assert jvm.java.util.ArrayList([1, 2]).size() == 2


def test_the_compiler_of_generated_code_is_loaded(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    with caplog.at_level(logging.DEBUG, logger="tidemark"):
        load_compiler(jvm)
    assert caplog.messages == [], "its failure would be logged"


def test_a_session_starts_without_pandas_and_another_can_be_built_behind_one_that_was_stopped() -> None:
    code = (
        "import sys\n"
        "from tidemark.spark.env.session import build_session\n"
        "for name in ('one', 'two'):\n"
        "    spark = build_session('local[1]', app_name=name)\n"
        "    print(spark.range(3).count(), spark.sparkContext.appName, 'pandas' in sys.modules, 'pyspark.testing' in sys.modules)\n"
        "    spark.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == ["3", "one", "False", "False", "3", "two", "False", "False"], done.stderr[-2_000:]
