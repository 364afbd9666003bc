"""Random windows over one random stream, run through the engine and through the element-by-element reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tests.engine.late_facts import expected_facts, facts_of_progress
from tests.engine.task_runs import report_call
from tests.milliseconds import ms
from tests.semantics.window_settings import EverySecondTimer
from tidemark.errors import DefinitionError
from tidemark.graph.operators.window.execution import is_incremental
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.process.evictors import Evictor
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, TimeDomain, WindowAssigner
from tidemark.spark.operators.process.trigger_rules import trigger_in_effect
from tidemark.state.log.progress import EpochProgress
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, k STRING, t BIGINT, g BIGINT, amount BIGINT"
RETURNS = "ids ARRAY<BIGINT>, bounds ARRAY<BIGINT>, now ARRAY<BIGINT>, pane STRING, calls BIGINT, seen ARRAY<BIGINT>"
NAMES = ("ids", "bounds", "now", "pane", "calls", "seen")
BOUND = 8
NOW = 1_700_000_000_000

Facts = dict[str, object]


@dataclass(frozen=True)
class Row:
    """An element; ``g`` is its own gap."""

    id: int
    k: str | None
    t: int
    g: int
    amount: int


@dataclass(frozen=True)
class Operator:
    """Windows over the stream; ``makes`` is what is made of them. Without ``keyed`` they are over all elements."""

    uid: str
    assigner: WindowAssigner
    trigger: Trigger | None
    evictor: Evictor | None
    lateness: int
    makes: str
    keyed: bool = True

    @property
    def setting(self) -> tuple[object, ...]:
        """What makes two operators different."""
        return self.assigner, self.trigger, self.evictor, self.lateness, self.makes, self.keyed


@dataclass(frozen=True)
class Case:
    """Operators over one stream cut into epochs; ``clock`` is the processing time at each, the one that ends the input included."""

    operators: tuple[Operator, ...]
    epochs: tuple[tuple[Row, ...], ...]
    clock: tuple[int, ...]

    @property
    def distinct(self) -> set[tuple[object, ...]]:
        """The cases: each operator with each key of which it sees at least two elements, or with all elements."""
        streams: dict[str | None, list[tuple[int, int, int]]] = {}
        for number, batch in enumerate(self.epochs):
            for row in batch:
                streams.setdefault(row.k, []).append((number, row.t, row.amount))
        whole = [tuple(each for stream in streams.values() for each in stream)]
        apart_by_key = [tuple(stream) for stream in streams.values() if len(stream) > 1]
        return {(repr(operator.setting), stream) for operator in self.operators for stream in (apart_by_key if operator.keyed else whole)}


def report_batches(batches: Iterator[Any], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    """Tell the same of batches."""
    return report_call([row for batch in batches for row in batch.to_pylist()], context)


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return float(abs(one["amount"] - other["amount"]))


def random_operator(random: Random, uid: str, kind: str) -> Operator:
    """Draw an operator of a kind of windows, whatever may go together."""
    domain: TimeDomain = "processing" if random.random() < 0.2 else "event"
    unit = 100 if domain == "processing" else 1
    assigners: dict[str, WindowAssigner] = {
        "tumbling": tm.tumbling(ms(10 * unit), offset=ms(random.randint(-9, 9)), time=domain),
        "sliding": random.choice(
            [tm.sliding(ms(12 * unit), ms(5 * unit), time=domain), tm.sliding(ms(4 * unit), ms(6 * unit), time=domain)]
        ),
        "cumulative": tm.cumulative(ms(12 * unit), ms(4 * unit), time=domain),
        "session": tm.session(ms(random.randint(2, 8) * unit), time=domain),
        "dynamic session": tm.session(gap_by="g * 100" if domain == "processing" else "g", time=domain),
        "count": tm.count_window(random.randint(1, 4), random.choice([None, 1, 2, 5])),
        "global": tm.global_window(),
    }
    assigner = assigners[kind]
    makes = random.choice(["process", "process", "batches", "aggregate", "aggregate, then process"])
    keyed = random.random() < 0.9
    if kind == "count":
        return Operator(uid, assigner, None, None, 0, makes, keyed)
    return Operator(
        uid,
        assigner,
        None if random.random() < 0.3 and kind != "global" else random_trigger(random),
        random_evictor(random) if makes in {"process", "batches"} and random.random() < 0.5 else None,
        random.choice([0, 5, 15]) if assigner.domain == "event" and kind != "global" else 0,
        makes,
        keyed,
    )


def random_trigger(random: Random, *, inner: bool = False) -> Trigger:
    """Draw a trigger."""
    simple: list[Trigger] = [
        tm.continuous_event_time_trigger(ms(random.choice([3, 7]))),
        tm.continuous_processing_time_trigger(ms(random.choice([70, 300]))),
        tm.count_trigger(random.randint(1, 4)),
        tm.each_epoch_trigger(),
        tm.delta_trigger(3, apart),
        EverySecondTimer(random.choice([1, 4])),
    ]
    found = random.choice(simple)
    if inner:
        return found
    found = random.choice([found, tm.event_time_trigger(early=found), tm.event_time_trigger(late=found), tm.processing_time_trigger()])
    return tm.purging_trigger(found) if random.random() < 0.3 else found


def random_evictor(random: Random) -> Evictor:
    """Draw an evictor."""
    after = random.random() < 0.5
    evictors: list[Evictor] = [tm.count_evictor(random.randint(1, 3), after=after), tm.time_evictor("4 ms", after=after)]
    return random.choice([*evictors, tm.delta_evictor(3, apart, after=after)])


def keeps_elements(node: WindowNode) -> bool:
    """Whether the engine keeps elements for an operator, or calls a function on its results."""
    return node.function is not None or not is_incremental(node)


def random_case(
    seed: int,
    *,
    kinds: Sequence[str],
    keys: int = 30,
    rows: int = 300,
    wanted: Callable[[WindowNode], bool] = keeps_elements,
    epochs: tuple[int, int] = (4, 6),
) -> Case:
    """Return a case with a wanted operator of each kind, whose elements come about where windows end and expire.

    ``epochs`` are how many there are at least and at most.
    """
    random = Random(seed)
    operators: list[Operator] = []
    for number, kind in enumerate(kinds):
        while len(operators) == number:
            operator = random_operator(random, f"w{number}", kind)
            node = _defined(operator)
            if node is not None and wanted(node):
                operators.append(operator)
    batches, made, centre = [], 0, random.choice([0, -100, 1_000_000])
    for _ in range(random.randint(*epochs)):
        centre += random.choice([0, 3, 10, 20])
        batch = []
        for _ in range(random.choice([0, 1, 2, 3]) * rows // 9):
            moment = min(centre + random.randint(-random.choice([0, 5, 15, 40]), random.choice([0, 3, 12])), centre + 14)
            key = random.choice([None, *(f"k{number}" for number in range(keys - 1))])
            batch.append(Row(made, key, moment, random.randint(1, 9), random.randint(0, 6)))
            made += 1
        batches.append(tuple(batch))
    steps = [random.choice([0, 1, 100, 101, 500, 2000]) for _ in range(len(batches) + 1)]
    return Case(tuple(operators), tuple(batches), tuple(NOW + sum(steps[: number + 1]) for number in range(len(steps))))


def _defined(operator: Operator) -> WindowNode | None:
    """Return the operator as a job may have it, None where none may."""
    try:
        stream = _result(tm.source("e", tm.from_elements(epochs=[[]], schema=SCHEMA), watermarks=_watermarks()), operator)
        tm.Job("defined", outputs={"panes": tm.memory(stream, "defined")}, store="/nowhere")
    except DefinitionError:
        return None
    node = stream.node
    assert isinstance(node, WindowNode)
    return node


def _watermarks() -> Any:
    return tm.bounded_out_of_orderness(ms(BOUND), timestamp="t", max_future_skew=None)


def _late_tag(operator: Operator) -> tm.OutputTag | None:
    """Return the tag of late elements, none where none can be late."""
    gaps = type(operator.assigner).__name__ == "Sliding" and operator.assigner.slide_ms > operator.assigner.size_ms  # type: ignore[attr-defined]
    never = operator.assigner.domain == "processing" or operator.assigner.assign(0, 1) == (GLOBAL_WINDOW,)
    return None if never and not gaps else tm.OutputTag(f"late_{operator.uid}")


def _result(stream: tm.Stream, operator: Operator) -> tm.Stream:
    windows = stream.key_by("k").window(operator.assigner) if operator.keyed else stream.window_all(operator.assigner)
    if operator.trigger is not None:
        windows = windows.trigger(operator.trigger)
    if operator.evictor is not None:
        windows = windows.evictor(operator.evictor)
    if operator.lateness:
        windows = windows.allowed_lateness(ms(operator.lateness))
    if (tag := _late_tag(operator)) is not None:
        windows = windows.late_to(tag)
    if operator.makes == "process":
        made = windows.process(report_call, returns=RETURNS)
    elif operator.makes == "batches":
        made = windows.process(tm.window_function(report_batches, RETURNS, batches=True))
    elif operator.makes == "aggregate":
        made = windows.aggregate(result=tm.collect_list("id"), n=tm.count())
    else:
        made = windows.aggregate(tm.window_function(report_call, RETURNS), result=tm.collect_list("id"))
    return made.uid(operator.uid)


def job_of(case: Case, prefix: str, store: str, *, epochs: int | None = None, parallelism: int = 2) -> tm.Job:
    """Return a job that puts each operator's panes and late rows into memory sinks below a prefix."""
    batches = [[dataclasses.astuple(row) for row in batch] for batch in case.epochs[:epochs]]
    stream = tm.source("e", tm.from_elements(epochs=batches, schema=SCHEMA), watermarks=_watermarks())
    outputs = {}
    for operator in case.operators:
        made = _result(stream, operator)
        outputs[operator.uid] = tm.memory(made, f"{prefix}/{operator.uid}")
        if (tag := _late_tag(operator)) is not None:
            outputs[tag.name] = tm.memory(made.side_output(tag), f"{prefix}/{tag.name}")
    return tm.Job("job", outputs=outputs, store=store, parallelism=parallelism)


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


