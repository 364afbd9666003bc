"""Publishing a committed epoch: each of its outputs where the record says, once."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.crashpoints import crash_point
from tidemark.spark.sinks import BoundSink, sink_of_record
from tidemark.state.records import EpochRecord


def publish(record: EpochRecord, sinks: Mapping[str, BoundSink]) -> None:
    """Make an epoch's rows visible; again does nothing.

    Args:
        record: of the epoch.
        sinks: of the job's outputs, by name; what the record was staged for goes before them.

    Raises:
        PublishError: an output cannot be published now.
    """
    for name, output in record.outputs.items():
        sink = sinks.get(name)
        if sink is None or not sink.takes(output):
            sink = sink_of_record(name, output, record.job)
        if sink is not None:
            sink.publish(output, record.lineage, record.epoch)
            crash_point("output-published")
