"""Has a new JVM load and compile what an epoch needs while the driver reads the job's log: the first epoch then waits for less."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.clock import SYSTEM_CLOCK
from tidemark.spark.env.session import spark_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tidemark")

_LONGEST_SECONDS: Final = 30.0


def warmed_up(spark: SparkSession, on_stage: Callable[[str], None] | None) -> Callable[[str], None]:
    """Begin to warm up a JVM that has not run a job; return what to call as the stages of a start begin, which calls ``on_stage``.

    The stage "first epoch" waits for the end, so that the job is not counted among those of an epoch.
    """
    warm_up = _WarmUp(spark) if spark_jobs(spark) == 0 else None

    def stage(name: str) -> None:
        if name == "first epoch" and warm_up is not None:
            warm_up.join()
        if on_stage is not None:
            on_stage(name)

    return stage


class _WarmUp:
    """A small pass that reads, groups and writes Parquet files in the background."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._thread = threading.Thread(target=self._run, name="tidemark-warm-up", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(_LONGEST_SECONDS)

    def _run(self) -> None:
        begun = SYSTEM_CLOCK.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="tidemark-warm-up-") as folder:
                self._pass_over_files(Path(folder))
        except Exception as error:  # noqa: BLE001  # a run is slower without it, and nothing else
            logger.debug("the warm-up ended: %s", error)
        logger.debug("the warm-up took %.1f s", SYSTEM_CLOCK.monotonic() - begun)

    def _pass_over_files(self, folder: Path) -> None:
        read = folder / "read.parquet"
        pq.write_table(pa.table({"k": ["a", "b"], "t": [1, 2], "v": [0.5, None]}), read)
        rows = self._spark.read.schema("k STRING, t BIGINT, v DOUBLE").parquet(f"file://{read}").coalesce(1)
        marked = rows.selectExpr("k", "v", "t", "if(t BETWEEN 0L AND 9L, 0, 1) AS s").selectExpr(
            "k", "v", "if(s = 0, t - pmod(t, 5L), -1L) AS w"
        )
        grouped = marked.groupBy("k", "w").agg({"v": "sum", "*": "count"}).where("w > get(array(-2L), CAST(pmod(w, 1) AS INT))")
        grouped.toDF("k", "w", "a", "b").write.option("compression", "lz4").parquet(f"file://{folder / 'written'}")
