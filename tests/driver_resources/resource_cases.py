"""A measurement in which each number is another, and the view of the job that it is of."""

from __future__ import annotations

from dataclasses import replace

from tests.control.alert_cases import T0, job_view
from tidemark.control.model.spec import AlertThresholds
from tidemark.control.model.view import JobView
from tidemark.state.status.resources import ContainerMemory, ExecutorUse, JvmUse, ProcessUse, Resources, StoreUse, WorkersUse

MB = 1_000_000

EXECUTOR = ExecutorUse(
    tasks=211,
    failed_tasks=1,
    task_ms=18_971,
    cpu_ms=4_610,
    gc_ms=562,
    input_bytes=251_208,
    output_bytes=209_052,
    shuffle_read_bytes=38_483,
    shuffle_write_bytes=38_484,
    memory_spilled_bytes=70_000,
    disk_spilled_bytes=7_000,
    peak_execution_bytes=8_650_752,
    heap_bytes=194 * MB,
    nonheap_bytes=80 * MB,
    direct_bytes=2 * MB,
    resident_bytes=900 * MB,
    python_bytes=120 * MB,
    gc_share=0.03,
)
RESOURCES = Resources(
    at=T0 - 4_000,
    jvm=JvmUse(
        heap_used=600 * MB,
        heap_max=1_000 * MB,
        heap_live=250 * MB,
        nonheap_used=180 * MB,
        direct_used=3 * MB,
        mapped_used=1 * MB,
        gc_ms=2_500,
        gc_pauses=40,
        gc_share=0.012,
        process=ProcessUse(1_400 * MB, 95_000),
    ),
    driver=ProcessUse(210 * MB, 12_000),
    workers=WorkersUse(workers=4, resident_bytes=480 * MB, largest_bytes=150 * MB, cpu_ms=33_000),
    executors={"driver": EXECUTOR},
    container=ContainerMemory(4_000 * MB, 2_000 * MB),
    store=StoreUse(files=12, bytes=5 * MB, at=T0 - 60_000),
    stage_ms={"count": 1_500, "output tips": 4_000},
)


def measured(resources: Resources | None, thresholds: AlertThresholds | None = None) -> JobView:
    """Return the view of a job that runs well, with a measurement."""
    return replace(job_view(thresholds=thresholds), resources=resources)
