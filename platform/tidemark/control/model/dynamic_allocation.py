"""Spark settings by which a cluster's executors follow a job's parallelism, if dynamic allocation is enabled.

Spark requests executors for the pending and running tasks, between ``spark.dynamicAllocation.minExecutors`` and ``maxExecutors``, and
removes those that were idle for a time. A stage of an epoch has as many tasks as the job's parallelism, since adaptive execution is off;
so executors follow a rescale from the first epoch with the new parallelism on, without further settings.
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
    """Return the settings to add to a job's; the job's own settings take precedence.

    Executors are idle between two epochs, and Spark removes them after a minute. A job with a longer trigger would have none left for the
    next epoch, so they stay for a few triggers.
    """
    if job.master.startswith("local") or job.conf.get(ENABLED, "").strip().lower() != "true":
        return {}
    longest = _TRIGGERS * job.trigger_ms
    return {IDLE: f"{-(-longest // 1000)}s"} if longest > _SPARKS_IDLE_MS else {}
