"""Spark settings by which a cluster's executors follow a job's parallelism, where dynamic allocation is asked for.

Spark asks for as many executors as the tasks that wait and run have room in, within the bounds of ``spark.dynamicAllocation.minExecutors``
and ``maxExecutors``, and lets those go that were idle for a while. A stage of an epoch has as many tasks as the job's parallelism, since
adaptive execution is off; so from the epoch on that takes a rescale up, the executors follow it without a further setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.control.model.spec import JobSpec

ENABLED: Final = "spark.dynamicAllocation.enabled"
IDLE: Final = "spark.dynamicAllocation.executorIdleTimeout"

_SPARKS_IDLE_MS: Final = 60_000
_TRIGGERS: Final = 3


def dynamic_allocation_settings(job: JobSpec) -> Mapping[str, str]:
    """Return what a job's settings need besides; what the job says itself goes before it.

    Between two epochs executors are idle. Spark releases them after a minute; of a job with a longer trigger none would be left for the
    next epoch, so they stay for a few triggers.
    """
    if job.master.startswith("local") or job.conf.get(ENABLED, "").strip().lower() != "true":
        return {}
    longest = _TRIGGERS * job.trigger_ms
    return {IDLE: f"{-(-longest // 1000)}s"} if longest > _SPARKS_IDLE_MS else {}
