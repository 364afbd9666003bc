"""A JVM that does not start: the error is one line that has what Java printed, whoever started it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeds import only_long, some
from tidemark.spark.env.jvm import last_lines

pytestmark = pytest.mark.spark

JOB = """
import tidemark as tm

rows = tm.source("rows", tm.from_elements([("a", 1)], schema="k STRING, at BIGINT"), watermarks=tm.ascending(timestamp="at"))
job = tm.Job("small", outputs={"rows": tm.memory(rows, "rows")})
bad = tm.Job("bad", outputs={"rows": tm.memory(rows.select("at", n="CAST(k AS INT)"), "bad")}, store="store")
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

ENDED = STARTING.replace("?P<log>", "?:")

IN_ONE_JVM = """
import sys
import tidemark as tm
from small import bad
from tidemark.spark.env.session import build_session
for master, conf in (
    ("local[1]", {"spark.local.dir": "/proc/nowhere"}),
    ("local[0]", {}),
    ("spark:/nowhere", {}),
    ("local[1]", {"spark.sql.shuffle.partitions": "abc"}),
    ("local[1]", {"spark.ui.enabled": "maybe"}),
):
    try:
        build_session(master, conf=conf)
    except tm.TidemarkError as error:
        print(error)
spark = build_session("local[1]", conf={"spark.sql.shuffle.partitions": "1"})
print(spark.conf.get("spark.sql.shuffle.partitions"), spark.sparkContext.master)
tm.run(bad, **({"spark": spark} if len(sys.argv) > 1 else {}))
"""
WRONG = (
    ("Asked to run locally with 0 threads", "spark.master=local[0]"),
    ("Could not parse Master URL: 'spark:/nowhere'", "spark.master=spark:/nowhere"),
    ("The value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid", "spark.sql.shuffle.partitions=abc"),
    ("The value 'maybe' in the config \"spark.ui.enabled\" is invalid", "spark.ui.enabled=maybe"),
)

