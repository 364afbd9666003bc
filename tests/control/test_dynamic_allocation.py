"""Executors follow the parallelism where the cluster can: what the launcher adds to a job's settings. No JVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidemark.control.launch.spark_submit import SparkSubmitLauncher
from tidemark.control.model.dynamic_allocation import ENABLED, IDLE, dynamic_allocation_settings
from tidemark.control.model.spec import JobSpec
from tidemark.spark.env.start.session_settings import SETTINGS

DYNAMIC = JobSpec("fares", "fares:job", launcher="spark-submit", master="yarn", trigger_ms=120_000, conf={ENABLED: "true"})


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (DYNAMIC, {IDLE: "360s"}),
        (replace(DYNAMIC, conf={ENABLED: " True"}), {IDLE: "360s"}),
        (replace(DYNAMIC, trigger_ms=20_001), {IDLE: "61s"}),
        (replace(DYNAMIC, trigger_ms=20_000), {}),  # Spark's own minute is three triggers
        (replace(DYNAMIC, conf={ENABLED: "false"}), {}),
        (replace(DYNAMIC, conf={}), {}),
        (replace(DYNAMIC, master="local[4]"), {}),  # it has one executor, the driver itself
    ],
)
def test_idle_executors_stay_for_a_few_triggers(spec: JobSpec, expected: dict[str, str]) -> None:
    assert dynamic_allocation_settings(spec) == expected


def test_settings_of_the_job_take_precedence(tmp_path: Path) -> None:
    launcher = SparkSubmitLauncher(tmp_path)
    assert launcher.conf(DYNAMIC)[IDLE] == "360s"
    assert launcher.conf(replace(DYNAMIC, conf={**DYNAMIC.conf, IDLE: "5s"}))[IDLE] == "5s"


def test_no_bound_on_executors_stands_against_a_rescale(tmp_path: Path) -> None:
    """The bounds are read once, at the start of Spark; the tasks of a stage are as many as the next epoch's parallelism says."""
    small, large = (SparkSubmitLauncher(tmp_path).conf(replace(DYNAMIC, parallelism=parallelism)) for parallelism in (2, 700))
    assert small == large
    assert not {key for key in small if key.lower().endswith("executors")}
    assert SETTINGS["spark.sql.adaptive.enabled"] == "false", "it would put the partitions of small epochs together, whatever is asked for"
