"""Random streams for session windows, run through the engine and through the element-by-element reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tests.engine.late_facts import expected_facts, facts_of_progress
from tests.milliseconds import ms
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold, Position
from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
)
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.semantics.windows.assigners import DynamicSession, Session
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, k STRING, t BIGINT, g BIGINT, v INT"
BOUND = 20
NOW = 1_700_000_000_000

Facts = dict[str, object]
Panes = list[tuple[object, ...]]


@dataclass(frozen=True)
class Row:
    """An element; ``g`` is its own gap."""

    id: int
    k: str | None
    t: int
    g: int
    v: int | None


@dataclass(frozen=True)
class Operator:
    """Sessions over the stream. ``ordered`` ones list their elements, which no single row can be turned into."""

    uid: str
    assigner: Session | DynamicSession
    lateness: int
    ordered: bool
    trigger: Trigger | None = None


@dataclass(frozen=True)
class Case:
    """Operators over one stream cut into epochs; ``clock`` is the processing time at each, the one that ends the input included."""

    operators: tuple[Operator, ...]
    epochs: tuple[tuple[Row, ...], ...]
    clock: tuple[int, ...]


def aggregates(operator: Operator) -> dict[str, tm.Aggregate]:
    """Return aggregates that together tell which elements a pane holds."""
    plain = {
        "n": tm.count(),
        "n_v": tm.count("v"),
        "total": tm.sum("id"),
        "squares": tm.sum("id * id"),
        "low": tm.min("id"),
        "high": tm.max("v"),
        "mean": tm.avg("v"),
    }
    return {"ids": tm.collect_list("id"), "last_v": tm.last("v")} if operator.ordered else plain


def aggregated(rows: Sequence[Row], *, ordered: bool) -> tuple[object, ...]:
    """Return the same in plain Python, over elements in the contract's order."""
    values = [row.v for row in rows if row.v is not None]
    if ordered:
        return tuple(row.id for row in rows), rows[-1].v
    ids = [row.id for row in rows]
    mean = sum(values) / len(values) if values else None
    return len(rows), len(values), sum(ids), sum(each * each for each in ids), min(ids), max(values, default=None), mean


def random_case(seed: int, *, keys: int = 40, rows: int = 400, domain: str = "event", most: int = 9, calm: bool = False) -> Case:
    """Return a case of ``most`` operators or fewer, whose elements come about where sessions touch, end, fire and expire.

    In most epochs of a ``calm`` one no element is late by itself.
    """
    random = Random(seed)
    gap = random.randint(2, 15)
    settings: list[tuple[Session | DynamicSession, int]] = [
        (Session(gap), 0),
        (Session(gap), random.choice([1, gap])),
        (Session(gap + 3), 60),
        (Session(1), 5),
    ]
    settings += [(DynamicSession("g"), 0), (DynamicSession("g"), random.choice([3, 25]))]
    if domain == "processing":
        settings = [(Session(gap * 100, "processing"), 0), (DynamicSession("g * 100", "processing"), 0)]
    operators = tuple(
        Operator(f"s{number}{'o' if ordered else ''}", assigner, lateness, ordered)
        for number, (assigner, lateness) in enumerate(settings)
        for ordered in ((False, True) if number == 5 else (number in {1, 3},))
    )[-most:]
    return _cut(
        random,
        operators,
        gap,
        keys=keys,
        rows=rows,
        centre=random.choice([0, -1000, 1_000_000]),
        calm=calm,
        epochs=(4, 6) if calm else (3, 4),
    )


def triggered_case(seed: int, *, keys: int = 12, rows: int = 240, most: int = 7) -> Case:
    """Return a case with an operator of each kind of trigger that has rules for sessions, or the last of these."""
    random = Random(seed)
    gap = random.randint(2, 15)
    counts, late_counts = CountTrigger(random.randint(2, 4)), CountTrigger(random.randint(1, 3))
    steps = [ContinuousEventTimeTrigger(random.choice([2, 7, 25])) for _ in range(2)]
    ticks = [ContinuousProcessingTimeTrigger(random.choice([100, 700])) for _ in range(2)]
    each = EachEpochTrigger()
    triggers: list[Trigger] = [
        *(counts, steps[0], random.choice([ticks[0], each, NeverTrigger()]), ProcessingTimeTrigger()),
        EventTimeTrigger(counts, late_counts),
        EventTimeTrigger(steps[1], random.choice([None, each])),
        EventTimeTrigger(random.choice([ticks[1], each]), late_counts),
    ]
    operators = []
    for number, trigger in enumerate(triggers):
        assigner = DynamicSession("g") if random.random() < 0.4 else Session(random.choice([gap, gap + 3]))
        lateness = random.choice([0, 1, gap, 25, 60])
        operators.append(Operator(f"t{number}", assigner, lateness, random.random() < 0.2, trigger))
    centre = random.choice([0, NOW, NOW + 1000])
    return _cut(random, tuple(operators[-most:]), gap, keys=keys, rows=rows, centre=centre, epochs=(3, 4))


