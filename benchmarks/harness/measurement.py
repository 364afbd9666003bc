"""One measurement: a process of its own that starts Spark, warms up, and drains one workload on one engine.

Run as ``python -m benchmarks.harness.measurement REQUEST.json ANSWER.json`` by ``benchmarks.harness.processes``.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.functions.engines import drain_function
from benchmarks.functions.flink import drain_flink
from benchmarks.harness.engines import DRIVER_MEMORY, FUNCTION_ENGINES, Drained, Engine, drain, parse_engine, start_session
from benchmarks.harness.pyflink import VERSION
from benchmarks.harness.shapes import Shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Request:
    """What a process is to measure.

    Args:
        engine: name of the engine.
        shape: the windows.
        files: folder of the input.
        warm_files: folder of the input that warms up.
        folder: empty folder for outputs, checkpoint and state; ``measured`` below it holds the results.
        files_per_epoch: greatest number of files that one epoch reads.
        memory: of the JVM, as Spark takes it.
    """

    engine: str
    shape: Shape
    files: str
    warm_files: str
    folder: str
    files_per_epoch: int
    memory: str = DRIVER_MEMORY


@dataclass(frozen=True)
class Measurement:
    """What a process measured.

    ``epoch_ms`` is how long each epoch took, from its start to that of the next; the last one is not among them. ``state_rows`` and
    ``state_files`` are the state after each epoch; no files are given for engines whose state is not files.
    """

    seconds: float
    epoch_ms: tuple[int, ...]
    state_rows: tuple[int, ...]
    state_files: tuple[int, ...]
    versions: Mapping[str, str]


def measured_folder(folder: Path) -> Path:
    """Return where a process leaves the results of the measured run."""
    return folder / "measured"


def measure(request: Request) -> Measurement:
    """Start Spark, drain the warm-up a file per epoch, read the input once so that it is in memory, and drain it.

    Raises:
        TidemarkError: the engine's name is unknown, there is no Java, or Tidemark failed.
        StreamingQueryException: stock Spark failed.
    """
    engine = parse_engine(request.engine)
    folder = Path(request.folder)
    if engine.startswith("pyflink"):
        seconds = drain_flink(engine, Path(request.files), Path(request.warm_files), folder, scratch=folder.parent)
        return Measurement(seconds, (), (), (), {"python": platform.python_version(), "flink": VERSION})
    spark = start_session(engine, folder, memory=request.memory)
    try:
        _drain(request, engine, spark, Path(request.warm_files), folder / "warm-up", files_per_epoch=1)
        _read_through(Path(request.files))
        home = measured_folder(folder)
        done = _drain(request, engine, spark, Path(request.files), home, files_per_epoch=request.files_per_epoch)
        lengths = tuple(after - before for before, after in pairwise(done.epoch_starts_ms))
        return Measurement(done.seconds, lengths, done.state_rows, done.state_files, versions_of(spark))
    finally:
        spark.stop()


def _drain(request: Request, engine: Engine, spark: SparkSession, files: Path, folder: Path, *, files_per_epoch: int) -> Drained:
    if engine in FUNCTION_ENGINES:
        return drain_function(engine, spark, files, folder, files_per_epoch=files_per_epoch)
    return drain(engine, spark, files, folder, shape=request.shape, files_per_epoch=files_per_epoch)


def _read_through(files: Path) -> None:
    for path in sorted(files.iterdir()):
        with path.open("rb", buffering=0) as file:
            while file.read(_CHUNK_BYTES):
                pass


def versions_of(spark: SparkSession) -> dict[str, str]:
    """Return the versions of what a measurement stands on."""
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version') AS version").collect()[0]["version"]
    return {"python": platform.python_version(), "java": str(java), "pyspark": version("pyspark"), "tidemark": version("tidemark")}


def main() -> int:
    """Read the request, measure, write the answer."""
    asked, answer = (Path(argument) for argument in sys.argv[1:3])
    request = json.loads(asked.read_text(encoding="utf-8"))
    measured = measure(Request(**{**request, "shape": Shape(**request["shape"])}))
    answer.write_text(json.dumps(asdict(measured)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
