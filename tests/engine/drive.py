"""Runs a scenario through the engine and through the element-by-element reference, and says in the same words what each epoch did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import tidemark as tm
from tests.engine.streams import Operator, Row, Scenario, Source
from tidemark.semantics.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference_operator import Element, Fold
from tidemark.semantics.watermarks import MIN_WATERMARK
from tidemark.state.progress import EpochProgress, SourceProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, k STRING, s STRING, t {kind}, v INT"
EPOCH_0 = datetime(1970, 1, 1, tzinfo=UTC)

Taken = tuple[tuple[int, tuple[int | str, ...], Row], ...]
Facts = dict[str, object]


@dataclass(frozen=True)
class Seen:
    """What one epoch did, as plain data by name, so that two accounts of it can be compared."""

    processing_time: int
    panes: Mapping[str, list[tuple[object, ...]]]
    late: Mapping[str, list[tuple[object, ...]]]
    malformed: Mapping[str, list[tuple[object, ...]]]
    sources: Mapping[str, Facts]
    operators: Mapping[str, Facts]


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


def aggregates() -> dict[str, tm.Aggregate]:
    """Return the aggregates of every operator: the last one tells exactly which elements a pane holds, in order."""
    return {
        "n": tm.count(),
        "n_v": tm.count("v"),
        "total": tm.sum("v"),
        "low": tm.min("v"),
        "high": tm.max("v"),
        **(_interim()),
    }


def _interim():
    from tidemark.graph.aggregates import Aggregate, Partial
    try:
        return {"first_v": tm.first("v"), "last_v": tm.last("v"), "ids": tm.collect_list("id")}
    except AttributeError:
        pass
    def agg(value, result):
        return Aggregate("collect", (value,), (Partial("items", "array_sort(collect_list(struct({order} as o, %s as x)))" % value, "array_sort(flatten(collect_list({items})))"),), result)
    return {"first_v": agg("v", "{items}[0].x"), "last_v": agg("v", "element_at({items}, -1).x"), "ids": agg("id", "transform({items}, i -> i.x)")}


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


def run_expected(scenario: Scenario) -> list[Seen]:
    """Run a scenario through the reference, operator by operator; return what each epoch has to do."""
    epochs = [
        Epoch(
            elements=tuple(_elements(scenario, number)),
            processing_time=scenario.clock[number],
            behind=frozenset(source.name for source in scenario.sources if number < len(source.batches)),
        )
        for number in range(scenario.epochs)
    ]
    epochs.append(Epoch(processing_time=scenario.clock[scenario.epochs], end_of_input=True))
    whole = _reference(scenario, Operator("", scenario.operators[0].assigner, 0, tuple(s.name for s in scenario.sources)), epochs)
    by_uid = {operator.uid: _reference(scenario, operator, epochs) for operator in scenario.operators}
    names = {source.name: source for source in scenario.sources}
    return [
        Seen(
            processing_time=whole[number].processing_time,
            panes={o.uid: sorted(map(_pane, by_uid[o.uid][number].panes), key=str) for o in scenario.operators},
            late={o.uid: _late(by_uid[o.uid][number]) for o in scenario.operators},
            malformed={name: _malformed(source, whole[number]) for name, source in names.items()},
            sources={name: _source_facts(name, epochs[number], whole[number]) for name in names},
            operators={o.uid: _operator_facts(o, by_uid[o.uid], number) for o in scenario.operators},
        )
        for number in range(len(epochs))
    ]


CONTENT = Fold[Taken](
    create=tuple,
    add=lambda taken, value, timestamp, position: (*taken, (timestamp, position, value)),  # type: ignore[arg-type]
    result=lambda taken: _aggregated([row for _, _, row in sorted(taken, key=lambda entry: entry[:2])]),
)
"""The same aggregates in plain Python, over the elements in the order of event time and source position."""


def _aggregated(rows: list[Row]) -> tuple[object, ...]:
    values = [row.value for row in rows if row.value is not None]
    return (
        len(rows),
        len(values),
        sum(values) if values else None,
        min(values, default=None),
        max(values, default=None),
        rows[0].value,
        rows[-1].value,
        tuple(row.id for row in rows),
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
        windowed = united.key_by("k").window(operator.assigner).allowed_lateness(operator.lateness).late_to(late)
        panes = windowed.aggregate(**aggregates()).uid(operator.uid)
        outputs[operator.uid] = memory.sink(panes, operator.uid)
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
    def pane(row: dict[str, object]) -> tuple[object, ...]:
        values = [tuple(v) if isinstance(v, list) else v for v in (row[name] for name in aggregates())]
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
        panes={uid: sorted(map(pane, rows[uid]), key=str) for uid in uids},
        late={uid: _sorted(map(late, rows[f"late_{uid}"])) for uid in uids},
        malformed={name: _sorted(map(malformed, rows[f"bad_{name}"])) for name in names},
        sources={name: _source_seen(progress.sources[name]) for name in names},
        operators={uid: _operator_seen(progress, uid) for uid in uids},
    )


def _sorted(rows: Iterable[tuple[object, ...]]) -> list[tuple[object, ...]]:
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
        "panes": (operator.panes_on_time, operator.panes_late),
        "late_windows": operator.late_windows,
        "refired_windows": operator.refired_windows,
        "stateless": operator.state_rows == 0 and operator.oldest_open_window is None,
    }


def _elements(scenario: Scenario, epoch: int) -> Iterable[Element]:
    for source in scenario.sources:
        batch = source.batches[epoch] if epoch < len(source.batches) else ()
        for place, row in enumerate(batch):
            split = (row.split or "") if source.strategy.split_by else ""
            yield Element((row.key,), source.milliseconds(row), row, source.name, split, (source.name, epoch, place))


def _reference(scenario: Scenario, operator: Operator, epochs: list[Epoch]) -> tuple[EpochResult, ...]:
    strategies = {source.name: source.strategy for source in scenario.sources if source.name in operator.sources}
    mine = [
        Epoch(tuple(e for e in epoch.elements if e.source in strategies), epoch.processing_time, epoch.behind, epoch.end_of_input)
        for epoch in epochs
    ]
    return run_reference(ReferenceJob(strategies, operator.assigner, CONTENT, operator.lateness), mine)


def _pane(pane: object) -> tuple[object, ...]:
    from tidemark.semantics.panes import Pane

    assert isinstance(pane, Pane)
    assert isinstance(pane.result, tuple)
    return (*pane.key, pane.window.start, pane.window.end, pane.timing, pane.index, *pane.result)


def _rows(elements: Iterable[Element]) -> Iterable[tuple[Element, Row]]:
    for element in elements:
        assert isinstance(element.value, Row)
        yield element, element.value


def _late(result: EpochResult) -> list[tuple[object, ...]]:
    return _sorted((row.id, row.key, row.split, row.time, row.value) for _, row in _rows(result.late))


def _malformed(source: Source, result: EpochResult) -> list[tuple[object, ...]]:
    from tidemark.semantics.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME

    found = []
    for malformed in result.malformed:
        element = malformed.element
        if element.source != source.name:
            continue
        ((_, row),) = _rows([element])
        time = element.timestamp
        shown = time if time is not None and MIN_EVENT_TIME <= time <= MAX_EVENT_TIME else None
        split = row.split if source.strategy.split_by else None
        found.append((row.id, row.key, row.value, malformed.reason, shown, split, result.processing_time))
    return _sorted(found)


def _source_facts(name: str, epoch: Epoch, result: EpochResult) -> Facts:
    state, counts = result.sources[name], result.source_counts[name]
    bad = {id(malformed.element) for malformed in result.malformed}
    rows = Counter(element.split for element in epoch.elements if element.source == name and id(element) not in bad)
    return {
        "counts": (counts.read, counts.passed, counts.malformed),
        "watermark": _known(state.watermark),
        "splits": {
            split: (rows[split], _known(found.watermark), found.max_event_time, found.idle) for split, found in state.splits.items()
        },
    }


def _operator_facts(operator: Operator, results: tuple[EpochResult, ...], number: int) -> Facts:
    result = results[number]
    late = {operator.assigner.assign(source_time(element))[0].start for element in result.late}
    refired = {pane.window.start for pane in result.panes if pane.timing == "LATE"}
    return {
        "counts": (result.counts.rows_in, result.counts.accepted, result.counts.late),
        "watermark": _known(result.watermark),
        "panes": (
            sum(pane.timing == "ON_TIME" for pane in result.panes),
            sum(pane.timing == "LATE" for pane in result.panes),
        ),
        "late_windows": tuple(sorted(late)[-100:]),
        "refired_windows": tuple(sorted(refired)[-100:]),
        "stateless": not result.open_windows,
    }


def source_time(element: Element) -> int:
    assert element.timestamp is not None
    return element.timestamp


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark
