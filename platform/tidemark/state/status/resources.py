"""The resources of a running driver and its executors, as the driver last measured them: part of the job's status.

Sizes are bytes, times milliseconds. Counters begin with the driver's measurements and only grow until it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_EXECUTORS: Final = 32
"""How many executors are reported: those that were added first."""


@dataclass(frozen=True)
class ProcessUse:
    """A process: its memory in use (resident set), and the CPU time that it has used since its start."""

    resident_bytes: int
    cpu_ms: int


@dataclass(frozen=True)
class WorkersUse:
    """Spark's Python workers on the driver's machine: their number, memory in use (resident sets, shared pages counted in each), CPU time.

    ``largest_bytes`` is that of the largest. ``cpu_ms`` includes workers that have ended.
    """

    workers: int
    resident_bytes: int
    largest_bytes: int
    cpu_ms: int


@dataclass(frozen=True)
class JvmUse:
    """The driver's JVM, in which with ``local[…]`` the tasks run, too.

    Args:
        heap_used: objects on the heap, live ones and garbage.
        heap_max: the heap's limit.
        heap_live: what of the heap was left when all of it was last collected; None before.
        nonheap_used: classes and compiled code.
        direct_used: buffers outside of the heap, such as Arrow's and the network's.
        mapped_used: files mapped into memory.
        gc_ms: time in which the program stood still for collections of garbage.
        gc_pauses: how many times it did.
        gc_share: share of the last minute in which it did; None before the second measurement.
        process: the whole process, as the machine sees it; None where that cannot be seen.
    """

    heap_used: int
    heap_max: int
    heap_live: int | None
    nonheap_used: int
    direct_used: int
    mapped_used: int
    gc_ms: int
    gc_pauses: int
    gc_share: float | None = None
    process: ProcessUse | None = None

    @property
    def heap_live_share(self) -> float | None:
        """The share of its limit that the heap was filled to after it was last collected; what is live now is not more than is used."""
        if self.heap_live is None or self.heap_max <= 0:
            return None
        return min(self.heap_live, self.heap_used) / self.heap_max


@dataclass(frozen=True)
class ExecutorUse:
    """What the tasks of an executor have used, by Spark's own counts; with ``local[…]`` the only executor is ``driver``.

    Args:
        tasks: those that have ended.
        failed_tasks: those of them that failed.
        task_ms: time in tasks, summed over the executor's cores.
        cpu_ms: CPU time of the tasks' threads in the JVM.
        gc_ms: of the tasks' time, that in which the executor collected garbage.
        input_bytes: read by Spark from files and other sources.
        output_bytes: written by Spark to files.
        shuffle_read_bytes: read from other tasks.
        shuffle_write_bytes: written for other tasks.
        memory_spilled_bytes: objects that did not fit into memory, by their size there.
        disk_spilled_bytes: the same by their size on disk.
        peak_execution_bytes: the most that one task used for sorts, joins and aggregates.
        heap_bytes: objects on the heap when the executor last reported; None before its first report.
        nonheap_bytes: classes and compiled code then.
        direct_bytes: buffers outside of the heap then.
        resident_bytes: memory of its JVM's process then; None unless Spark's setting ``spark.executor.processTreeMetrics.enabled`` is on.
        python_bytes: memory of its Python workers then; None as well.
        gc_share: share of the tasks' time of the last minute; None where no task ended in it.
    """

    tasks: int
    failed_tasks: int
    task_ms: int
    cpu_ms: int
    gc_ms: int
    input_bytes: int
    output_bytes: int
    shuffle_read_bytes: int
    shuffle_write_bytes: int
    memory_spilled_bytes: int
    disk_spilled_bytes: int
    peak_execution_bytes: int
    heap_bytes: int | None = None
    nonheap_bytes: int | None = None
    direct_bytes: int | None = None
    resident_bytes: int | None = None
    python_bytes: int | None = None
    gc_share: float | None = None


@dataclass(frozen=True)
class ContainerMemory:
    """The limit on the memory of the driver's container (control group), and what is in use of it without files that can be read again."""

    limit_bytes: int
    used_bytes: int

    @property
    def share(self) -> float:
        """The share in use."""
        return self.used_bytes / self.limit_bytes


@dataclass(frozen=True)
class StoreUse:
    """A job's files in the job store, when ``at`` they were last swept: state, segments of records, logs of sources.

    They are more than the newest epoch needs: earlier epochs and savepoints have theirs.
    """

    files: int
    bytes: int
    at: int


@dataclass(frozen=True)
class Resources:
    """A measurement of a driver and its executors.

    Args:
        at: when, in milliseconds since 1970-01-01 UTC.
        jvm: the driver's JVM.
        driver: the driver's own Python process.
        workers: Spark's Python workers on the driver's machine.
        executors: by Spark's name of them; the first ``MAX_EXECUTORS``.
        container: None without a limit.
        store: None before the first sweep.
        stage_ms: time of the driver's epochs by stage; a stage of one epoch may run beside others.
    """

    at: int
    jvm: JvmUse
    driver: ProcessUse
    workers: WorkersUse
    executors: Mapping[str, ExecutorUse] = field(default_factory=dict)
    container: ContainerMemory | None = None
    store: StoreUse | None = None
    stage_ms: Mapping[str, int] = field(default_factory=dict)
