"""A sensor that alerts when too many rows are late, with their windows and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg

from tidemark.assets.report.complete_partitions import partition_at
from tidemark.assets.report.lag import LEVELS, Level
from tidemark.clock import format_ms
from tidemark.control import Alert
from tidemark.errors import DefinitionError
from tidemark.graph import Job
from tidemark.sensors.job_sensor import Decision, PlannedRun, SensorOptions, job_sensor, sensor_name
from tidemark.sensors.sensor_cursor import SensorCursor
from tidemark.state import EpochProgress, JobStatus, JobStore, late_and_judged, read_history

if TYPE_CHECKING:
    Partitions = dg.TimeWindowPartitionsDefinition

HISTORY_LIMIT = 1000
"""Epochs read per tick for the touched windows; counts of late rows are exact for any number of epochs."""

JUDGED = "judged"
"""The count, in a cursor, of the rows that operators read to which rows may be late."""

MAX_RUNS = 50
"""Partitions requested per tick; the others are requested in the next ticks."""

_NAMED = 10

_TAGS = {"tidemark/reason": "late data"}


@dataclass(frozen=True)
class LateRows:
    """Rows since the last tick: rows at the windows, the late ones among them, and the touched windows.

    ``lost`` has the windows with late rows that were not accepted, ``refired`` those corrected by rows within the allowed lateness; both
    by start in milliseconds. An epoch names at most its newest 100 of each.
    """

    rows: int
    late: int
    lost: frozenset[int]
    refired: frozenset[int]

    @property
    def ratio(self) -> float:
        """Share of the rows that were late."""
        return self.late / self.rows if self.rows else 0.0

    @property
    def touched(self) -> tuple[int, ...]:
        """Starts of all touched windows, the newest first."""
        return tuple(sorted(self.lost | self.refired, reverse=True))


def build_late_data_sensor(
    job: Job,
    *,
    name: str | None = None,
    warn_above: float = 0.001,
    error_above: float = 0.01,
    repeat: bool = False,
    partitions_def: Partitions | None = None,
    options: SensorOptions | None = None,
) -> dg.SensorDefinition:
    """Return a sensor that alerts when the share of late rows since its last tick is too high.

    With a target in the options it also requests a run whenever late rows touched windows: one, or one for each partition, of which those
    of one tick are requested newest first, a limited number per tick.

    Args:
        job: the job.
        name: the sensor's name; ``<job>_late_data`` by default.
        warn_above: share above which to warn.
        error_above: share above which it is an error.
        repeat: alert on every tick with too many late rows, not only when the level changes.
        partitions_def: time partitions of the target; windows are reported, and runs requested, as its partitions.
        options: store, target, alerts, interval, status.

    Raises:
        DefinitionError: no store is known, or the shares are not in order.
    """
    if not 0 <= warn_above <= error_above <= 1:
        raise DefinitionError(
            f"warn_above={warn_above} and error_above={error_above} are not valid shares",
            fix="set 0 <= warn_above <= error_above <= 1, such as 0.001 and 0.01",
            job=job.name,
        )

    settings = options or SensorOptions()

    def decide(store: JobStore, status: JobStatus, cursor: SensorCursor | None, _: dg.SensorEvaluationContext) -> Decision:
        history = read_history(store, job.name, HISTORY_LIMIT)
        return decide_late(
            job,
            status,
            cursor,
            history=history,
            limits=(warn_above, error_above),
            repeat=repeat,
            partitions_def=partitions_def,
            requests_runs=settings.target is not None,
        )

    return job_sensor(
        job,
        name=sensor_name(job, "late_data", name),
        description=f"Alerts when more than {warn_above:.2%} of the rows of `{job.name}` are late for their window "
        f"({error_above:.2%}: error).",
        options=settings,
        decide=decide,
    )


def decide_late(
    job: Job,
    status: JobStatus,
    cursor: SensorCursor | None,
    *,
    history: Sequence[EpochProgress],
    limits: tuple[float, float],
    repeat: bool = False,
    partitions_def: Partitions | None = None,
    requests_runs: bool = True,
) -> Decision:
    """Return the decision of a tick.

    Args:
        job: the job.
        status: its status, with an epoch.
        cursor: the previous tick's cursor; ``counts`` has the totals at that time, ``waiting`` the partitions to be requested.
        history: the newest epochs.
        limits: shares from which to warn and from which it is an error.
        repeat: alert also if the level has not changed.
        partitions_def: time partitions in which windows are reported.
        requests_runs: whether there is a target to run.
    """
    head = status.last
    if head is None:
        return Decision("no epoch yet", cursor)
    waiting = _still_known(cursor, partitions_def) if requests_runs else {}
    if cursor is not None and (cursor.lineage, cursor.epoch) == (head.lineage, head.epoch):
        waited, waiting = _first_runs(waiting)
        return Decision(f"no epoch after {head.epoch}{_waiting_text(waiting)}", replace(cursor, waiting=waiting), runs=waited)
    found = late_rows(status, cursor, history)
    before = cursor.said.get("late", "ok") if cursor is not None else "ok"
    share: Level = "error" if found.ratio > limits[1] else "warn" if found.ratio > limits[0] else "ok"
    # Without input there is no share.
    level = share if found.rows else next(known for known in LEVELS if known == before)
    text = _text(found, head, partitions_def)
    changed = level != before or (repeat and level != "ok" and found.rows > 0)
    alerts = (_alert(job, head, found=found, level=level, text=text, partitions_def=partitions_def),) if changed else ()
    runs: tuple[PlannedRun, ...] = ()
    if partitions_def is not None and requests_runs:
        key = _run_key(job, head)
        runs, waiting = _first_runs(waiting | {part: f"{key}:{part}" for part in partitions_touched(found.touched, partitions_def)})
    elif found.touched:
        runs = (PlannedRun(_run_key(job, head), dict(_TAGS)),)
    return Decision(
        summary=text + _waiting_text(waiting),
        cursor=SensorCursor(head.lineage, head.epoch, said={"late": level}, counts=_totals(status), waiting=waiting),
        alerts=alerts,
        runs=runs,
    )


def late_rows(status: JobStatus, cursor: SensorCursor | None, history: Sequence[EpochProgress]) -> LateRows:
    """Return the rows since the cursor; those of the whole lineage without a cursor, or if another lineage began since."""
    last = cursor.epoch if cursor is not None and cursor.lineage == status.lineage else -1
    # The history was read after the status, and may have later epochs than the totals.
    newest = status.last.epoch if status.last is not None else last
    new = [epoch for epoch in history if epoch.lineage == status.lineage and last < epoch.epoch <= newest]
    operators = [operator for epoch in new for operator in epoch.operators.values()]
    counts = {JUDGED: sum(epoch.rows_judged for epoch in new), "late": sum(epoch.rows_late for epoch in new)}
    before = cursor.counts if cursor is not None else {}
    # A cursor of an earlier release has counts of all operators, which say nothing beside these.
    if cursor is None or (cursor.lineage == status.lineage and JUDGED in before):
        # The history may not reach back so far. A lineage that began since continues the totals of its origin.
        counts = {count: total - before.get(count, 0) for count, total in _totals(status).items()}
    lost = frozenset(start for operator in operators for start in operator.late_windows)
    refired = frozenset(start for operator in operators for start in operator.refired_windows)
    return LateRows(counts[JUDGED], counts["late"], lost, refired)


def partitions_touched(starts: Iterable[int], partitions_def: Partitions) -> tuple[str, ...]:
    """Return the partitions in which windows start, each once, in the given order; windows outside all partitions have none."""
    keys = (partition_at(partitions_def, start) for start in starts)
    return tuple(key for key in dict.fromkeys(keys) if key is not None)


def _totals(status: JobStatus) -> dict[str, int]:
    """Return the numbers of late rows and of all rows that operators read to which rows may be late."""
    late, rows = late_and_judged(status.totals, status.last.judges_of_lateness if status.last is not None else ())
    return {JUDGED: rows, "late": late}


def _text(found: LateRows, head: EpochProgress, partitions_def: Partitions | None) -> str:
    parts = [f"{found.late} of {found.rows} rows ({found.ratio:.3%}) up to epoch {head.epoch} were late"]
    if found.touched:
        named = [f"{format_ms(start)} ({_touch(start, found)})" for start in found.touched[:_NAMED]]
        more = f" and {len(found.touched) - _NAMED} more" if len(found.touched) > _NAMED else ""
        parts.append(f"windows touched: {', '.join(named)}{more}")
    if found.touched and partitions_def is not None:
        touched = partitions_touched(found.touched, partitions_def)
        more = f" and {len(touched) - MAX_RUNS} more" if len(touched) > MAX_RUNS else ""
        parts.append(f"partitions: {', '.join(touched[:MAX_RUNS]) or 'none'}{more}")
    return "; ".join(parts)


def _touch(start: int, found: LateRows) -> str:
    marks = (("rows too late", found.lost), ("corrected", found.refired))
    return ", ".join(text for text, starts in marks if start in starts)


def _alert(job: Job, head: EpochProgress, *, found: LateRows, level: Level, text: str, partitions_def: Partitions | None) -> Alert:
    facts: dict[str, object] = {
        "late_rows": found.late,
        "rows_in": found.rows,
        "ratio": found.ratio,
        "epoch": head.epoch,
        "lineage": head.lineage,
        "windows_with_late_rows": sorted(found.lost),
        "windows_corrected": sorted(found.refired),
        "partitions": list(partitions_touched(found.touched, partitions_def)) if partitions_def is not None else [],
    }
    title = f"Late rows in {job.name} are below the threshold again" if level == "ok" else f"Too many late rows in {job.name}"
    return Alert("resolved" if level == "ok" else level, title, text, job.name, facts)


def _run_key(job: Job, head: EpochProgress) -> str:
    return f"{job.name}:late-data:{head.lineage}:{head.epoch}"


def _still_known(cursor: SensorCursor | None, partitions_def: Partitions | None) -> dict[str, str]:
    """Return the partitions that wait, but those of partitions that were defined in another way when they were touched."""
    if cursor is None or partitions_def is None:
        return {}
    return {partition: key for partition, key in cursor.waiting.items() if partitions_def.has_partition_key(partition)}


def _first_runs(waiting: Mapping[str, str]) -> tuple[tuple[PlannedRun, ...], dict[str, str]]:
    """Return the runs of the partitions that waited longest, and those that wait for the next tick."""
    queue = list(waiting.items())
    return tuple(PlannedRun(key, dict(_TAGS), partition) for partition, key in queue[:MAX_RUNS]), dict(queue[MAX_RUNS:])


def _waiting_text(waiting: Mapping[str, str]) -> str:
    return f"; {len(waiting)} partitions are requested in the next ticks" if waiting else ""