def _cut(
    random: Random,
    operators: tuple[Operator, ...],
    gap: int,
    *,
    keys: int,
    rows: int,
    centre: int,
    calm: bool = False,
    epochs: tuple[int, int],
) -> Case:
    """Return a case of elements that come about where sessions touch, end, fire and expire, in so many epochs at least and at most."""
    batches, used, made = [], [centre], 0
    for _ in range(random.randint(*epochs)):
        centre += random.choice([0, 3, 10] if calm else [0, 3, 10, 20, 40])
        steady = calm and random.random() < 0.8
        batch = []
        for _ in range(random.choice([0, 1, 2, 3]) * rows // 12):
            near = random.choice(used[-30:]) + random.choice([gap, -gap, gap - 1, gap + 1, 0]) if random.random() < 0.3 else centre
            spread = random.choice([0, 0, 5, 30, 30, 90])
            moment = min(near + random.randint(-spread, spread // 3), centre + (5 if calm else 30))
            if steady:
                moment = max(moment, centre - 15)
            used.append(moment)
            key = random.choice([None, *(f"k{number}" for number in range(keys - 1))])
            batch.append(Row(made, key, moment, random.choice([1, 2, gap, gap, 3 * gap]), random.choice([None, random.randint(-9, 9)])))
            made += 1
        batches.append(tuple(batch))
    steps = [random.choice([0, 1, 100, 101, 500, 2000]) for _ in range(len(batches) + 1)]
    return Case(operators, tuple(batches), tuple(NOW + sum(steps[: number + 1]) for number in range(len(steps))))


def job_of(case: Case, prefix: str, store: str, *, epochs: int | None = None, parallelism: int = 2) -> tm.Job:
    """Return a job that puts each operator's panes and late rows into memory sinks below a prefix."""
    batches = [[(r.id, r.k, r.t, r.g, r.v) for r in batch] for batch in case.epochs[:epochs]]
    watermarks = tm.bounded_out_of_orderness(ms(BOUND), timestamp="t")
    stream = tm.source("e", tm.from_elements(epochs=batches, schema=SCHEMA), watermarks=watermarks)
    outputs = {}
    for operator in case.operators:
        windowed = stream.key_by("k").window(operator.assigner)
        late = tm.OutputTag(f"late_{operator.uid}")
        if operator.assigner.domain == "event":
            windowed = windowed.allowed_lateness(ms(operator.lateness)).late_to(late)
        if operator.trigger is not None:
            windowed = windowed.trigger(operator.trigger)
        panes = windowed.aggregate(**aggregates(operator)).uid(operator.uid)
        outputs[operator.uid] = tm.memory(panes, f"{prefix}/{operator.uid}")
        if operator.assigner.domain == "event":
            outputs[late.name] = tm.memory(panes.side_output(late), f"{prefix}/{late.name}")
    return tm.Job("job", outputs=outputs, store=store, parallelism=parallelism)


def taken(prefix: str, name: str) -> list[dict[str, Any]]:
    """Take the rows out of a memory sink."""
    table = tm.memory_table(f"{prefix}/{name}")
    tm.clear_memory(f"{prefix}/{name}")
    return [] if table is None else table.to_pylist()


def run_engine(
    case: Case,
    spark: SparkSession,
    folder: Path,
    *,
    epochs: int | None = None,
    end_of_input: bool = True,
    first: int = 0,
    parallelism: int = 2,
) -> list[Mapping[str, Facts]]:
    """Run a case as one job; return what each operator did in each epoch. ``first`` is the epoch that the run begins with."""
    prefix = str(folder)
    clock = ManualClock(case.clock[first])
    seen: list[Mapping[str, Facts]] = []

    def after(progress: EpochProgress) -> None:
        seen.append({operator.uid: _seen(operator, progress, prefix) for operator in case.operators})
        clock.set(case.clock[min(first + len(seen), len(case.clock) - 1)])

    job = job_of(case, prefix, prefix, epochs=epochs, parallelism=parallelism)
    tm.run(job, spark=spark, clock=clock, on_epoch=after, end_of_input=end_of_input, handle_signals=False)
    return seen


def _seen(operator: Operator, progress: EpochProgress, prefix: str) -> Facts:
    found = progress.operators[operator.uid]
    panes = [
        (
            row["k"],
            _millis(row["window_start"]),
            _millis(row["window_end"]),
            row["pane_timing"],
            row["pane_index"],
            tuple((_millis(each["window_start"]), _millis(each["window_end"])) for each in row["replaces"]),
            *(tuple(v) if isinstance(v, list) else v for v in (row[name] for name in aggregates(operator))),
        )
        for row in taken(prefix, operator.uid)
    ]
    return {
        "panes": panes,
        "late": sorted(row["id"] for row in taken(prefix, f"late_{operator.uid}")),
        "counts": (found.rows_in, found.rows_accepted, found.rows_late),
        "pane_counts": (found.panes_early, found.panes_on_time, found.panes_late, found.windows_closed),
        "late_windows": found.late_windows,
        **facts_of_progress(found),
        "refired": found.refired_windows,
        "stateless": found.state_rows == 0,
        "oldest": found.oldest_open_window,
    }


def _millis(moment: Any) -> int:
    return int(moment.timestamp() * 1000 + (0.5 if moment.timestamp() >= 0 else -0.5))


def run_expected(case: Case) -> list[Mapping[str, Facts]]:
    """Return what the reference says that each operator does in each epoch."""
    epochs = [
        Epoch(
            tuple(Element((row.k,), row.t, row, "e", "", (number, place), gap_ms=_gap(row, case)) for place, row in enumerate(batch)),
            processing_time=case.clock[number],
            behind=frozenset(["e"] if number + 1 < len(case.epochs) else []),
        )
        for number, batch in enumerate(case.epochs)
    ]
    epochs.append(Epoch(processing_time=case.clock[len(case.epochs)], end_of_input=True))
    by_uid = {operator.uid: _expected(operator, epochs) for operator in case.operators}
    return [{uid: facts[number] for uid, facts in by_uid.items()} for number in range(len(epochs))]


def _gap(row: Row, case: Case) -> int:
    return row.g * (100 if case.operators[0].assigner.domain == "processing" else 1)


def _add(rows: tuple[Row, ...], value: object, timestamp: int, position: Position) -> tuple[Row, ...]:  # noqa: ARG001
    assert isinstance(value, Row)
    return (*rows, value)


def _expected(operator: Operator, epochs: Sequence[Epoch]) -> list[Facts]:
    def result(rows: tuple[Row, ...]) -> object:
        # The engine's elements of one processing time keep their order by event time, as those of an epoch do.
        return aggregated(sorted(rows, key=lambda row: (row.t, row.id)), ordered=operator.ordered)

    job = ReferenceJob(
        {"e": tm.bounded_out_of_orderness(ms(BOUND), timestamp="t")},
        operator.assigner,
        Fold(create=tuple, add=_add, result=result),
        operator.lateness,
        trigger=operator.trigger,
    )
    results = run_reference(job, epochs)
    before = [MIN_WATERMARK, *(found.watermark for found in results)]
    return [_facts(operator, found, watermark) for found, watermark in zip(results, before, strict=False)]


def _facts(operator: Operator, found: EpochResult, before: int) -> Facts:
    late = sorted({(_time(element, operator), element.key) for element in found.late}, key=lambda each: each[0])
    refired = [pane.window.start for pane in found.panes if pane.timing == "LATE"]
    early = sum(pane.timing == "EARLY" for pane in found.panes)
    on_time = len(found.panes) - len(refired) - early
    return {
        "panes": [_pane(pane) for pane in found.panes],
        "late": sorted(_row(element).id for element in found.late),
        "counts": (found.counts.rows_in, found.counts.accepted, found.counts.late),
        "pane_counts": (early, on_time, len(refired), on_time),
        "late_windows": tuple(sorted({time for time, _ in late[-100:]})),
        "refired": tuple(sorted(set(sorted(refired)[-100:]))),
        **expected_facts([operator.assigner.assign(_time(e, operator), e.gap_ms) for e in found.late], operator.lateness, before),
        "stateless": not found.open_windows,
        "oldest": min((each.window.start for each in found.open_windows), default=None),
    }


def _time(element: Element, operator: Operator) -> int:
    assert operator.assigner.domain == "event"
    return _row(element).t


def _row(element: Element) -> Row:
    assert isinstance(element.value, Row)
    return element.value


def _pane(pane: Pane) -> tuple[object, ...]:
    assert isinstance(pane.result, tuple)
    return (*pane.key, pane.window.start, pane.window.end, pane.timing, pane.index, pane.replaces, *pane.result)


def require_same(found: Sequence[Mapping[str, Facts]], expected: Sequence[Mapping[str, Facts]]) -> None:
    """Hold two accounts against each other, fact by fact; of the oldest open session the engine knows a bound."""
    assert len(found) == len(expected)
    for number, (engine, reference) in enumerate(zip(found, expected, strict=True)):
        for uid in reference:
            where = f"{uid} in epoch {number}"
            mine, theirs = dict(engine[uid]), dict(reference[uid])
            oldest, reported = theirs.pop("oldest"), mine.pop("oldest")
            assert (oldest is None) == (reported is None), where
            assert oldest is None or int(str(reported)) <= int(str(oldest)), where
            assert _sorted(mine.pop("panes")) == _sorted(theirs.pop("panes")), where
            for fact, value in theirs.items():
                assert mine[fact] == value, f"{fact} of {where}"


def _sorted(panes: object) -> Panes:
    assert isinstance(panes, list)
    return sorted(panes, key=str)
