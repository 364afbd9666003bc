"""When an epoch is due although nothing arrives."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.semantics.watermarks import next_idle_deadline, processing_time_reaching
from tidemark.spark.topology import Topology
from tidemark.spark.windows import WindowStep
from tidemark.state.records import EpochRecord


def next_deadline(topology: Topology, steps: Mapping[int, WindowStep], record: EpochRecord) -> int | None:
    """Return the processing time at which an epoch is due even without input, None for never.

    Args:
        topology: of the job.
        steps: of its windows, by ``id(node)``.
        record: of the newest epoch.
    """
    deadlines: list[int | None] = []
    wanted = _next_firing(topology, steps, record)
    for source in topology.sources:
        state = record.sources.get(source.name)
        if state is None:
            continue
        deadlines.append(next_idle_deadline(source.watermarks, state))
        if wanted is not None and wanted > state.watermark:
            deadlines.append(processing_time_reaching(source.watermarks, state, wanted))
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _next_firing(topology: Topology, steps: Mapping[int, WindowStep], record: EpochRecord) -> int | None:
    """Return the least watermark that some open window waits for, None where no window is open."""
    ends = []
    for node in topology.windows:
        state = record.operators.get(topology.name(node))
        step = steps[id(node)]
        if state is not None:
            due = step.last_due(state.watermark)
            first_open = node.assigner.assign(due + step.size)[0].start
            ends += [
                (first_open if file.min_time is None or file.min_time <= due else file.min_time) + step.size - 1
                for file in state.files
                if file.max_time is None or file.max_time > due
            ]
    return min(ends, default=None)
