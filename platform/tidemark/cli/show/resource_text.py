"""The resources of a job's driver and executors as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.filesize import decimal

from tidemark.clock import format_ms
from tidemark.control.model.view import JobView
from tidemark.durations import short_duration
from tidemark.state.status.resources import ExecutorUse, Resources

EXECUTOR_COLUMNS = ("executor", "tasks", "failed", "in tasks", "gc", "read", "written", "shuffled", "spilled", "heap", "python")


def resource_lines(view: JobView) -> Iterator[str]:
    """Yield the lines of a job's memory, CPU time and collections of garbage; none where its driver has not reported them."""
    found = view.resources
    if found is None:
        return
    yield f"memory: {', '.join(_memory(found))}"
    yield f"cpu: {', '.join(_cpu(found))}"
    # Before the first count of the files, a driver reports none.
    if found.store is not None and found.store.files:
        yield f"job store: {found.store.files:,} files, {decimal(found.store.bytes)}, at {format_ms(found.store.at)}"
    stages = sorted(((stage, ms) for stage, ms in found.stage_ms.items() if ms), key=lambda item: -item[1])
    if stages:
        yield f"time of epochs: {', '.join(f'{stage} {short_duration(ms)}' for stage, ms in stages)}"


def executor_rows(found: Resources) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells for each executor, under ``EXECUTOR_COLUMNS``."""
    for name, use in found.executors.items():
        yield (
            name,
            f"{use.tasks:,}",
            f"{use.failed_tasks:,}",
            short_duration(use.task_ms),
            _share(use),
            decimal(use.input_bytes),
            decimal(use.output_bytes),
            decimal(use.shuffle_read_bytes),
            decimal(use.disk_spilled_bytes),
            "-" if use.heap_bytes is None else decimal(use.heap_bytes),
            "-" if use.python_bytes is None else decimal(use.python_bytes),
        )


def _share(use: ExecutorUse) -> str:
    return "-" if use.gc_share is None else f"{use.gc_share:.0%}"


def _memory(found: Resources) -> Iterator[str]:
    jvm, workers = found.jvm, found.workers
    live = "" if jvm.heap_live is None else f" (live {decimal(jvm.heap_live)})"
    limit = "" if jvm.heap_max <= 0 else f" of {decimal(jvm.heap_max)}"
    yield f"heap {decimal(jvm.heap_used)}{limit}{live}"
    if jvm.direct_used:
        yield f"direct {decimal(jvm.direct_used)}"
    if jvm.process is not None:
        yield f"JVM {decimal(jvm.process.resident_bytes)}"
    yield f"driver {decimal(found.driver.resident_bytes)}"
    if workers.workers:
        yield f"{workers.workers} Python workers {decimal(workers.resident_bytes)}"
    if found.container is not None:
        yield f"container {decimal(found.container.used_bytes)} of {decimal(found.container.limit_bytes)}"


def _cpu(found: Resources) -> Iterator[str]:
    if found.jvm.process is not None:
        yield f"JVM {short_duration(found.jvm.process.cpu_ms)}"
    yield f"driver {short_duration(found.driver.cpu_ms)}"
    yield f"Python workers {short_duration(found.workers.cpu_ms)}"
    share = "" if found.jvm.gc_share is None else f", {found.jvm.gc_share:.1%} of the last minute"
    yield f"garbage collection {short_duration(found.jvm.gc_ms)} in {found.jvm.gc_pauses:,} pauses{share}"