def _taken(prefix: str, name: str) -> list[dict[str, Any]]:
    table = tm.memory_table(f"{prefix}/{name}")
    tm.clear_memory(f"{prefix}/{name}")
    return [] if table is None else table.to_pylist()


def _seen(operator: Operator, progress: EpochProgress, prefix: str) -> Facts:
    found = progress.operators[operator.uid]
    return {
        "panes": sorted((_row(operator, row) for row in _taken(prefix, operator.uid)), key=str),
        "late": sorted(row["id"] for row in _taken(prefix, f"late_{operator.uid}")),
        "counts": (found.rows_in, found.rows_accepted, found.rows_late),
        "pane_counts": (found.panes_early, found.panes_on_time, found.panes_late),
        "refired": found.refired_windows,
        "late_windows": found.late_windows,
        **facts_of_progress(found),
        "oldest": found.oldest_open_window,
        "state": found.state_rows,
    }


def _row(operator: Operator, row: Mapping[str, Any]) -> tuple[object, ...]:
    shown = ("result", "n") if operator.makes == "aggregate" else NAMES
    values = (tuple(v) if isinstance(v, list) else v for v in (row[name] for name in shown))
    key = (row["k"],) if operator.keyed else ()
    return (*key, _millis(row["window_start"]), _millis(row["window_end"]), row["pane_timing"], row["pane_index"], *values)


