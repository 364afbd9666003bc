"""Runs of jobs that look rows up in tables, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, require_conservation
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.state.log.progress import EpochProgress

SCHEMA = "t TIMESTAMP, k STRING, n INT"


def row(second: int, key: str | None) -> tuple[object, ...]:
    """Return an element of a second, whose number it has, and a key."""
    return datetime.fromtimestamp(second, UTC), key, second


def run_epochs(
    spark: SparkSession,
    folder: Path,
    stream: tm.Stream,
    between: Callable[[int, ManualClock], None] = lambda *_: None,
    *,
    name: str = "lookup",
    at: int = NOW,
    **settings: Any,
) -> list[list[str]]:
    """Run epoch by epoch; return the names in each. ``between`` is called after each with its number."""
    clock, table = ManualClock(at), f"{folder}/{name}"
    job = tm.Job(name, outputs={"out": tm.memory(stream, table)}, store=str(folder / "store"), retained_epochs=1)
    found: list[list[str]] = []

    def after(epoch: EpochProgress) -> None:
        require_conservation(epoch)
        made = tm.memory_table(table)
        found.append(sorted(str(each["name"]) for each in ([] if made is None else made.to_pylist())))
        tm.clear_memory(table)
        between(len(found), clock)

    tm.run(job, spark=spark, clock=clock, on_epoch=after, handle_signals=False, takeover=True, **settings)
    return found


@contextmanager
def killed_at(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the block end at a crash point, as if the process was killed there."""

    def killed(pid: int, signal: int) -> None:
        del pid, signal
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setenv("TIDEMARK_CRASH_AT", point)
        patch.setattr("tidemark.crashpoints._reached", {})
        patch.setattr("tidemark.crashpoints.os.kill", killed)
        with pytest.raises(Exception, match="killed here"):
            yield
