"""Runs a scenario through the engine, and says what each epoch did in words that the reference's account has as well."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import tidemark as tm
from tests.engine.late_facts import facts_of_progress
from tests.engine.streams import Operator, Row, Scenario
from tests.milliseconds import ms
from tidemark.state.log.progress import EpochProgress, SourceProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, k STRING, s STRING, t {kind}, v INT"
EPOCH_0 = datetime(1970, 1, 1, tzinfo=UTC)

Facts = dict[str, object]


@dataclass(frozen=True)
class Seen:
    """What one epoch did, as plain data by name, so that two accounts of it can be compared.

    ``oldest`` is each operator's oldest open window: the engine gives a lower bound, from what its files say of themselves.
    """

    processing_time: int
    panes: Mapping[str, list[tuple[object, ...]]]
    late: Mapping[str, list[tuple[object, ...]]]
    malformed: Mapping[str, list[tuple[object, ...]]]
    sources: Mapping[str, Facts]
    operators: Mapping[str, Facts]
    oldest: Mapping[str, int | None] = field(compare=False)


@dataclass
class Memory:
    """The memory sinks of one job: takes out what each epoch put into them."""

    prefix: str
    names: list[str] = field(default_factory=list)

    def sink(self, stream: tm.Stream, name: str) -> tm.Output:
        """Return an output bound to a sink of this job."""
        self.names.append(name)
        return tm.memory(stream, f"{self.prefix}/{name}")

    def take(self) -> dict[str, list[dict[str, object]]]:
        """Return the rows by sink, and forget them; instants are microseconds."""
        found = {}
        for name in self.names:
            table = tm.memory_table(f"{self.prefix}/{name}")
            tm.clear_memory(f"{self.prefix}/{name}")
            found[name] = [] if table is None else _with_numbers(table).to_pylist()
        return found


def aggregates(operator: Operator) -> dict[str, tm.Aggregate]:
    """Return the aggregates of an operator.

    The list tells exactly which elements a pane holds, in order; some operators leave it out, since windows that slide are merged in
    another way where all partials stay small.
    """
    listed = {"ids": tm.collect_list("id")} if lists_elements(operator) else {"deviation": tm.stddev("v")} if operator.uid == "w3" else {}
    return {
        "n": tm.count(),
        "n_v": tm.count("v"),
        "total": tm.sum("v"),
        "low": tm.min("v"),
        "high": tm.max("v"),
        "first_v": tm.first("v"),
        "last_v": tm.last("v"),
        "mean_id": tm.avg("id"),
        **listed,
    }


def lists_elements(operator: Operator) -> bool:
    """Whether the operator's panes list their elements."""
    return operator.uid in {"", "w0", "w2"}


def run_engine(scenario: Scenario, spark: SparkSession, folder: Path, *, name: str, parallelism: int = 2) -> list[Seen]:
    """Run a scenario as one job, drained, then ended; return what each epoch did."""
    memory = Memory(f"{folder}/{name}")
    job = _job(scenario, memory, str(folder), name, parallelism)
    clock = ManualClock(scenario.clock[0])
    seen: list[Seen] = []

    def after(progress: EpochProgress) -> None:
        seen.append(_seen(scenario, progress, memory.take()))
        clock.set(scenario.clock[min(len(seen), len(scenario.clock) - 1)])

    tm.run(job, spark=spark, clock=clock, on_epoch=after, end_of_input=True, handle_signals=False)
    return seen


def aggregated(rows: list[Row], operator: Operator) -> tuple[object, ...]:
    """Return the same aggregates in plain Python, over elements in the order of event time and source position."""
    values = [row.value for row in rows if row.value is not None]
    return (
        len(rows),
        len(values),
        sum(values) if values else None,
        min(values, default=None),
        max(values, default=None),
        rows[0].value,
        rows[-1].value,
        sum(row.id for row in rows) / len(rows),
        *([tuple(row.id for row in rows)] if lists_elements(operator) else []),
        *([round(statistics.stdev(values), 6) if len(values) > 1 else None] if operator.uid == "w3" else []),
    )


