"""Memory and CPU time of a driver's processes on its machine: its own, its JVM's, and those of Spark's Python workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import psutil  # type: ignore[import-untyped]  # ships no types

from tidemark.state.status.resources import ProcessUse, WorkersUse

_PYTHONS: Final = ("python", "pypy")


@dataclass(frozen=True)
class ProcessSample:
    """One measurement; ``jvm`` is None where it runs on another machine, or may not be looked at."""

    driver: ProcessUse
    jvm: ProcessUse | None
    workers: WorkersUse


class ProcessMeter:
    """Measures the processes of this driver."""

    def __init__(self) -> None:
        self._workers: dict[tuple[int, float], int] = {}
        self._ended_ms = 0

    def sample(self, jvm_pid: int) -> ProcessSample:
        """Return what is used now.

        Args:
            jvm_pid: the process id of the driver's JVM.
        """
        driver = _use(psutil.Process(os.getpid())) or ProcessUse(0, 0)
        try:
            jvm = psutil.Process(jvm_pid)
            workers = list(_python_workers(jvm.children(recursive=True)))
        except psutil.Error:
            return ProcessSample(driver, None, self._count(()))
        return ProcessSample(driver, _use(jvm), self._count(workers))

    def _count(self, workers: Iterable[psutil.Process]) -> WorkersUse:
        """Return the use of workers; the CPU time of those that have ended since the last time is remembered."""
        found = {(each.pid, each.create_time()): use for each in workers if (use := _use(each)) is not None}
        self._ended_ms += sum(ms for worker, ms in self._workers.items() if worker not in found)
        self._workers = {worker: use.cpu_ms for worker, use in found.items()}
        sizes = [use.resident_bytes for use in found.values()]
        return WorkersUse(len(found), sum(sizes), max(sizes, default=0), self._ended_ms + sum(self._workers.values()))


def is_python(process: psutil.Process) -> bool:
    """Return whether a process runs Python, by its program's name.

    Raises:
        psutil.Error: it has ended, or may not be looked at.
    """
    return bool(process.name().lower().startswith(_PYTHONS))


def _python_workers(children: Iterable[psutil.Process]) -> Iterator[psutil.Process]:
    """Yield the Python processes among a JVM's children; ``spark-submit`` makes the driver's own Python one of these."""
    for child in children:
        try:
            if child.pid != os.getpid() and is_python(child):
                yield child
        except psutil.Error:
            continue


def _use(process: psutil.Process) -> ProcessUse | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            return ProcessUse(process.memory_info().rss, round((times.user + times.system) * 1000))
    except psutil.Error:
        return None
