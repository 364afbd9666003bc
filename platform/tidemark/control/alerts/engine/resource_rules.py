"""The alert rules of resources: memory near its limit, and collections of garbage above a share of the time. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.filesize import decimal

from tidemark.control.alerts.engine.reading import Reading
from tidemark.control.alerts.model.hysteresis import Limits
from tidemark.control.model.spec import AlertThresholds
from tidemark.control.model.view import JobView
from tidemark.state.status.resources import ContainerMemory, ExecutorUse, JvmUse, Resources


def resource_readings(view: JobView, thresholds: AlertThresholds) -> Iterator[Reading]:
    """Yield the readings of a job's resources; none for a stopped job, unknown ones where its driver does not report."""
    memory = Limits(thresholds.memory_warn, max(thresholds.memory_error, thresholds.memory_warn))
    gc = Limits(thresholds.gc_warn, max(thresholds.gc_error, thresholds.gc_warn))
    if view.health == "stopped":
        return
    if view.resources is None:
        yield Reading("memory", "heap", None, memory, "")
        yield Reading("memory", "container", None, memory, "")
        yield Reading("gc", "driver", None, gc, "")
        yield Reading("gc", "executors", None, gc, "")
        return
    yield _heap(view.resources.jvm, memory)
    if view.resources.container is not None:
        yield _container(view.resources, view.resources.container, memory)
    yield _gc_of_driver(view.resources.jvm, gc)
    executors = {name: use for name, use in view.resources.executors.items() if name != "driver"}
    if executors:
        name, worst = max(executors.items(), key=lambda item: item[1].gc_share or 0.0)
        yield _gc_of_executor(name, worst, gc)


def _heap(jvm: JvmUse, limits: Limits) -> Reading:
    """Return the share that live objects take; garbage may fill the rest, and is no problem."""
    # Without a collection of all of it there was no need for one.
    share, live = jvm.heap_live_share or 0.0, jvm.heap_live or 0
    facts = {"live_bytes": live, "used_bytes": jvm.heap_used, "max_bytes": jvm.heap_max, "ratio": share}
    text = (
        f"the driver's heap was {share:.0%} full after its last collection ({decimal(live)} of {decimal(jvm.heap_max)});"
        " raise spark.driver.memory, or lower what an epoch reads"
    )
    return Reading("memory", "heap", share, limits, text, facts)


def _container(resources: Resources, container: ContainerMemory, limits: Limits) -> Reading:
    jvm = resources.jvm.process
    parts = {"driver": resources.driver.resident_bytes, "jvm": jvm.resident_bytes if jvm is not None else None}
    parts["python_workers"] = resources.workers.resident_bytes
    known = ", ".join(f"{name.replace('_', ' ')} {decimal(size)}" for name, size in parts.items() if size is not None)
    facts = {"used_bytes": container.used_bytes, "limit_bytes": container.limit_bytes, "ratio": container.share, **parts}
    text = (
        f"the driver's container uses {container.share:.0%} of its memory"
        f" ({decimal(container.used_bytes)} of {decimal(container.limit_bytes)}: {known}); raise its limit before the system ends a process"
    )
    return Reading("memory", "container", container.share, limits, text, facts)


def _gc_of_driver(jvm: JvmUse, limits: Limits) -> Reading:
    facts = {"ratio": jvm.gc_share, "used_bytes": jvm.heap_used, "max_bytes": jvm.heap_max, "live_bytes": jvm.heap_live}
    text = f"the driver's JVM stood still for garbage collection {jvm.gc_share or 0:.0%} of the last minute; raise spark.driver.memory"
    return Reading("gc", "driver", jvm.gc_share, limits, text, facts)


def _gc_of_executor(name: str, use: ExecutorUse, limits: Limits) -> Reading:
    facts = {"executor": name, "ratio": use.gc_share, "heap_bytes": use.heap_bytes}
    text = (
        f"executor {name!r} spent {use.gc_share or 0:.0%} of its tasks' time of the last minute on garbage collection;"
        " raise spark.executor.memory"
    )
    # Without a task there is no share, and nothing suffers.
    return Reading("gc", "executors", use.gc_share or 0.0, limits, text, facts)
