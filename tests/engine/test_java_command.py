"""Spark's JVM is started by the command that Spark's own launcher would build, or by that launcher."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tidemark.spark.env.java import ensure_java
from tidemark.spark.env.launch import java_command
from tidemark.spark.env.launch.java_command import command_environment, direct_command, learn_command, spark_home
from tidemark.spark.env.start.session_settings import start_settings

SETTINGS = {
    "none": {},
    "memory": {"spark.driver.memory": "3g"},
    "options": {"spark.driver.extraJavaOptions": '-Da="two words"  -Db=c -XX:ErrorFile="/tmp/a b.log"'},
    "both options": {"spark.driver.defaultJavaOptions": "-Dx=1 -Dy=2", "spark.driver.extraJavaOptions": "-Dz"},
    "a value with marks": {"spark.app.name": "tide 'mark' \"$HOME\" = ü"},
}
ELSEWHERE: Mapping[str, dict[str, str]] = {
    "a cluster": {"spark.master": "spark://host:7077"},
    "a class path": {"spark.driver.extraClassPath": "/jars/*"},
    "libraries": {"spark.driver.extraLibraryPath": "/lib"},
    "a heap among the options": {"spark.driver.extraJavaOptions": "-Xmx2g"},
    "other quotes": {"spark.driver.extraJavaOptions": "-Da='b c'"},
    "quotes that do not end": {"spark.driver.extraJavaOptions": '-Da="b c'},
    "a mode": {"spark.submit.deployMode": "client"},
    "Spark Connect": {"spark.remote": "local"},
}
VARIABLES = ("SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_DRIVER_MEMORY", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SPARK_") or name in VARIABLES]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("learnt") / "command.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-Dof.the.user=1")
        learn_command(Path(ensure_java(), "bin", "java"), place)
    return place


def settings_of(settings: Mapping[str, str]) -> dict[str, str]:
    master = settings.get("spark.master", "local[1]")
    return start_settings(master, conf={name: value for name, value in settings.items() if name != "spark.master"})


@pytest.mark.parametrize("name", SETTINGS)
def test_the_command_is_the_one_that_spark_s_launcher_builds(learnt: Path, name: str) -> None:
    settings = {**settings_of({}), **SETTINGS[name]}
    conf = [part for setting in settings.items() for part in ("--conf", "=".join(setting))]
    main = ("org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit")
    asked = (str(Path(ensure_java(), "bin", "java")), "-cp", f"{spark_home()}/jars/*", *main, *conf, "pyspark-shell")
    answer = subprocess.run(asked, capture_output=True, text=True, env=command_environment(), check=True).stdout
    built = answer.split("\0\n", 1)[1].split("\0")[:-1]
    command = direct_command(settings, learnt)
    assert command is not None
    at = built.index("org.apache.spark.deploy.SparkSubmit") + 1
    assert command[:at] == built[:at]
    # Spark's launcher has the settings in another order.
    assert sorted(command[at:]) == sorted(built[at:])
    assert command[-1] == built[-1] == "pyspark-shell"


@pytest.mark.parametrize("name", ELSEWHERE)
def test_spark_s_launcher_builds_the_command_for_other_settings(learnt: Path, name: str) -> None:
    assert direct_command(settings_of({}), learnt) is not None
    assert direct_command({**settings_of({}), **ELSEWHERE[name]}, learnt) is None


@pytest.mark.parametrize("variable", VARIABLES)
def test_spark_s_launcher_builds_the_command_where_variables_configure_it(
    learnt: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    settings = settings_of({})
    assert direct_command(settings, learnt) is not None
    monkeypatch.setenv(variable, "something")
    assert direct_command(settings, learnt) is None


def test_spark_s_launcher_builds_the_command_where_files_configure_it(
    learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of({})
    (tmp_path / "conf").mkdir()
    place = tmp_path / "command.json"
    place.write_text(learnt.read_text().replace(f'"home": "{spark_home()}"', f'"home": "{tmp_path}"'))
    monkeypatch.setattr(java_command, "spark_home", lambda: tmp_path)
    assert direct_command(settings, place) is not None
    (tmp_path / "conf" / "spark-env.sh").touch()
    assert direct_command(settings, place) is None


def test_spark_s_launcher_builds_the_command_in_a_copied_environment(learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that was learnt in the original names the original's jars, which may be of another release by now, or gone."""
    settings = settings_of({})
    assert direct_command(settings, learnt) is not None
    monkeypatch.setattr(java_command, "spark_home", lambda: tmp_path)
    assert direct_command(settings, learnt) is None


def test_spark_s_launcher_builds_the_command_where_java_has_moved(learnt: Path, tmp_path: Path) -> None:
    kept = json.loads(learnt.read_text())
    kept["command"][0] = str(tmp_path / "java")
    place = tmp_path / "command.json"
    place.write_text(json.dumps(kept))
    assert direct_command(settings_of({}), place) is None


@pytest.mark.parametrize("text", [None, "", "{", "\udcff", "3", "[]", "{}"])
def test_spark_s_launcher_builds_the_command_where_none_is_known(tmp_path: Path, text: str | None) -> None:
    place = tmp_path / "command.json"
    if text is not None:
        place.write_bytes(text.encode(errors="surrogateescape"))
    assert direct_command(settings_of({}), place) is None


def test_nothing_is_kept_of_an_answer_that_is_not_understood(learnt: Path, tmp_path: Path) -> None:
    place = tmp_path / "command.json"
    place.write_bytes(learnt.read_bytes())
    learn_command(Path("/bin/echo"), place)
    assert direct_command(settings_of({}), place) is None
