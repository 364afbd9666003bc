"""A JVM that does not start: the error is one line that has what Java printed, whoever started it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

JOB = """
import tidemark as tm

rows = tm.source("rows", tm.from_elements([("a", 1)], schema="k STRING, at BIGINT"), watermarks=tm.ascending(timestamp="at"))
job = tm.Job("small", outputs={"rows": tm.memory(rows, "rows")})
"""
IN_PYTHON = """
import tidemark as tm
from small import job
try:
    tm.run(job)
except tm.TidemarkError as error:
    print(error)
"""
STARTING = r"starting Spark \(about 20 s\); its log is (?P<log>/.+\.log)"

SETTINGS = {
    "spark.driver.memory=1": "Error occurred during initialization of VM; Too small maximum heap",
    "spark.driver.memory=4000000t": "Could not reserve enough space",
    "spark.driver.extraJavaOptions=-XX:MaxRAMPercentage=abc": "Improperly specified VM option 'MaxRAMPercentage=abc'",
}
VARIABLES = {"JAVA_TOOL_OPTIONS": ("-Xmx1", "Too small maximum heap"), "JDK_JAVA_OPTIONS": ("-XX:NoSuchOption", "'NoSuchOption'")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(JOB, encoding="utf-8")
    return tmp_path


def done_in(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in {"TIDEMARK_STORE", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"}
    }
    environment |= {"TIDEMARK_LOGS": str(folder / "logs"), **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_that_java_does_not_start_with_is_named_as_java_does(folder: Path, setting: str) -> None:
    command = (sys.executable, "-c", "from tidemark.cli.program.main import main; main()", "run", "small:job")
    done = done_in(folder, *command, "--conf", setting)
    assert done.returncode != 0
    said = re.fullmatch(rf"{STARTING}\ntidemark: (?P<line>.+)\n", done.stderr)
    assert said is not None, done.stderr
    line, cause = said["line"], SETTINGS[setting]
    assert line.startswith("[TM502] Java ended before Spark could start in it: "), line
    assert cause in line, line
    assert "(job 'small'). Fix: correct the setting of the JVM that it names" in line
    assert line.endswith(f"{said['log']} has all that it printed")
    assert "gateway process exited" not in line.lower()
    assert cause.partition("; ")[0] in Path(said["log"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_that_no_java_starts_with_is_named(folder: Path, variable: str) -> None:
    value, cause = VARIABLES[variable]
    done = done_in(folder, sys.executable, "-c", IN_PYTHON, **{variable: value})
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert line.startswith("[TM600] Java does not start: "), line
    assert cause in line, line
    assert line.endswith(f"(job 'small'). Fix: correct {variable}, whose options every Java takes")
