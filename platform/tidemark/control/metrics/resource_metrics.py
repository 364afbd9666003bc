"""The metrics of a driver's resources and of its executors', and how they are read from a view. Pure.

They are those of the driver that runs now: without one the series are absent. Executors are bounded in number (``MAX_EXECUTORS``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tidemark.control.metrics.metric_types import JobMetric, MetricKind, Sample, job_metric
from tidemark.control.model.view import JobView
from tidemark.state.status.resources import ExecutorUse, JvmUse, ProcessUse, Resources

Reader = Callable[[JobView], Iterable[Sample]]


def _one(read: Callable[[Resources], float | None]) -> Reader:
    """Return a reader of one number, without labels."""

    def found(view: JobView) -> Iterable[Sample]:
        value = None if view.resources is None else read(view.resources)
        return () if value is None else (((), value),)

    return found


def _areas(view: JobView) -> Iterable[Sample]:
    if view.resources is None:
        return ()
    jvm = view.resources.jvm
    used = {"heap": jvm.heap_used, "nonheap": jvm.nonheap_used, "direct": jvm.direct_used, "mapped": jvm.mapped_used}
    return (((area,), size) for area, size in used.items())


def _heap_max(view: JobView) -> Iterable[Sample]:
    # A JVM without a limit says -1.
    return () if view.resources is None or view.resources.jvm.heap_max <= 0 else ((("heap",), view.resources.jvm.heap_max),)


def _processes(read: Callable[[ProcessUse], float]) -> Reader:
    """Return a reader of a number of each process; the Python workers count as one."""

    def found(view: JobView) -> Iterator[Sample]:
        if view.resources is None:
            return
        jvm, workers = view.resources.jvm.process, view.resources.workers
        yield ("driver",), read(view.resources.driver)
        if jvm is not None:
            yield ("jvm",), read(jvm)
        yield ("python_workers",), read(ProcessUse(workers.resident_bytes, workers.cpu_ms))

    return found


def _stages(view: JobView) -> Iterable[Sample]:
    return () if view.resources is None else (((stage,), ms / 1000) for stage, ms in view.resources.stage_ms.items())


def _jvm(read: Callable[[JvmUse], float | None]) -> Reader:
    return _one(lambda resources: read(resources.jvm))


def _executor(stem: str, unit: str, text: str, read: Callable[[ExecutorUse], float | None], kind: MetricKind = "counter") -> JobMetric:
    def found(view: JobView) -> Iterator[Sample]:
        for name, use in view.resources.executors.items() if view.resources is not None else ():
            value = read(use)
            if value is not None:
                yield (name,), value

    return job_metric(f"executor_{stem}", unit, text, "Resources", found, "executor", kind=kind)


def _metric(stem: str, unit: str, text: str, read: Reader, *labels: str, kind: MetricKind = "gauge") -> JobMetric:
    return job_metric(stem, unit, text, "Resources", read, *labels, kind=kind)


RESOURCE_METRICS: Final[tuple[JobMetric, ...]] = (
    _metric("jvm_memory_used", "bytes", "Memory of the driver's JVM that is in use; of the heap with garbage.", _areas, "area"),
    _metric("jvm_memory_max", "bytes", "The limit of an area of the driver's JVM.", _heap_max, "area"),
    _metric(
        "jvm_heap_live", "bytes", "What was left of the driver's heap when all of it was last collected.", _jvm(lambda jvm: jvm.heap_live)
    ),
    _metric(
        "jvm_gc",
        "seconds",
        "Time in which the driver's JVM stood still for collections.",
        _jvm(lambda jvm: jvm.gc_ms / 1000),
        kind="counter",
    ),
    _metric("jvm_gc_pauses", "", "How many times it stood still for collections.", _jvm(lambda jvm: jvm.gc_pauses), kind="counter"),
    _metric("jvm_gc_time", "ratio", "Share of the last minute in which it stood still for collections.", _jvm(lambda jvm: jvm.gc_share)),
    _metric(
        "process_resident_memory",
        "bytes",
        "Memory of the driver's processes on its machine: its Python, its JVM, Spark's Python workers.",
        _processes(lambda process: process.resident_bytes),
        "process",
    ),
    _metric(
        "process_cpu",
        "seconds",
        "CPU time of the driver's processes on its machine.",
        _processes(lambda process: process.cpu_ms / 1000),
        "process",
        kind="counter",
    ),
    _metric("python_workers", "", "Spark's Python workers on the driver's machine.", _one(lambda found: found.workers.workers)),
    _metric(
        "python_worker_largest_memory", "bytes", "Memory of the largest of these workers.", _one(lambda found: found.workers.largest_bytes)
    ),
    _metric(
        "container_memory_limit",
        "bytes",
        "The limit on the memory of the driver's container.",
        _one(lambda found: None if found.container is None else found.container.limit_bytes),
    ),
    _metric(
        "container_memory_used",
        "bytes",
        "Memory of the driver's container that is in use and cannot be taken back.",
        _one(lambda found: None if found.container is None else found.container.used_bytes),
    ),
    _metric(
        "epoch_stage", "seconds", "Time of the driver's epochs by stage; stages may run in parallel.", _stages, "stage", kind="counter"
    ),
    _metric(
        "store",
        "files",
        "Files of the job in the job store when they were last swept, earlier epochs and savepoints included.",
        _one(lambda found: None if found.store is None else found.store.files),
    ),
    _metric("store", "bytes", "Bytes of these files.", _one(lambda found: None if found.store is None else found.store.bytes)),
    _executor("tasks", "", "Tasks of an executor that have ended.", lambda use: use.tasks),
    _executor("failed_tasks", "", "Tasks of an executor that failed.", lambda use: use.failed_tasks),
    _executor("task", "seconds", "Time of an executor's tasks, summed over its cores.", lambda use: use.task_ms / 1000),
    _executor("cpu", "seconds", "CPU time of an executor's tasks in its JVM.", lambda use: use.cpu_ms / 1000),
    _executor("gc", "seconds", "Time of an executor's tasks in which it collected garbage.", lambda use: use.gc_ms / 1000),
    _executor("input", "bytes", "Bytes that an executor's tasks read from sources and state.", lambda use: use.input_bytes),
    _executor("output", "bytes", "Bytes that an executor's tasks wrote to files.", lambda use: use.output_bytes),
    _executor("shuffle_read", "bytes", "Bytes that an executor's tasks read from other tasks.", lambda use: use.shuffle_read_bytes),
    _executor("shuffle_write", "bytes", "Bytes that an executor's tasks wrote for other tasks.", lambda use: use.shuffle_write_bytes),
    _executor(
        "memory_spilled", "bytes", "Bytes of memory that did not suffice, and were spilled to disk.", lambda use: use.memory_spilled_bytes
    ),
    _executor("disk_spilled", "bytes", "Bytes on disk of what was spilled.", lambda use: use.disk_spilled_bytes),
    _executor("heap_used", "bytes", "Heap of an executor when it last reported.", lambda use: use.heap_bytes, "gauge"),
    _executor("nonheap_used", "bytes", "Classes and compiled code of an executor then.", lambda use: use.nonheap_bytes, "gauge"),
    _executor("direct_used", "bytes", "Buffers of an executor outside of its heap then.", lambda use: use.direct_bytes, "gauge"),
    _executor(
        "python_resident_memory",
        "bytes",
        "Memory of an executor's Python workers then, where Spark measures it.",
        lambda use: use.python_bytes,
        "gauge",
    ),
)
