"""At a job's start: checks that its outputs' places hold what was published to them, and repairs those that do not."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.missing_records import Retained, retained_of
from tidemark.spark.sinks.sinks import BoundSink, sink_for
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.log.accepted_gaps import read_accepted, write_accepted
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.progress import EpochProgress, MissingEpochs, OutputRepair
from tidemark.state.log.records import EpochRecord, OutputRecord

logger = logging.getLogger("tidemark")

_REPAIRS_KEPT: Final = 10


def sinks_of(record: EpochRecord, sinks: Mapping[str, BoundSink], driver: Driver) -> dict[str, BoundSink]:
    """Return the sinks of an epoch, by output: the job's, and former ones where outputs have moved since."""
    found = {name: sink_for(name, output, sinks, record.job, driver) for name, output in record.outputs.items()}
    return {name: sink for name, sink in found.items() if sink is not None}


def expect_published(head: EpochRecord, sinks: Mapping[str, BoundSink], log: JobLog) -> None:
    """Tell sinks what the job's log knows of their places.

    Args:
        head: the newest epoch, which may not be published yet.
        sinks: by output.
        log: the job's.
    """
    for name, bound in sinks.items():
        stored = head.outputs.get(name)
        if bound.sink.location is None:
            continue
        if stored is not None and stored.before is not None and bound.accepts(stored):
            bound.sink.expect(Expected(stored.before))
        elif head.totals["outputs"].get(name, 0):
            bound.sink.expect(Expected(newest=_newest_before(head, name, bound, log)))


def repair_outputs(
    head: EpochRecord, sinks: Iterable[tuple[str, BoundSink]], log: JobLog, how: MissingEpochs | None
) -> dict[str, OutputRepair]:
    """Make sure that places hold what was published to them, and republish or accept missing epochs; returns the repairs by output.

    All places are checked first: while one of them cannot be repaired, none is changed. A gap that an earlier start accepted stays
    accepted, even if that start ended before the job's log recorded it.

    Args:
        head: the newest epoch.
        sinks: with their outputs' names; they know what to expect.
        log: the job's.
        how: how to repair, None to raise.

    Raises:
        MissingEpochsError: a place lacks epochs, and ``how`` is None or the repair is not possible.
    """
    due: list[tuple[str, BoundSink, str, Retained]] = []
    done = dict(read_accepted(log.store, head))
    for name, bound in sinks:
        try:
            bound.sink.require_whole()
        except MissingEpochsError as error:
            if how is None and not is_accepted(error, done.get(name)):
                raise error.with_job(head.job) from None
            retained = retained_of(log.epochs(), name, sink=bound.sink.kind, location=bound.sink.location)
            if how == "republish":
                bound.sink.require_republishable(retained)
            due.append((name, bound, error.what, retained))
    if how == "republish":
        for name, bound, what, retained in due:
            done[name] = OutputRepair("republished", head.epoch + 1, what, bound.sink.republish(retained))
    elif due:
        done |= {name: _gap(head, bound, what, retained) for name, bound, what, retained in due}
        write_accepted(log.store, head, done)
        for _, bound, _, _ in due:
            bound.sink.adopt()
    for repair in done.values():
        logger.warning("%s", repair)
    return done


def _gap(head: EpochRecord, bound: BoundSink, what: str, retained: Retained) -> OutputRepair:
    newest = bound.sink.newest(head.lineage)
    # A newest epoch that was not published is published after this.
    missing = [item for item in bound.sink.missing(retained) if item != head or (newest is not None and newest >= head.epoch)]
    return OutputRepair.of_gap(head.epoch + 1, what, [(item.lineage, item.epoch) for item in missing])


def is_accepted(error: MissingEpochsError, repair: OutputRepair | None) -> bool:
    """Whether a repair accepted the gap that an error describes."""
    return repair is not None and repair.how == "accepted" and repair.what == error.what


def with_positions(
    outputs: Mapping[str, OutputRecord], sinks: Mapping[str, BoundSink], before: EpochRecord | None, repairs: Mapping[str, OutputRepair]
) -> dict[str, OutputRecord]:
    """Return an epoch's outputs with the positions of their places before it, and all repairs so far.

    Args:
        outputs: as staged.
        sinks: by output.
        before: the epoch before.
        repairs: to record with this epoch.
    """
    known = before.outputs if before is not None else {}
    found = {}
    for name, output in outputs.items():
        earlier = known[name].repairs if name in known else ()
        now = (repairs[name],) if name in repairs else ()
        found[name] = replace(output, before=sinks[name].sink.position, repairs=(*earlier, *now)[-_REPAIRS_KEPT:])
    return found


def with_repairs(progress: EpochProgress, repairs: Mapping[str, OutputRepair]) -> EpochProgress:
    """Return an epoch's progress with the repairs that it records."""
    if not repairs:
        return progress
    return replace(progress, outputs={name: replace(output, repair=repairs.get(name)) for name, output in progress.outputs.items()})


def _newest_before(head: EpochRecord, name: str, bound: BoundSink, log: JobLog) -> tuple[str, int] | None:
    """Return the newest epoch before the head that has rows for a place, as far as the log of the head's lineage retains any."""
    for record in log.epochs():
        if record.lineage != head.lineage:
            return None
        output = record.outputs.get(name)
        if record.epoch < head.epoch and output is not None and output.files and bound.accepts(output):
            return record.lineage, record.epoch
    return None
