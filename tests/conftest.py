"""Settings of all tests: how long Hypothesis searches, here and in continuous integration."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.longest import place_in_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

# A Spark epoch is slower than Hypothesis expects of an example; its deadlines and health checks on speed say nothing here.
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", max_examples=200, deadline=None, suppress_health_check=_SLOW, print_blob=True, derandomize=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=_SLOW, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

SLOWEST_FILES = 40

# Connectors that this user has installed are no part of the tests.
os.environ["TIDEMARK_CONNECTORS"] = os.devnull

# Tests change a module within the second in which it was loaded: Python would take its compiled file for that of the changed one.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# Drivers that tests start as users do have the product's own options, and this one: they end before the second compiler pays.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first."""
    items.sort(key=lambda item: place_in_run(item.location[0]))


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of later collections of garbage: looking at them took seconds each."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that took longest, in seconds of their workers with fixtures: where a suite's time goes."""
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.location[0]] += report.duration
    if len(seconds) > SLOWEST_FILES:
        terminalreporter.section(f"slowest {SLOWEST_FILES} files of {len(seconds)}, which took {sum(seconds.values()):.0f} s")
        for file in sorted(seconds, key=seconds.__getitem__, reverse=True)[:SLOWEST_FILES]:
            terminalreporter.line(f"{seconds[file]:6.0f} s  {file}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One small Spark session for all tests of a process."""
    from tests.few_rows import FEW_ROWS, leave_out_call_sites, leave_out_counts_of_rules, leave_out_defaults_of_others
    from tests.kafka.broker import connector_settings
    from tidemark.spark.env.session import build_session

    # With one GB, a tenth of the processor time went into collections of garbage.
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g", **FEW_ROWS, **connector_settings()}
    session = build_session("local[2]", app_name="tidemark tests", conf=settings)
    leave_out_defaults_of_others(session)
    leave_out_counts_of_rules(session)
    leave_out_call_sites(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jvm(spark: SparkSession) -> Mapping[str, str]:
    """The variables by which a process that is killed finds the JVM of these tests, which goes on without it."""
    from tests.crash.warm_jvm import variables_of

    return variables_of(spark)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have jobs read files and elements by queries of Spark's, too."""
    from tidemark.spark.loop.driver import JobDriver

    monkeypatch.setattr(JobDriver, "plans_epochs", False)
