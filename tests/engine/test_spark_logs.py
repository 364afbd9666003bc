"""Old logs of Spark sessions are removed, but for those that a session still writes to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.env.jvm import new_log


def test_the_logs_of_sessions_that_go_on_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_LOGS", str(tmp_path))
    folder = tmp_path / "spark"
    folder.mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def log(number: int, pid: int, *, hours: float) -> Path:
        path = folder / f"spark-2024-01-01T00-00-{number:02d}-000Z-{pid}.log"
        path.touch()
        os.utime(path, (SYSTEM_CLOCK.now_ms() / 1000 - hours * 3600,) * 2)
        return path

    lives, written = log(0, os.getpid(), hours=100), log(1, ended.pid, hours=0.5)
    old = [log(number, ended.pid, hours=100) for number in range(2, 4)]
    newer = [log(number, ended.pid, hours=100) for number in range(4, 23)]
    made = new_log()
    assert sorted(folder.iterdir()) == sorted([lives, written, *newer, made])
    assert not any(path.exists() for path in old)
