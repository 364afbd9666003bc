"""Publishing a committed epoch: each of its outputs to the location in its record, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.crashpoints import crash_point
from tidemark.errors import MissingEpochsError
from tidemark.spark.sinks.sinks import BoundSink, sink_for
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.log.joblog import Driver
from tidemark.state.log.records import EpochRecord


def publish(
    record: EpochRecord,
    sinks: Mapping[str, BoundSink],
    driver: Driver | None = None,
    *,
    lost: Callable[[str, MissingEpochsError], None] | None = None,
) -> None:
    """Make an epoch's rows visible; idempotent.

    Args:
        record: of the epoch.
        sinks: of the job's outputs, by name; the location that the record was staged for takes precedence.
        driver: of the job; only former sinks of connectors need it.
        lost: called with an output whose place has lost epochs, or whose staged files are deleted, where that is accepted.

    Raises:
        PublishError: an output cannot be published now.
        MissingEpochsError: an output's place no longer holds what was published before.
    """
    for name, output in record.outputs.items():
        sink = sink_for(name, output, sinks, record.job, driver)
        if sink is not None:
            if sink is not sinks.get(name):
                sink.sink.expect(Expected(output.before))
            try:
                sink.publish(output, record.lineage, record.epoch)
            except MissingEpochsError as error:
                if lost is None:
                    raise
                lost(name, error)
            crash_point("output-published")
