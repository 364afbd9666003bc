"""A script that runs the query on stock Spark until its first batch is published: ``python -m … ENGINE FOLDER SETTINGS``.

It is what a user of PySpark would write, and loads nothing of Tidemark's engine: PySpark starts its JVM by itself, with the settings in a
file of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness.engines import parse_engine
from benchmarks.operation.live_engines import Live, run_live
from tidemark.clock import SYSTEM_CLOCK


def main(arguments: Sequence[str]) -> int:
    """Run the query until its first batch is published, and print when that was."""
    engine, folder, settings = parse_engine(arguments[0]), Path(arguments[1]), Path(arguments[2])
    ended, published = threading.Event(), list[int]()

    def committed() -> None:
        published.append(SYSTEM_CLOCK.now_ms())
        ended.set()

    builder = SparkSession.builder
    for key, value in json.loads(settings.read_text(encoding="utf-8")).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        run_live(engine, spark, Live(folder / "in", folder, int(arguments[3]), ended, committed))
    finally:
        spark.stop()
    print(published[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
