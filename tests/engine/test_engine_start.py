"""A session is built in a thread while the engine's modules load: what an interrupt leaves."""

from __future__ import annotations

import io
import sys
import threading

import pyspark
import pytest

from tidemark.spark.env.jvm import startup_animation
from tidemark.spark.loop.start import engine_start
from tidemark.spark.loop.start.engine_start import session_and_engine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_interrupted_start_leaves_the_cursor_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, building, interrupted = Terminal(), threading.Event(), threading.Event()

    def build(*_: object, **__: object) -> None:
        with startup_animation():
            building.set()
            interrupted.wait(60)

    def interrupt() -> None:
        assert building.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(engine_start, "session_of_job", build)
    monkeypatch.setattr(engine_start, "load_engine", interrupt)
    with pytest.raises(KeyboardInterrupt):
        session_and_engine("fares")
    said = terminal.getvalue()
    interrupted.set()
    assert "starting Spark" in said
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") == 1, "hidden as often as shown"
