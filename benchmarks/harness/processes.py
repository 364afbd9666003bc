"""Runs one measurement in a fresh process, and watches the memory of that process and its children."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import psutil  # type: ignore[import-untyped]  # ships no types

from benchmarks.harness.measurement import Measurement, Request
from tidemark.errors import TidemarkError

CHECKOUT: Final = Path(__file__).resolve().parents[2]
_SAMPLE_SECONDS = 0.2
_END_SECONDS = 30
_LOG_LINES = 15


class MeasurementError(TidemarkError):
    """A measuring process failed."""

    code: ClassVar[str] = "TM901"


@dataclass(frozen=True)
class Watched:
    """A measurement, and the greatest sum of resident memory that the process and its children had at one moment, in bytes."""

    measurement: Measurement
    peak_memory_bytes: int


def run_measurement(request: Request) -> Watched:
    """Measure in a process of its own, whose folder must exist and be empty; no process is left behind.

    Raises:
        MeasurementError: the process failed; the end of its log is in the message.
    """
    found, peak = run_module("benchmarks.harness.measurement", asdict(request), Path(request.folder), engine=request.engine)
    lists = {name: tuple(found[name]) for name in ("epoch_ms", "state_rows", "state_files")}
    return Watched(Measurement(seconds=found["seconds"], versions=found["versions"], **lists), peak)


def run_module(module: str, request: Mapping[str, object], folder: Path, *, engine: str) -> tuple[dict[str, Any], int]:
    """Run a module that reads a request's file and writes an answer's; returns the answer, and the peak of its memory in bytes.

    Args:
        module: its name.
        request: as JSON.
        folder: for both, the log, and temporary files.
        engine: for the error.

    Raises:
        MeasurementError: the process failed; the end of its log is in the message.
    """
    asked, answer, log = folder / "request.json", folder / "answer.json", folder / "process.log"
    asked.write_text(json.dumps(request), encoding="utf-8")
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with log.open("wb") as output:
        process = psutil.Popen(
            [sys.executable, "-m", module, str(asked), str(answer)],
            cwd=CHECKOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        family = {process.pid: psutil.Process(process.pid)}
        try:
            peak = _watch(process, family)
        finally:
            _end(family.values(), finished=process.returncode is not None)
    if process.returncode != 0 or not answer.exists():
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
        raise MeasurementError(
            f"the process that measures {engine} ended with {process.returncode}:\n{tail}\n",
            fix="see the end of its log above; a smaller BENCH_ROWS needs less memory and disk",
            uid=engine,
        )
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found, peak


def _watch(process: psutil.Popen, family: dict[int, psutil.Process]) -> int:
    """Wait for the end of a process; returns the peak of the sums of its family's resident memory, and notes the family."""
    peak = 0
    while True:
        alive = [family[process.pid], *_children(process)]
        family.update({member.pid: member for member in alive})
        peak = max(peak, sum(map(_resident_bytes, alive)))
        try:
            process.wait(timeout=_SAMPLE_SECONDS)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            continue
        return peak


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _end(family: Iterable[psutil.Process], *, finished: bool) -> None:
    """Wait until all are gone, so that the next measurement has the machine for itself; end those that stay."""
    alive = list(family)
    if finished:
        alive = psutil.wait_procs(alive, timeout=_END_SECONDS)[1]
    for member in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.terminate()
    for member in psutil.wait_procs(alive, timeout=_END_SECONDS)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
