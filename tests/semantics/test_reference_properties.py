"""What holds of the reference whatever the elements, the windows and the cuts into epochs.

The oracle below is another statement of the contract: not an operator that goes through elements, but sets over all of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold, Key
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, BoundedOutOfOrderness, WatermarkStrategy
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.semantics.windows.windows import Window

Slot = tuple[Key, Window]
Taken = tuple[tuple[int, object], ...]

CONTENT = Fold[Taken](
    create=tuple,
    add=lambda taken, value, timestamp, _position: (*taken, (timestamp, value)),
    result=lambda taken: tuple(sorted(taken, key=str)),
)
"""All elements of a window, in an order of their own."""


@dataclass(frozen=True)
class Setting:
    """A window, an out-of-orderness bound and an allowed lateness."""

    assigner: Tumbling
    bound: int
    lateness: int

    @property
    def job(self) -> ReferenceJob[Taken]:
        strategy = WatermarkStrategy("t", BoundedOutOfOrderness(self.bound), max_future_skew_ms=None)
        return ReferenceJob({"source": strategy}, self.assigner, CONTENT, self.lateness)

    def slot(self, element: Element) -> Slot:
        return element.key, self.assigner.assign(timestamp(element))[0]


def timestamp(element: Element) -> int:
    assert element.timestamp is not None
    return element.timestamp


def assigners() -> st.SearchStrategy[Tumbling]:
    return st.integers(1, 20).flatmap(lambda size: st.builds(Tumbling, st.just(size), st.integers(-size + 1, size - 1)))


SETTINGS = st.builds(Setting, assigners(), st.integers(0, 15), st.sampled_from([0, 0, 1, 7, 30]))
KEYS: st.SearchStrategy[Key] = st.sampled_from([("a",), ("b",), (None,)])
ARRIVALS = st.lists(
    st.tuples(KEYS, st.integers(-40, 80)).map(lambda pair: Element(pair[0], pair[1])),
    max_size=40,
)


def numbered(elements: list[Element]) -> list[Element]:
    """Give each element its place in the order of arrival as value and position."""
    return [Element(element.key, element.timestamp, place, position=(place,)) for place, element in enumerate(elements)]


@st.composite
def cuts(draw: st.DrawFn, elements: list[Element], *, ended: bool = True) -> list[Epoch]:
    """Cut elements into epochs, some of them empty; the last one ends the input if asked for."""
    places = sorted(draw(st.lists(st.integers(0, len(elements)), max_size=8)))
    bounds = [0, *places, len(elements)]
    epochs = [Epoch(tuple(elements[low:high])) for low, high in pairwise(bounds)]
    return [*epochs, Epoch(end_of_input=True)] if ended else epochs


@st.composite
def streams(draw: st.DrawFn) -> tuple[Setting, list[Epoch]]:
    elements = numbered(draw(ARRIVALS))
    return draw(SETTINGS), draw(cuts(elements, ended=draw(st.booleans())))


@st.composite
def punctual(draw: st.DrawFn, *, behind_by_lateness: bool) -> tuple[Setting, list[Element]]:
    """Draw elements of which none is more than the bound (and the lateness, if asked for) behind the greatest before it."""
    setting = draw(SETTINGS)
    slack = setting.bound + (setting.lateness if behind_by_lateness else 0)
    greatest, elements = draw(st.integers(-40, 40)), []
    for key, step in draw(st.lists(st.tuples(KEYS, st.integers(-slack, 12)), max_size=40)):
        elements.append(Element(key, greatest + step))
        greatest = max(greatest, greatest + step)
    return setting, numbered(elements)


def grouped(setting: Setting, elements: list[Element]) -> dict[Slot, Taken]:
    found: defaultdict[Slot, list[tuple[int, object]]] = defaultdict(list)
    for element in elements:
        found[setting.slot(element)].append((timestamp(element), element.value))
    return {slot: tuple(sorted(taken, key=str)) for slot, taken in found.items()}


def final(results: tuple[EpochResult, ...]) -> dict[Slot, object]:
    """Return the last pane's content of every key and window."""
    return {(pane.key, pane.window): pane.result for result in results for pane in result.panes}


def panes_of(results: tuple[EpochResult, ...]) -> dict[Slot, list[tuple[int, Pane]]]:
    found: defaultdict[Slot, list[tuple[int, Pane]]] = defaultdict(list)
    for number, result in enumerate(results):
        for pane in result.panes:
            found[pane.key, pane.window].append((number, pane))
    return found


def accepted_of(epochs: list[Epoch], results: tuple[EpochResult, ...]) -> list[Element]:
    return [element for epoch, result in zip(epochs, results, strict=True) for element in epoch.elements if element not in result.late]


