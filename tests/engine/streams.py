"""Random streams: sources with their elements cut into epochs, window operators over them, and the times of a clock.

Hypothesis draws what shapes a stream (windows, bounds, lateness, splits, silence, the clock); the elements then come from a seeded
generator that aims at the edges of those windows. One scenario is one run of the engine, and as many cases as it has keys times operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter

from tidemark.semantics.triggers.builtin_triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EachEpochTrigger,
    EventTimeTrigger,
    PurgingTrigger,
)
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME
from tidemark.semantics.watermarks.watermarks import BoundedOutOfOrderness, WatermarkStrategy
from tidemark.semantics.windows.assigners import Cumulative, GlobalWindows, Sliding, Tumbling
from tidemark.semantics.windows.local_windows import DAY_MS, LocalWindows
from tidemark.semantics.windows.windows import Window

Aligned = Tumbling | Sliding | Cumulative | GlobalWindows | LocalWindows


def span_of(assigner: Aligned) -> int:
    """Return the length of an assigner's greatest window; of the global one, something to aim elements by."""
    if isinstance(assigner, GlobalWindows):
        return 1000
    if isinstance(assigner, LocalWindows):
        return span_of(assigner.windows)
    return assigner.max_size_ms if isinstance(assigner, Cumulative) else assigner.size_ms


@dataclass(frozen=True)
class Row:
    """An element: ``time`` is in milliseconds, or in microseconds where its source has a TIMESTAMP."""

    id: int
    key: str | None
    split: str | None
    time: int | None
    value: int | None


@dataclass(frozen=True)
class Source:
    """One source: how it is timed, and what each epoch reads of it. ``timestamps``: its time is a TIMESTAMP, else a BIGINT."""

    name: str
    strategy: WatermarkStrategy
    timestamps: bool
    batches: tuple[tuple[Row, ...], ...] = ()

    def milliseconds(self, row: Row) -> int | None:
        """Return the event time that the contract gives a row."""
        return row.time if row.time is None or not self.timestamps else row.time // 1000

    @property
    def bound(self) -> int:
        """How far out of order its elements may come."""
        return self.strategy.generator.bound_ms


@dataclass(frozen=True)
class Operator:
    """One window operator over the union of some sources, keyed by the rows' key."""

    uid: str
    assigner: Aligned
    lateness: int
    sources: tuple[str, ...]
    trigger: Trigger | None = None

    @property
    def ends(self) -> bool:
        """Whether its windows end, so that elements can be late."""
        return not isinstance(self.assigner, GlobalWindows)


@dataclass(frozen=True)
class Case:
    """What one operator makes of one key's elements depends on its bounds, window and lateness, and on those elements."""

    setting: tuple[tuple[int, ...], Aligned, int, Trigger | None]
    stream: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, repr=False)
class Scenario:
    """A job and its input: ``clock`` is the processing time at each epoch, the one that ends the input included."""

    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    clock: tuple[int, ...]

    def __repr__(self) -> str:
        """Say what shapes the scenario; its elements follow from what Hypothesis prints beside it."""
        sources = [(s.name, s.strategy, s.timestamps, [len(batch) for batch in s.batches]) for s in self.sources]
        return f"Scenario(sources={sources}, operators={self.operators}, clock={self.clock})"

    def _repr_pretty_(self, printer: RepresentationPrinter, _cycle: bool) -> None:  # noqa: FBT001
        """Print that, where Hypothesis would print all elements."""
        printer.text(repr(self))

    @property
    def epochs(self) -> int:
        """How many epochs read something."""
        return max(len(source.batches) for source in self.sources)

    @property
    def cases(self) -> frozenset[Case]:
        """The cases that the scenario holds: each operator with each key of which it sees at least two elements."""
        found = set()
        for operator in self.operators:
            sources = [source for source in self.sources if source.name in operator.sources]
            bounds = tuple(source.bound for source in sources)
            streams: defaultdict[str | None, list[tuple[object, ...]]] = defaultdict(list)
            for source in sources:
                for epoch, batch in enumerate(source.batches):
                    for row in batch:
                        streams[row.key].append((source.name, epoch, row.split, row.time, row.value))
            window = operator.assigner
            setting = (bounds, window, operator.lateness, operator.trigger)
            found |= {Case(setting, tuple(stream)) for stream in streams.values() if len(stream) > 1}
        return frozenset(found)