def _job(scenario: Scenario, memory: Memory, store: str, name: str, parallelism: int) -> tm.Job:
    outputs, streams = {}, {}
    for source in scenario.sources:
        kind, convert = ("TIMESTAMP", _instant) if source.timestamps else ("BIGINT", _same)
        batches = [[(r.id, r.key, r.split, convert(r.time), r.value) for r in batch] for batch in source.batches]
        bad = tm.OutputTag(f"bad_{source.name}")
        spec = tm.from_elements(epochs=batches, schema=SCHEMA.format(kind=kind))
        stream = tm.source(source.name, spec, watermarks=source.strategy, malformed_to=bad)
        outputs[bad.name] = memory.sink(stream.side_output(bad), bad.name)
        # Sources with different types of time could not be united.
        streams[source.name] = stream.select("id", "k", "s", "v", t="unix_micros(t)" if source.timestamps else "t")
    for operator in scenario.operators:
        first, *others = (streams[source] for source in operator.sources)
        united = first.union(*others) if others else first
        late = tm.OutputTag(f"late_{operator.uid}")
        windowed = united.key_by("k").window(operator.assigner)
        if operator.ends:
            windowed = windowed.allowed_lateness(ms(operator.lateness)).late_to(late)
        windowed = windowed if operator.trigger is None else windowed.trigger(operator.trigger)
        panes = windowed.aggregate(**aggregates(operator)).uid(operator.uid)
        outputs[operator.uid] = memory.sink(panes, operator.uid)
        if operator.ends:
            outputs[late.name] = memory.sink(panes.side_output(late), late.name)
    return tm.Job(name, outputs=outputs, store=store, parallelism=parallelism)


def _same(time: int | None) -> object:
    return time


def _instant(micros: int | None) -> object:
    return None if micros is None else EPOCH_0 + timedelta(microseconds=micros)


def _with_numbers(table: pa.Table) -> pa.Table:
    """Return the table with instants as microseconds, since Python's end with the year 9999."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.timestamp("us")).cast(pa.int64()))
    return table


def _millis(micros: object) -> int | None:
    return micros // 1000 if isinstance(micros, int) else None


def _seen(scenario: Scenario, progress: EpochProgress, rows: Mapping[str, list[dict[str, object]]]) -> Seen:
    def pane(row: dict[str, object], operator: Operator) -> tuple[object, ...]:
        found = {name: row[name] for name in aggregates(operator)}
        if isinstance(deviation := found.get("deviation"), float):
            found["deviation"] = round(deviation, 6)
        values = [tuple(v) if isinstance(v, list) else v for v in found.values()]
        return (row["k"], _millis(row["window_start"]), _millis(row["window_end"]), row["pane_timing"], row["pane_index"], *values)

    def late(row: dict[str, object]) -> tuple[object, ...]:
        return (row["id"], row["k"], row["s"], row["t"], row["v"])

    def malformed(row: dict[str, object]) -> tuple[object, ...]:
        raw = json.loads(str(row["raw"]))
        return (raw["id"], raw.get("k"), raw.get("v"), row["reason"], _millis(row["event_time"]), row["split"], _millis(row["read_at"]))

    uids = [operator.uid for operator in scenario.operators]
    names = [source.name for source in scenario.sources]
    return Seen(
        processing_time=progress.processing_time,
        panes={o.uid: in_text_order(pane(row, o) for row in rows[o.uid]) for o in scenario.operators},
        late={uid: in_text_order(map(late, rows.get(f"late_{uid}", []))) for uid in uids},
        malformed={name: in_text_order(map(malformed, rows[f"bad_{name}"])) for name in names},
        sources={name: _source_seen(progress.sources[name]) for name in names},
        operators={uid: _operator_seen(progress, uid) for uid in uids},
        oldest={uid: progress.operators[uid].oldest_open_window for uid in uids},
    )


def in_text_order(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows, key=str)


def _source_seen(source: SourceProgress) -> Facts:
    splits = {name: (split.rows, split.watermark, split.max_event_time, split.idle) for name, split in source.splits.items()}
    return {
        "counts": (source.rows_read, source.rows_passed, source.rows_malformed),
        "watermark": source.watermark,
        "splits": splits,
    }


def _operator_seen(progress: EpochProgress, uid: str) -> Facts:
    operator = progress.operators[uid]
    return {
        "counts": (operator.rows_in, operator.rows_accepted, operator.rows_late),
        "watermark": operator.watermark,
        "panes": (operator.panes_early, operator.panes_on_time, operator.panes_late),
        "late_windows": operator.late_windows,
        **facts_of_progress(operator),
        "refired_windows": operator.refired_windows,
        "stateless": operator.state_rows == 0,
    }
