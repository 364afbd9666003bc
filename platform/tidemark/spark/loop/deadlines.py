"""The processing time at which the next epoch without input is due."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.semantics.watermarks.watermarks import next_idle_deadline, processing_time_reaching
from tidemark.spark.epoch.topology import Topology
from tidemark.spark.operators.base.contract import OperatorRuntime
from tidemark.state.log.records import EpochRecord


def next_deadline(topology: Topology, runtimes: Mapping[int, OperatorRuntime], record: EpochRecord) -> int | None:
    """Return the processing time at which an epoch is due even without input, None for never.

    Args:
        topology: of the job.
        runtimes: of its operators, by ``id(node)``.
        record: of the newest epoch.
    """
    waiting = [
        (node, runtimes[id(node)], record.operators[topology.name(node)])
        for node in topology.operators
        if topology.name(node) in record.operators
    ]
    deadlines = [runtime.next_processing_time(state) for _, runtime, state in waiting]
    due = [
        (watermark, topology.source_delays(node))
        for node, runtime, state in waiting
        if node.time_domain == "event" and (watermark := runtime.next_timer(state)) is not None
    ]
    for source in topology.sources:
        state = record.sources.get(source.name)
        if state is None:
            continue
        deadlines.append(next_idle_deadline(source.watermarks, state))
        # This source does not wait for one that waits for another source.
        needed = (watermark + delays[source.name] for watermark, delays in due if source.name in delays)
        wanted = min((watermark for watermark in needed if watermark > state.watermark), default=None)
        if wanted is not None:
            deadlines.append(processing_time_reaching(source.watermarks, state, wanted))
    return min((deadline for deadline in deadlines if deadline is not None), default=None)
