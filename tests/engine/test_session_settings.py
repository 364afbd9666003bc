"""What a session on one machine is built with, beside the user's own configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.spark.env.start.session_settings import LOCAL, local_settings
from tidemark.spark.env.start_errors import JAVA_OPTIONS


def test_java_options_of_the_users_configuration_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    ours = local_settings()
    assert ours[JAVA_OPTIONS].startswith(LOCAL[JAVA_OPTIONS])
    assert {**ours, JAVA_OPTIONS: ""} == {**LOCAL, JAVA_OPTIONS: ""}
    (tmp_path / "spark-defaults.conf").write_text(f"# theirs\n spark.driver.memory 8g\n{JAVA_OPTIONS}  -XX:+UseG1GC\n")
    found = local_settings()
    assert JAVA_OPTIONS not in found
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
