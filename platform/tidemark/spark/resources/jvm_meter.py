"""Asks a session's JVM for its memory and collections, and for what the tasks of each executor have used: one call for all of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemark.spark.compiled_java import new_object
from tidemark.state.status.resources import MAX_EXECUTORS, ExecutorUse, JvmUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS: Final = "ResourceMeter"
_COUNTERS: Final = (
    "tasks",
    "failed_tasks",
    "task_ms",
    "cpu_ms",
    "gc_ms",
    "input_bytes",
    "output_bytes",
    "shuffle_read_bytes",
    "shuffle_write_bytes",
    "memory_spilled_bytes",
    "disk_spilled_bytes",
    "peak_execution_bytes",
)
"""Counters of an executor, in the order of ``ResourceMeter.java``."""


@dataclass(frozen=True)
class JvmSample:
    """One answer: the JVM's process id, what it uses, and its executors."""

    pid: int
    jvm: JvmUse
    executors: Mapping[str, ExecutorUse]


class JvmMeter:
    """Counts from now on what tasks use, until closed.

    Args:
        session: in whose JVM.

    Raises:
        py4j.protocol.Py4JError: the JVM has ended.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext._jsc.sc()  # noqa: SLF001
        self._meter = new_object(session, __package__, _CLASS)
        self._context.addSparkListener(self._meter)

    def sample(self) -> JvmSample:
        """Return what is used now.

        Raises:
            py4j.protocol.Py4JError: the JVM has ended.
        """
        return decode_sample(self._meter.sample())

    def close(self) -> None:
        """Stop counting.

        Raises:
            py4j.protocol.Py4JError: the JVM has ended.
        """
        self._context.removeSparkListener(self._meter)


def decode_sample(text: str) -> JvmSample:
    """Return the answer of ``ResourceMeter.sample``, shares unknown. Executors are in the order in which Spark added them."""
    plain: Mapping[str, Any] = json.loads(text)
    names = sorted(plain["executors"], key=_number_of)[:MAX_EXECUTORS]
    jvm = JvmUse(
        heap_used=plain["heap_used"],
        heap_max=plain["heap_max"],
        heap_live=plain["heap_live"],
        nonheap_used=plain["nonheap_used"],
        direct_used=plain.get("direct_used", 0),
        mapped_used=plain.get("mapped_used", 0),
        gc_ms=plain["gc_ms"],
        gc_pauses=plain["gc_pauses"],
    )
    return JvmSample(plain["pid"], jvm, {name: _executor(**plain["executors"][name]) for name in names})


def _executor(counters: Sequence[int], memory: Sequence[int]) -> ExecutorUse:
    """Return an executor's use; arguments as ``ResourceMeter.java`` has them: no memory before the first report, 0 if not measured."""
    heap, nonheap, direct, resident, python = (*memory, *[None] * 5)[:5]
    return ExecutorUse(
        **dict(zip(_COUNTERS, counters, strict=True)),
        heap_bytes=heap,
        nonheap_bytes=nonheap,
        direct_bytes=direct,
        resident_bytes=resident or None,
        python_bytes=python or None,
    )


def _number_of(name: str) -> tuple[int, str]:
    return int(name) if name.isdecimal() else -1, name