@dataclass(frozen=True)
class Shape:
    """What the elements of a scenario are made by.

    ``unit`` is the scale of its times, ``drift`` how far event time goes per epoch, ``rows`` the elements per source, about.
    With ``strays`` some elements run far ahead of the others.
    """

    origin: int
    unit: int
    drift: int
    operators: Sequence[Operator]
    keys: Sequence[str | None]
    rows: int
    strays: bool
    clock: tuple[int, ...]


def assigners(unit: int) -> st.SearchStrategy[Aligned]:
    """Return windows of 1 to 40 units, give or take a millisecond, with any offset."""
    sizes = st.builds(lambda units, jitter: max(1, units * unit + jitter), st.integers(1, 40), st.sampled_from([0, 0, -1, 1]))
    return sizes.flatmap(lambda size: st.builds(Tumbling, st.just(size), st.just(0) | st.integers(-size + 1, size - 1)))


def sliced_assigners(unit: int) -> st.SearchStrategy[Aligned]:
    """Return sliding windows of up to 12 slides, with slides that divide the size, do not, or leave gaps; and cumulative ones."""
    sizes = st.integers(1, 24).map(lambda units: units * unit)
    sliding = (
        st.tuples(sizes, sizes)
        .filter(lambda pair: pair[0] <= 12 * pair[1])
        .flatmap(lambda pair: st.builds(Sliding, st.just(pair[0]), st.just(pair[1]), st.just(0) | st.integers(-pair[1] + 1, pair[1] - 1)))
    )
    cumulative = st.tuples(st.integers(1, 8), sizes).flatmap(
        lambda pair: st.builds(
            Cumulative, st.just(pair[0] * pair[1]), st.just(pair[1]), st.just(0) | st.integers(-pair[0] * pair[1] + 1, 0)
        )
    )
    return sliding | cumulative


LOCAL_CHANGES = {
    "America/St_Johns": 1_289_097_060_000,  # set back at 00:01, in 2010
    "America/Sao_Paulo": 1_541_300_400_000,  # a day without a midnight, in 2018
    "Australia/Lord_Howe": 1_743_865_200_000,  # set back by half an hour, in 2025
    "Europe/Berlin": 1_743_296_400_000,  # set forward, in 2025
    "Pacific/Apia": 1_325_239_200_000,  # a day was skipped, in 2011
}
"""Instants at which clocks of zones changed."""


def local_assigners(zones: Sequence[str]) -> st.SearchStrategy[Aligned]:
    """Return windows of local days: of one or several, sliding, with gaps, and growing in steps, some with an offset."""
    offsets = st.sampled_from([0, 0, -5_400_000, 3 * 3_600_000 + 1])
    sliding = st.sampled_from([(2, 1), (3, 2), (1, 2)])
    windows = (
        st.builds(Tumbling, st.sampled_from([DAY_MS, DAY_MS, 7 * DAY_MS]), offsets)
        | st.builds(lambda days, offset: Sliding(days[0] * DAY_MS, days[1] * DAY_MS, offset), sliding, offsets)
        | st.builds(Cumulative, st.just(DAY_MS), st.sampled_from([1_800_000, 3_600_000, 10_800_000]), offsets)
    )
    return st.builds(LocalWindows, windows, st.sampled_from(zones))


def triggers_with_rules(unit: int) -> st.SearchStrategy[Trigger]:
    """Return triggers that look at counts and times only."""
    counts = st.sampled_from([1, 2, 3, 7]).map(CountTrigger)
    steps = st.integers(1, 20).map(lambda units: ContinuousEventTimeTrigger(units * unit))
    late = st.none() | counts | st.just(EachEpochTrigger())
    return counts | steps | st.just(EachEpochTrigger()) | st.builds(EventTimeTrigger, late | steps, late)


def purging_triggers(unit: int) -> st.SearchStrategy[Trigger]:
    """Return the same, and the windows' own, so that each pane empties its window."""
    return (triggers_with_rules(unit) | st.just(EventTimeTrigger())).map(PurgingTrigger)


