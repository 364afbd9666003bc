"""Measures a driver's resources every few seconds, in a thread of its own, while a run goes on. No Spark job is run for it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from py4j.protocol import Py4JError

from tidemark.spark.resources.container_memory import container_memory
from tidemark.spark.resources.jvm_meter import JvmMeter, JvmSample
from tidemark.spark.resources.process_meter import ProcessMeter
from tidemark.state.status.resources import ExecutorUse, JvmUse, Resources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("tidemark")

SAMPLE_SECONDS: Final = 10.0
"""The first measurement comes so long after a run's start, since it takes a tenth of a second of a JVM that has just begun."""

THREAD: Final = "tidemark-resources"

_SHARE_SAMPLES: Final = 7
"""Shares are over a minute."""

_END_SECONDS: Final = 2.0
"""How long a run waits at its end for a measurement under way: a JVM that does not answer does not hold it up."""


class MeasuredDriver(Protocol):
    """A driver whose resources are measured."""

    @property
    def session(self) -> SparkSession:
        """Its session."""
        ...

    def now(self) -> int:
        """Return the time, milliseconds."""
        ...

    def elapsed(self) -> int:
        """Return monotonic milliseconds."""
        ...

    def report_resources(self, found: Resources, /) -> None:
        """Take a measurement; called in the thread that measures."""
        ...


class ResourceSampler:
    """Measures a driver's resources.

    Args:
        driver: the driver.

    Raises:
        py4j.protocol.Py4JError: the JVM has ended.
    """

    def __init__(self, driver: MeasuredDriver) -> None:
        self._driver = driver
        self._jvm = JvmMeter(driver.session)
        self._processes = ProcessMeter()
        self._samples: deque[tuple[int, JvmSample]] = deque(maxlen=_SHARE_SAMPLES)

    def sample(self) -> Resources:
        """Return what is used now, and shares of the time since up to a minute ago.

        Raises:
            py4j.protocol.Py4JError: the JVM has ended.
        """
        now, found = self._driver.elapsed(), self._jvm.sample()
        processes = self._processes.sample(found.pid)
        begun, before = self._samples[0] if self._samples else (now, None)
        self._samples.append((now, found))
        jvm = replace(found.jvm, process=processes.jvm)
        return Resources(
            at=self._driver.now(),
            jvm=jvm if before is None else with_share(jvm, before.jvm, now - begun),
            driver=processes.driver,
            workers=processes.workers,
            executors=with_shares(found.executors, {} if before is None else before.executors),
            container=container_memory(),
        )

    def close(self) -> None:
        """Stop measuring; does nothing where the JVM has ended."""
        with suppress(Py4JError, OSError):
            self._jvm.close()


def with_share(jvm: JvmUse, before: JvmUse, span_ms: int) -> JvmUse:
    """Return a JVM's use with the share of the time since an earlier one in which it stood still for collections."""
    return replace(jvm, gc_share=round(min((jvm.gc_ms - before.gc_ms) / span_ms, 1.0), 4)) if span_ms > 0 else jvm


def with_shares(executors: Mapping[str, ExecutorUse], before: Mapping[str, ExecutorUse]) -> Mapping[str, ExecutorUse]:
    """Return executors with the share of their tasks' time since an earlier measurement in which they collected garbage."""
    found = {}
    for name, use in executors.items():
        earlier = before.get(name)
        spent = use.task_ms - earlier.task_ms if earlier is not None else 0
        collected = use.gc_ms - earlier.gc_ms if earlier is not None else 0
        found[name] = replace(use, gc_share=round(min(collected / spent, 1.0), 4)) if spent > 0 else use
    return found


@contextmanager
def measuring(driver: MeasuredDriver, *, seconds: float = SAMPLE_SECONDS) -> Iterator[None]:
    """Measure a driver's resources every few seconds while the block runs.

    What goes wrong is logged once, and never ends the run.

    Args:
        driver: the driver.
        seconds: between measurements.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_measure, args=(driver, ended, seconds), name=THREAD, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_END_SECONDS)


def _measure(driver: MeasuredDriver, ended: threading.Event, seconds: float) -> None:
    sampler: ResourceSampler | None = None
    logged = False
    while not ended.wait(seconds):
        try:
            sampler = sampler or ResourceSampler(driver)
            driver.report_resources(sampler.sample())
        except Exception:
            if not ended.is_set() and not logged:
                logger.warning("the driver's resources cannot be measured, and are tried again every %g s", seconds, exc_info=True)
                logged = True
    if sampler is not None:
        sampler.close()
