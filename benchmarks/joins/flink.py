"""The regular join of two changelogs in Flink SQL, run in PyFlink's own environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.harness.engines import DRIVER_MEMORY, cores
from benchmarks.harness.pyflink import run_flink_job
from benchmarks.joins.inputs import Sums

STATES: Final[Mapping[str, str]] = {"flink-rocksdb": "rocksdb", "flink-heap": "hashmap"}
"""The state backend of each engine."""


def join_in_flink(engine: str, warm: Path, files: Path, folder: Path, *, scratch: Path) -> tuple[float, Sums]:
    """Drain the warm-up and then the input in one process, whose JVM has as much memory as the others'; return its seconds, and the sums.

    Raises:
        SetupError: there is no PyFlink, or no Java.
        EngineError: the job failed.
    """
    asked = {"warm_files": str(warm), "files": str(files), "folder": str(folder), "state": STATES[engine], "parallelism": cores()}
    job = Path(__file__).with_name("flink_job.py")
    answer = run_flink_job(engine, job, asked, folder, scratch=scratch, java_options=f"-Xmx{DRIVER_MEMORY}")
    return answer["seconds"], Sums(*answer["sums"])