SETTINGS = {
    "spark.driver.memory=1": ("TM600", "Error occurred during initialization of VM; Too small maximum heap"),
    "spark.driver.memory=lots": ("TM600", "Invalid maximum heap size: -Xmxlots"),
    "spark.driver.memory=4000000t": ("TM502", "Could not reserve enough space"),
    "spark.driver.extraJavaOptions=-XX:MaxRAMPercentage=abc": ("TM600", "Improperly specified VM option 'MaxRAMPercentage=abc'"),
    "spark.driver.extraJavaOptions=-Xmx2g": ("TM600", "Error: Not allowed to specify max heap(Xmx) memory settings through java options"),
    "spark.executor.memory=lots": ("TM600", "Executor memory must be a positive number"),
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


@pytest.mark.parametrize("setting", some(SETTINGS, 2))
def test_a_setting_that_java_does_not_start_with_is_named_as_java_does(folder: Path, setting: str) -> None:
    command = (sys.executable, "-c", "from tidemark.cli.program.main import main; main()", "run", "small:job")
    done = done_in(folder, *command, "--conf", setting)
    assert done.returncode != 0
    said = re.fullmatch(rf"{STARTING}\ntidemark: (?P<line>.+)\n", done.stderr)
    assert said is not None, done.stderr
    line, (code, cause) = said["line"], SETTINGS[setting]
    assert line.startswith(f"[{code}] Java ended before Spark could start in it: "), line
    assert cause in line, line
    wrong = "the setting of the JVM that it names" if code == "TM502" else f"{setting} (--conf, or the Dagster resource's conf); "
    assert f"(job 'small'). Fix: correct {wrong}" in line
    assert line.endswith(f"{said['log']} has its whole output")
    assert "gateway process exited" not in line.lower()
    assert cause.partition("; ")[0] in Path(said["log"]).read_text(encoding="utf-8")


def test_a_setting_in_a_file_of_spark_s_is_named_too(folder: Path) -> None:
    (folder / "spark-defaults.conf").write_text("spark.driver.memory lots\n", encoding="utf-8")
    done = done_in(folder, sys.executable, "-c", IN_PYTHON, SPARK_CONF_DIR=str(folder))
    assert done.stdout.startswith("[TM600] Java ended before Spark could start in it: Invalid maximum heap size: -Xmxlots"), done.stdout
    assert "Fix: correct spark.driver.memory, which Spark's configuration files or a variable of the environment set" in done.stdout


NO_MEMORY = (
    "import tidemark as tm\nfrom tidemark.spark.env.session import build_session\ntry:\n    build_session('local[1]', conf={conf})\n"
)
NO_MEMORY += "except tm.TidemarkError as error:\n    print(error)\n"
TOO_MUCH = {"spark.driver.memory": "500g", "spark.driver.extraJavaOptions": "-Xms500g"}
OWN = "-XX:ErrorFile=of-the-user.log"
WHERE = {
    "by default": (TOO_MUCH, {}, "logs/spark/hs_err_pid*.log"),
    "as the session has it": ({**TOO_MUCH, "spark.driver.extraJavaOptions": f"-Xms500g {OWN}"}, {}, "of-the-user.log"),
    "as the session's defaults have it": ({**TOO_MUCH, "spark.driver.defaultJavaOptions": OWN}, {}, "of-the-user.log"),
    "as a variable has it": (TOO_MUCH, {"JDK_JAVA_OPTIONS": OWN}, "of-the-user.log"),
}


@pytest.mark.parametrize("where", WHERE)
def test_the_report_of_a_java_without_memory_is_beside_its_log_or_where_the_user_wants_it(folder: Path, where: str) -> None:
    conf, variables, place = WHERE[where]
    done = done_in(folder, sys.executable, "-c", NO_MEMORY.format(conf=conf), **variables)
    assert done.stdout.startswith("[TM502] Java ended before Spark could start in it: "), done.stdout
    assert [*folder.rglob("hs_err*"), *folder.rglob("of-the-user*")] == list(folder.glob(place)) != []


def test_a_java_that_is_asked_for_its_version_and_spark_s_launcher_leave_no_report_in_the_working_folder(folder: Path) -> None:
    """A Java whose initial heap is more than there is."""
    (folder / "tmp").mkdir()
    own_defaults = {"_JAVA_OPTIONS": "-Xmx500g -Xms500g", "TMPDIR": str(folder / "tmp")}
    done = done_in(folder, sys.executable, "-c", NO_MEMORY.format(conf={}), **own_defaults)
    assert done.stdout.startswith("[TM600] Java does not start: "), done.stdout
    assert list(folder.glob("hs_err*")) == []
    assert list((folder / "tmp").glob("hs_err_pid*.log"))
    again = done_in(
        folder, sys.executable, "-c", NO_MEMORY.format(conf={}), SPARK_LAUNCHER_OPTS="-Xmx500g -Xms500g", TMPDIR=str(folder / "tmp")
    )
    assert again.stdout.startswith("[TM502] Java ended before Spark could start in it: "), again.stdout
    assert list(folder.glob("hs_err*")) == []


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_that_no_java_starts_with_is_named(folder: Path, variable: str) -> None:
    value, cause = VARIABLES[variable]
    done = done_in(folder, sys.executable, "-c", IN_PYTHON, **{variable: value})
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    assert line.startswith("[TM600] Java does not start: "), line
    assert cause in line, line
    assert line.endswith(f"(job 'small'). Fix: correct {variable}, whose options every Java takes")


@pytest.mark.parametrize("session", [pytest.param((), id="of Tidemark's"), pytest.param(("its own",), id="of its own", marks=only_long)])
def test_settings_that_spark_does_not_start_with_are_named_and_an_error_ends_a_script_in_one_line(
    folder: Path, session: tuple[str, ...]
) -> None:
    done = done_in(folder, sys.executable, "-c", IN_ONE_JVM, *session)
    ended, *refused, started = done.stdout.splitlines()
    # The next start has a new Java.
    assert ended.startswith("[TM600] Java ended while Spark started in it: DiskBlockManager: Failed to create any local dir"), ended
    assert "Fix: correct spark.local.dir=/proc/nowhere (--conf, or the Dagster resource's conf); " in ended
    for line, (said, named) in zip(refused, WRONG, strict=True):
        assert line.startswith("[TM600] Spark does not start: "), line
        assert said in line, line
        assert f". Fix: correct {named} (--master, --conf" in line, line
    assert started == "1 local[1]"
    assert done.returncode == 1
    script = re.fullmatch(
        rf"{ENDED}\n{STARTING}\ntidemark: (?P<line>\[TM501\] .+); its traces are in (?P<again>/.+\.log)\n",
        done.stderr,
    )
    assert script is not None, done.stderr
    assert "small.py:6)" in script["line"]
    assert (script["again"] == script["log"]) == (not session)
    traces = Path(script["again"]).read_text(encoding="utf-8")
    for part in ("Traceback (most recent call last)", "<module>", "CAST_INVALID_INPUT"):
        assert part in traces


def test_what_spark_logs_is_no_part_of_what_java_said_last(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(
        "of an earlier start\n"
        "WARNING: Using incubator modules: jdk.incubator.vector\n"
        "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties\n"
        'Setting default log level to "WARN".\n'
        "To adjust logging level use sc.setLogLevel(newLevel).\n"
        "Error: Could not find or load main class nowhere\n"
        "26/11/24 19:45:46 ERROR SparkContext: Error initializing SparkContext.\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n",
        encoding="utf-8",
    )
    assert last_lines(log, len("of an earlier start\n")) == "Error: Could not find or load main class nowhere"
