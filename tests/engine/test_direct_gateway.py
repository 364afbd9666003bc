"""Python connects to a JVM that it started by its command, and leaves neither its secret nor a process behind."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.spark.env.launch import direct_gateway as module
from tidemark.spark.env.launch.direct_gateway import direct_gateway
from tidemark.spark.env.launch.java_process import start_java

ANSWERS = r"""
printf '\000\000\000\007\000\000\000\006secret' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.part"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.part" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""
"""Stands for the program of the JVM: it says where it listens, and ends when its standard input does."""


def connected() -> SimpleNamespace:
    """Stands for PySpark's function: which variables it finds, and which other threads do meanwhile."""
    return SimpleNamespace(found=os.environ["PYSPARK_GATEWAY_PORT"] + os.environ["PYSPARK_GATEWAY_SECRET"], others=of_others())


def of_others() -> set[str]:
    return {name for name in os.environ if name.startswith("PYSPARK_GATEWAY_")}


def interrupted() -> None:
    raise KeyboardInterrupt


def test_other_threads_do_not_have_the_secret_in_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "launch_gateway", connected)
    java = start_java(["sh", "-c", ANSWERS], tmp_path / "out")
    gateway: Any = direct_gateway(java)
    assert not java.connection.parent.exists()
    gateway.proc.stdin.close()
    assert gateway.proc.wait(30) == 0
    assert gateway.found == "7secret"
    assert gateway.others == set()


def test_no_process_is_left_where_the_start_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "launch_gateway", interrupted)
    java = start_java(["sh", "-c", ANSWERS], tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        direct_gateway(java)
    assert java.process.returncode == -9
