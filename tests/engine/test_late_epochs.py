"""What an epoch costs late in a run is what it costs early: nothing is counted that grows with the number of epochs so far."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import py4j.java_gateway
import py4j.protocol
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemark as tm
from tests.engine.lab import NOW
from tests.seeds import PROFILE
from tidemark.spark.loop import run as loop
from tidemark.state.log.progress import EpochProgress
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PART = 50 if PROFILE == "long" else 20
"""The counts of so many epochs are added up: merges of state, firings and sweeps are in each part. The first part is not compared."""

EPOCHS = 4 * PART if PROFILE == "long" else 3 * PART

MINUTE = 60_000


def land(folder: Path) -> None:
    """Write a file for each epoch, of another minute."""
    folder.mkdir()
    for number in range(EPOCHS):
        file = folder / f"{number:03}.parquet"
        pq.write_table(pa.table({"k": ["a", "b", "c"], "t": [number * MINUTE + row for row in range(3)]}), file)
        os.utime(file, (1_600_000_000 + number,) * 2)


class Counts:
    """Counts calls to the JVM, and what is read and listed of stores, in each part of the run; and what is alive at its end."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts: list[Counter[str]] = []
        self.caches: set[str] = set()
        self._spark, self._now, self._epochs = spark, Counter[str](), 0
        send, get, listed = py4j.java_gateway.GatewayClient.send_command, JobStore.get, JobStore.list

        def counted_send(client: Any, command: str, *args: Any, **kwargs: Any) -> Any:
            self._now["calls"] += not command.startswith(py4j.protocol.MEMORY_COMMAND_NAME)
            return send(client, command, *args, **kwargs)

        def counted_get(store: JobStore, path: str) -> bytes:
            self._now["files read"] += 1
            return get(store, path)

        def counted_list(store: JobStore, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            found = listed(store, *args, **kwargs)
            self._now["files listed"] += len(found)
            return found

        monkeypatch.setattr(py4j.java_gateway.GatewayClient, "send_command", counted_send)
        monkeypatch.setattr(JobStore, "get", counted_get)
        monkeypatch.setattr(JobStore, "list", counted_list)

    def note(self, _: EpochProgress) -> None:
        """Count an epoch."""
        self._epochs += 1
        if self._epochs % PART == 0:
            part, self._now = self._now, Counter()
            gc.collect()
            part["objects of the JVM"] = sum(isinstance(found, py4j.java_gateway.JavaObject) for found in gc.get_objects())
            part["epochs in memory"] = sum(isinstance(found, EpochProgress) for found in gc.get_objects())
            self.caches.add(self._cache_of_listings())
            self._now.clear()
            self.parts.append(part)

    def _cache_of_listings(self) -> str:
        jvm = self._spark.sparkContext._jvm  # noqa: SLF001
        caches = jvm.org.apache.spark.sql.execution.datasources.FileStatusCache  # type: ignore[union-attr]
        return str(caches.getOrCreate(self._spark._jsparkSession).getClass().getSimpleName())  # noqa: SLF001


def test_late_epochs_cost_what_early_ones_do(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "EPOCHS_KEPT", 20)
    land(tmp_path / "landing")
    spec = tm.files(str(tmp_path / "landing"), format="parquet", schema="k STRING, t BIGINT", max_files_per_epoch=1)
    rows = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="t"))
    panes = rows.key_by("k").window(tm.tumbling(f"{PART} minutes")).aggregate(n=tm.count()).uid("w")
    job = tm.Job("job", outputs={"panes": tm.parquet(panes, str(tmp_path / "panes"))}, store=str(tmp_path / "store"), retained_epochs=10)
    counts = Counts(spark, monkeypatch)
    done = tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=counts.note)
    assert (done.epochs_run, done.rows_in) == (EPOCHS, 3 * EPOCHS)
    assert [epoch.epoch for epoch in done.epochs] == list(range(EPOCHS - 20, EPOCHS))
    _, early, *_, late = counts.parts
    assert min(early[what] for what in ("calls", "files read", "files listed", "objects of the JVM", "epochs in memory")) > 0
    for what, number in late.items():
        assert number <= 1.25 * early[what], (what, list(map(dict, counts.parts)))
    # Spark would keep the listing of each file that was read.
    assert counts.caches == {"NoopCache$"}