@settings(deadline=None)
@given(streams())
def test_reference_is_the_oracle(stream: tuple[Setting, list[Epoch]]) -> None:
    setting, epochs = stream
    results = run_reference(setting.job, epochs)

    watermarks, greatest = [MIN_WATERMARK], None
    for epoch in epochs:
        times = [timestamp(element) for element in epoch.elements] + ([] if greatest is None else [greatest])
        greatest = max(times, default=None)
        reached = MIN_WATERMARK if greatest is None else greatest - setting.bound - 1
        watermarks.append(MAX_WATERMARK if epoch.end_of_input else reached)
    assert [result.watermark for result in results] == watermarks[1:]

    taken: defaultdict[Slot, list[tuple[int, Element]]] = defaultdict(list)
    late = []
    for number, epoch in enumerate(epochs):
        for element in epoch.elements:
            slot = setting.slot(element)
            if slot[1].end - 1 + setting.lateness <= watermarks[number]:
                late.append((number, element.value))
            else:
                taken[slot].append((number, element))
    assert sorted(late, key=str) == sorted(((n, e.value) for n, result in enumerate(results) for e in result.late), key=str)

    expected = set()
    for slot, entries in taken.items():
        last_instant = slot[1].end - 1
        arrivals = {number for number, _ in entries}
        firings = [(number, "LATE") for number in sorted(arrivals) if watermarks[number] >= last_instant]
        if watermarks[min(arrivals)] < last_instant:
            firings = [(n, "ON_TIME") for n in range(len(epochs)) if watermarks[n] < last_instant <= watermarks[n + 1]] + firings
        for index, (number, timing) in enumerate(firings):
            content = grouped(setting, [element for arrived, element in entries if arrived <= number])
            expected.add((number, slot, timing, index, content[slot]))
    assert expected == {(n, (p.key, p.window), p.timing, p.index, p.result) for n, result in enumerate(results) for p in result.panes}
    event(f"late panes: {any(pane.timing == 'LATE' for result in results for pane in result.panes)}, late: {bool(late)}")

    open_slots = {slot for slot in taken if slot[1].end - 1 + setting.lateness > watermarks[-1]}
    assert open_slots == {(found.key, found.window) for found in (results[-1].open_windows if results else ())}


@settings(deadline=None)
@given(streams())
def test_every_element_is_accepted_or_late(stream: tuple[Setting, list[Epoch]]) -> None:
    setting, epochs = stream
    for epoch, result in zip(epochs, run_reference(setting.job, epochs), strict=True):
        assert result.counts.rows_in == len(epoch.elements) == result.counts.accepted + result.counts.late
        assert result.counts.late == len(result.late)
        source = result.source_counts["source"]
        assert source.read == source.passed + source.malformed == len(epoch.elements)


@settings(deadline=None)
@given(streams())
def test_panes_are_numbered_and_at_most_one_is_on_time(stream: tuple[Setting, list[Epoch]]) -> None:
    setting, epochs = stream
    for panes in panes_of(run_reference(setting.job, epochs)).values():
        assert [pane.index for _, pane in panes] == list(range(len(panes)))
        assert [pane.timing for _, pane in panes][1:] == ["LATE"] * (len(panes) - 1)
        numbers = [number for number, _ in panes]
        assert len(set(numbers)) == len(numbers)


@settings(deadline=None)
@given(streams())
def test_panes_accumulate_and_the_last_holds_all_that_was_accepted(stream: tuple[Setting, list[Epoch]]) -> None:
    setting, epochs = stream
    epochs = [*epochs, Epoch(end_of_input=True)]
    results = run_reference(setting.job, epochs)
    for panes in panes_of(results).values():
        contents = [set(pane.result) for _, pane in panes]  # type: ignore[call-overload]
        assert all(contents[place] < contents[place + 1] for place in range(len(contents) - 1))
    assert final(results) == grouped(setting, accepted_of(epochs, results))
    assert results[-1].open_windows == ()


@settings(deadline=None)
@given(streams())
def test_state_is_what_may_still_be_taken_and_nothing_else(stream: tuple[Setting, list[Epoch]]) -> None:
    setting, epochs = stream
    for result in run_reference(setting.job, epochs):
        assert all(found.window.end - 1 + setting.lateness > result.watermark for found in result.open_windows)
        assert all(found.panes > 0 or found.window.end - 1 > result.watermark for found in result.open_windows)


@settings(deadline=None)
@given(punctual(behind_by_lateness=False), st.data())
def test_within_the_bound_nothing_is_late_and_each_window_has_one_pane(stream: tuple[Setting, list[Element]], data: st.DataObject) -> None:
    setting, elements = stream
    results = run_reference(setting.job, data.draw(cuts(elements)))
    assert [result.late for result in results if result.late] == []
    assert {pane.timing for result in results for pane in result.panes} <= {"ON_TIME"}
    assert final(results) == grouped(setting, elements)


@settings(deadline=None)
@given(punctual(behind_by_lateness=True), st.data())
def test_final_contents_do_not_depend_on_the_cut_within_bound_and_lateness(
    stream: tuple[Setting, list[Element]], data: st.DataObject
) -> None:
    setting, elements = stream
    one = run_reference(setting.job, data.draw(cuts(elements), label="one cut"))
    other = run_reference(setting.job, data.draw(cuts(elements), label="another cut"))
    each = run_reference(setting.job, [*(Epoch((element,)) for element in elements), Epoch(end_of_input=True)])
    assert final(one) == final(other) == final(each) == grouped(setting, elements)
    assert sum(result.counts.late for result in (*one, *other, *each)) == 0


@settings(deadline=None)
@given(streams(), st.randoms(use_true_random=False))
def test_order_of_reading_within_an_epoch_does_not_matter(stream: tuple[Setting, list[Epoch]], random: Random) -> None:
    setting, epochs = stream
    mixed = []
    for epoch in epochs:
        elements = list(epoch.elements)
        random.shuffle(elements)
        mixed.append(Epoch(tuple(elements), end_of_input=epoch.end_of_input))
    assert run_reference(setting.job, mixed) == run_reference(setting.job, epochs)
