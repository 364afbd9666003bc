"""The JVM that a driver starts before all else, and the classes that are compiled before any JVM starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.seeds import only_long
from tidemark.spark.compiled_java import java_class, keep_classes
from tidemark.spark.env.java import ensure_java
from tidemark.spark.env.launch.java_command import learn_command
from tidemark.spark.env.launch.java_process import JavaProcess
from tidemark.spark.env.start import early_java
from tidemark.spark.env.start.described_session import VARIABLE, described
from tidemark.spark.env.start.early_java import start_early, take_started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLEEP = ["/bin/sleep", "60"]
IN_A_DRIVER = """
import os, sys
from pathlib import Path
from tidemark.spark.env.launch.java_process import JavaProcess
from tidemark.spark.env.start import early_java
early_java.command_path = lambda home: Path(sys.argv[1])
early_java.start_early(os.environ)
from tidemark.spark.env.session import build_session
session = build_session(sys.argv[2], app_name="early", log=Path(sys.argv[3]))
print(session.sparkContext._gateway.proc.args[4:] == list(early_java.start_java.commands[0]), len(early_java.start_java.commands))
print(session.range(3).count(), "TIDEMARK_SESSION" in os.environ)
"""
COUNTED = """
from tidemark.spark.env.launch import java_process
class Counted:
    commands = []
    def __call__(self, command, output):
        self.commands.append(tuple(command))
        return java_process.start_java(command, output)
"""
SOURCE = 'public final class Answer {{ public String toString() {{ return "{0}"; }} static final class Inner {{ }} }}'


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return variables that describe a session whose JVM is a program that waits."""
    monkeypatch.setattr(early_java, "java_command", lambda *_: SLEEP)
    return {"A": "b", VARIABLE: described("local[1]", "early", {"spark.ui.enabled": "false"}, tmp_path / "out")}


def test_the_process_that_was_started_early_is_taken_once(environment: dict[str, str]) -> None:
    start_early(environment)
    assert environment == {"A": "b", "PYSPARK_PYTHON": sys.executable}
    found = take_started(SLEEP)
    assert found is not None
    assert found.process.poll() is None
    assert take_started(SLEEP) is None
    found.kill()
    assert not found.connection.parent.exists()


@pytest.mark.parametrize("command", [None, ["/bin/sleep", "61"]])
def test_one_of_another_command_is_ended(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, command: list[str] | None) -> None:
    ended: list[int | None] = []
    kill = JavaProcess.kill

    def killed(java: JavaProcess) -> None:
        kill(java)
        ended.append(java.process.poll())

    monkeypatch.setattr(JavaProcess, "kill", killed)
    start_early(environment)
    assert take_started(command) is None
    assert ended == [-9]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"master": "local[1]", "app_name": "a", "conf": {}, "output": "/nowhere/out"}'])
def test_a_description_that_is_no_use_starts_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_java, "java_command", lambda *_: SLEEP)
    given = {VARIABLE: text}
    start_early(given)
    assert VARIABLE not in given
    assert take_started(SLEEP) is None


@pytest.mark.parametrize("error", [RuntimeError("Could not determine home directory."), ModuleNotFoundError("PySpark is not installed")])
def test_what_is_wrong_with_the_machine_is_left_to_the_driver(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(early_java, "java_command", fail)
    start_early(environment)
    assert environment == {"A": "b"}
    assert take_started(SLEEP) is None


@pytest.mark.spark
@pytest.mark.parametrize("same", [True, pytest.param(False, marks=only_long)])
def test_a_session_runs_in_it_where_its_settings_are_the_same(tmp_path: Path, *, same: bool) -> None:
    learnt = tmp_path / "command.json"
    learn_command(Path(ensure_java(), "bin", "java"), learnt)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment[VARIABLE] = described("local[1]" if same else "local[2]", "early", {}, tmp_path / "out")
    program = COUNTED + IN_A_DRIVER.replace("early_java.start_early(", "early_java.start_java = Counted()\nearly_java.start_early(")
    done = subprocess.run(
        [sys.executable, "-c", program, str(learnt), "local[1]", str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout.splitlines() == [f"{same} 1", "3 False"], done.stderr


@pytest.fixture
def jar(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Yield the path of the jar in which this JVM looks for classes meanwhile."""
    assert spark.sparkContext._jvm is not None  # noqa: SLF001
    system, name = spark.sparkContext._jvm.java.lang.System, "tidemark.classes"  # noqa: SLF001
    before = system.setProperty(name, str(tmp_path / "classes.jar"))
    yield tmp_path / "classes.jar"
    system.clearProperty(name) if before is None else system.setProperty(name, before)


@pytest.mark.spark
def test_classes_are_kept_with_a_checksum_of_their_sources(spark: SparkSession, jar: Path) -> None:
    gateway, jvm = spark.sparkContext._gateway, spark.sparkContext._jvm  # noqa: SLF001
    assert gateway is not None
    assert jvm is not None
    nothing = gateway.new_array(jvm.java.lang.Object, 0)

    def found(answer: int) -> tuple[str, str]:
        made = java_class(jvm, "Answer", SOURCE.format(answer))
        # Of classes of one name py4j calls the methods of the first.
        given = jvm.java.util.Objects.toString(made.getConstructors()[0].newInstance(nothing))
        return given, made.getClassLoader().getClass().getSimpleName()

    compiled = found(41)[1]
    keep_classes(jvm, {"Answer": SOURCE.format(42)}, jar)
    assert found(42) == ("42", "URLClassLoader")
    assert found(43) == ("43", compiled)
    assert compiled != "URLClassLoader"
    jar.write_bytes(b"no jar")
    assert found(42) == ("42", compiled)