def _millis(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def run_expected(case: Case) -> list[Mapping[str, Facts]]:
    """Run a case through the reference; return what each operator has to do in each epoch."""
    by_uid = {operator.uid: _expected(operator, case) for operator in case.operators}
    return [{uid: facts[number] for uid, facts in by_uid.items()} for number in range(len(case.epochs) + 1)]


def _expected(operator: Operator, case: Case) -> list[Facts]:
    def elements(batch: Sequence[Row]) -> Iterator[Element]:
        for row in batch:
            gap = row.g * (100 if operator.assigner.domain == "processing" else 1)
            own = gap if isinstance(operator.assigner, DynamicSession) else None
            key = (row.k,) if operator.keyed else ()
            yield Element(key, row.t, dataclasses.asdict(row), position=(row.id,), gap_ms=own)

    epochs = [Epoch(tuple(elements(batch)), case.clock[number]) for number, batch in enumerate(case.epochs)]
    epochs.append(Epoch(processing_time=case.clock[len(case.epochs)], end_of_input=True))
    stream = tm.source("e", tm.from_elements(epochs=[[]], schema=SCHEMA), watermarks=_watermarks())
    node = _result(stream, operator).node
    assert isinstance(node, WindowNode)
    job = ReferenceJob(
        {"source": _watermarks()},
        operator.assigner,
        None if operator.makes in {"process", "batches"} else IN_ORDER,
        operator.lateness,
        trigger=None if isinstance(operator.assigner, CountWindows) else trigger_in_effect(node),
        evictor=operator.evictor,
        function=None if operator.makes == "aggregate" else report_call,
        key_names=("k",) if operator.keyed else (),
    )
    results = run_reference(job, epochs)
    before = [MIN_WATERMARK, *(found.watermark for found in results)]
    return [_facts(operator, found, watermark) for found, watermark in zip(results, before, strict=False)]


def _add(taken: tuple[tuple[int, int], ...], value: object, timestamp: int, position: object) -> tuple[tuple[int, int], ...]:  # noqa: ARG001
    assert isinstance(value, dict)
    return (*taken, (value["t"], value["id"]))


IN_ORDER: Fold[Any] = Fold(create=tuple, add=_add, result=lambda taken: [number for _, number in sorted(taken)])
"""What ``collect_list`` gives: by event time and position, whatever the epochs."""


def _facts(operator: Operator, found: EpochResult, before: int) -> Facts:
    def timed(timing: str) -> int:
        return sum(pane.timing == timing for pane in found.panes)

    event_time = operator.assigner.domain == "event"
    times = [element.timestamp or 0 if event_time else found.processing_time for element in found.late]
    windows = [operator.assigner.assign(time, element.gap_ms) for time, element in zip(times, found.late, strict=True)]
    late = {assigned[-1].start for assigned in windows if assigned}
    return {
        "panes": sorted((row for pane in found.panes for row in _rows(operator, pane)), key=str),
        "late": sorted(element.value["id"] for element in found.late) if _late_tag(operator) else [],  # type: ignore[index]
        "counts": (found.counts.rows_in, found.counts.accepted, found.counts.late),
        "pane_counts": (timed("EARLY"), timed("ON_TIME"), timed("LATE")),
        "refired": tuple(sorted({pane.window.start for pane in found.panes if pane.timing == "LATE"})[-100:]),
        "late_windows": tuple(sorted(late)[-100:]) if event_time else (),
        **expected_facts(windows, operator.lateness, before),
        "oldest": min((each.window.start for each in found.open_windows if each.window != GLOBAL_WINDOW), default=None),
        "stateless": not found.open_windows,
        "ended": found.watermark != MIN_WATERMARK,
    }


def _rows(operator: Operator, pane: Pane) -> Iterator[tuple[object, ...]]:
    bounds = (None, None) if pane.window == GLOBAL_WINDOW else (pane.window.start, pane.window.end)
    told_of = (*pane.key, *bounds, pane.timing, pane.index)
    if operator.makes == "aggregate":
        assert isinstance(pane.result, list)
        yield (*told_of, tuple(pane.result), len(pane.result))
        return
    assert isinstance(pane.result, tuple)
    for row in pane.result:
        yield (*told_of, *(tuple(v) if isinstance(v, list) else v for v in (row.get(name) for name in NAMES)))


def require_same(found: Sequence[Mapping[str, Facts]], expected: Sequence[Mapping[str, Facts]], case: Case) -> None:
    """Hold two accounts against each other, fact by fact."""
    assert len(found) == len(expected)
    operators = {operator.uid: operator for operator in case.operators}
    for number, (engine, reference) in enumerate(zip(found, expected, strict=True)):
        for uid, theirs in reference.items():
            where = f"{operators[uid]} in epoch {number}"
            mine = engine[uid]
            for fact in ("counts", "late", "panes", "pane_counts", "refired", "late_windows", "shortfalls", "most_late"):
                assert mine[fact] == theirs[fact], f"{fact} of {where}"
            oldest, reported = theirs["oldest"], mine["oldest"]
            assert oldest is None or (reported is not None and int(str(reported)) <= int(str(oldest))), where
            if theirs["stateless"] and operators[uid].makes == "aggregate" and not isinstance(operators[uid].assigner, CountWindows):
                assert mine["state"] == 0, where