@st.composite
def windows(draw: st.DrawFn, unit: int, kinds: Callable[[int], st.SearchStrategy[Aligned]]) -> tuple[Aligned, int]:
    """Draw a window and its allowed lateness."""
    assigner = draw(kinds(unit))
    if isinstance(assigner, GlobalWindows):
        return assigner, 0
    span = span_of(assigner)
    return assigner, draw(st.sampled_from([0, 0, 1, span // 2, 3 * span, 10**9 * unit]))


@st.composite
def operators(
    draw: st.DrawFn, count: int, unit: int, names: tuple[str, ...], kinds: Callable[[int], st.SearchStrategy[Aligned]]
) -> tuple[Operator, ...]:
    """Draw operators, no two of them alike; the first reads all sources."""
    drawn = draw(st.lists(windows(unit, kinds), min_size=count, max_size=count, unique=True))
    taken = [names, *(draw(st.sampled_from([names, names, names[-1:]])) for _ in drawn[1:])]
    return tuple(Operator(f"w{n}", *window, sources) for n, (window, sources) in enumerate(zip(drawn, taken, strict=True)))


@st.composite
def source_settings(draw: st.DrawFn, name: str, unit: int, *, idle: bool) -> Source:
    strategy = WatermarkStrategy(
        "t",
        BoundedOutOfOrderness(draw(st.integers(0, 30)) * unit),
        idle_after_ms=draw(st.sampled_from([1000, 5000])) if idle else None,
        split_by=draw(st.sampled_from([None, "s", "s"])) if idle else draw(st.sampled_from([None, None, "s"])),
        max_future_skew_ms=draw(st.sampled_from([None, 86_400_000, 86_400_000, 0])),
        advance_when_idle=idle and draw(st.booleans()),
    )
    return Source(name, strategy, timestamps=draw(st.booleans()))


@st.composite
def scenarios(
    draw: st.DrawFn,
    *,
    sources: int,
    operator_count: int,
    keys: int,
    rows: int,
    idle: bool = False,
    kinds: Callable[[int], st.SearchStrategy[Aligned]] = assigners,
    triggers: Callable[[int], st.SearchStrategy[Trigger | None]] = lambda _: st.none(),
    begins: Sequence[int] = (),
) -> Scenario:
    """Draw a scenario.

    Args:
        draw: of Hypothesis.
        sources: how many; operators read the union of all, or the last one only.
        operator_count: how many window operators.
        keys: how many keys, the null key included.
        rows: elements per source, about.
        idle: let splits fall silent, and the clock go far enough for them to count as idle.
        kinds: of windows, given the unit of times.
        triggers: of operators, given the unit of times.
        begins: times about which the elements are, hours apart; any time and unit by default.
    """
    unit = 3_600_000 if begins else draw(st.sampled_from([1, 1, 1000, 3_600_000]))
    names = tuple("ab"[number] for number in range(sources))
    made = [draw(source_settings(name, unit, idle=idle)) for name in names]
    epochs = [draw(st.sampled_from([3, 4, 5, 2, 6, 1])) for _ in names]
    far = max(-(10**9) * unit, MIN_EVENT_TIME + 10_000 * unit)
    origin = draw(st.sampled_from(begins or [0, -7 * unit, far, 1_700_000_000_000]))
    steps = draw(st.lists(st.sampled_from([0, -5, 999, 1000, 4999, 60_000]), min_size=max(epochs) + 1, max_size=max(epochs) + 1))
    begin = max(origin, 10**9)
    chosen = tuple(replace(operator, trigger=draw(triggers(unit))) for operator in draw(operators(operator_count, unit, names, kinds)))
    shape = Shape(
        origin=origin,
        unit=unit,
        drift=draw(st.integers(0, 40)) * unit,
        operators=chosen,
        keys=[None, *(f"k{number}" for number in range(keys - 1))],
        rows=rows,
        strays=draw(st.integers(0, 3)) == 0,
        clock=tuple(begin + sum(steps[: number + 1]) for number in range(len(steps))),
    )
    random = Random(draw(st.integers(0, 2**32 - 1)))
    filled = tuple(
        fill(random, source, shape, epochs=count, first_id=1_000_000 * number)
        for number, (source, count) in enumerate(zip(made, epochs, strict=True))
    )
    return Scenario(filled, chosen, shape.clock)


def fill(random: Random, source: Source, shape: Shape, *, epochs: int, first_id: int) -> Source:
    """Give a source its elements, cut into epochs of uneven size; some are empty, and some splits are silent in some."""
    weights = [random.choice([0, 1, 1, 1, 3]) for _ in range(epochs)]
    weights[random.randrange(epochs)] = 2
    splits = [random.choice([None, "north"]), "it's", "süd\\"][: random.choice([2, 3])]
    batches: list[tuple[Row, ...]] = []
    used: list[int] = []
    aims: list[Window] = []
    made = first_id
    for epoch, weight in enumerate(weights):
        awake = [split for split in splits if random.random() < 0.7] or splits[:1]
        moments: list[int | None] = []
        for _ in range(shape.rows * weight // sum(weights)):
            if random.random() < 0.04:
                moments.append(_unusable(random, source, shape.clock[epoch]))
            else:
                used.append(_moment(random, shape, epoch=epoch, used=used, aims=aims))
                moments.append(used[-1])
        if moments and used:
            used.append(_leader(random, source, shape, max(used), aims))
            moments.append(used[-1])
        batch = []
        for moment in moments:
            value = random.choice([None, 0, random.randint(-1000, 1000)])
            stamp = None if moment is None else moment * 1000 + random.choice([0, 0, 999]) if source.timestamps else moment
            batch.append(Row(made, random.choice(shape.keys), random.choice(awake), stamp, value))
            made += 1
        batches.append(tuple(batch))
    return replace(source, batches=tuple(batches))


def _moment(random: Random, shape: Shape, *, epoch: int, used: Sequence[int], aims: Sequence[Window]) -> int:
    """Return an element's time, mostly about a window's edge."""
    centre = shape.origin + epoch * shape.drift
    if used and random.random() < 0.15:
        return random.choice(used[-20:])
    if aims and random.random() < 0.15:
        return random.choice([aims[-1].start, aims[-1].end - 1])
    if random.random() < 0.5:
        assigner = random.choice(shape.operators).assigner
        near = centre + random.randint(-2, 2) * span_of(assigner)
        window = Window(near, near) if isinstance(assigner, GlobalWindows) else next(iter(assigner.assign(near)), Window(near, near))
        moment = random.choice([window.start, window.end]) + random.choice([-1, 0, 0, 1])
    else:
        moment = centre + random.randint(-30 * shape.unit, 30 * shape.unit)
    if random.random() < 0.1:
        moment -= random.randint(0, 200 * shape.unit)
    if shape.strays and random.random() < 0.02:
        moment += 100 * shape.unit
    return moment


def _leader(random: Random, source: Source, shape: Shape, greatest: int, aims: list[Window]) -> int:
    """Return a time that brings the watermark to the very end of a window, or of its lateness, or a millisecond before it."""
    operator = random.choice(shape.operators)
    grace = random.choice([0, operator.lateness]) if operator.lateness < 10**6 * shape.unit else 0
    aim = greatest - source.bound - grace
    windows = () if isinstance(operator.assigner, GlobalWindows) else operator.assigner.assign(aim)
    window = next(iter(windows), Window(aim, aim + 1))
    aims.append(window)
    return window.max_timestamp + grace + source.bound + 1 - random.choice([0, 1])


def _unusable(random: Random, source: Source, now: int) -> int | None:
    """Return a time that is null, beyond the calendar, or too far ahead of the clock; rarely one that is just not."""
    skew = source.strategy.max_future_skew_ms
    bound = MAX_EVENT_TIME if skew is None else now + skew
    ahead = bound + random.choice([1, 1, 1, 10**6])
    if random.random() < 0.01:
        # Once in a while is enough: where the clock is far ahead of the elements, this one makes all others late.
        ahead = bound
    beyond = [MIN_EVENT_TIME - 1, MAX_EVENT_TIME + 1, 2**63 - 1, -(2**63)]
    usable = not source.timestamps or ahead <= MAX_EVENT_TIME
    return random.choice([None, *([ahead] if usable else []), *([] if source.timestamps else beyond)])
