"""What does not depend on how keys are batched, on the order of reading, or on how the input was cut into epochs, for all windows."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.semantics.process_runs import TAKEN, ProcessRun, compare
from tests.semantics.window_settings import ASSIGNERS, COUNTS, KEYS, TRIGGERS, epochs, jobs
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Key
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.watermarks.watermarks import BoundedOutOfOrderness, WatermarkStrategy
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import Window

ANY_JOB = jobs(st.one_of(*ASSIGNERS.values()), st.one_of(*TRIGGERS.values())).filter(
    lambda job: not job.assigner.merging or job.trigger is None or job.trigger.can_merge
)
EVENT_TIME = st.one_of(*ASSIGNERS.values(), COUNTS).filter(lambda assigner: assigner.domain == "event")


@settings(deadline=None)
@given(st.one_of(ANY_JOB, jobs(COUNTS, st.none())), epochs(), st.randoms(use_true_random=False))
def test_keys_run_apart_do_the_same(job: Any, cut: list[Epoch], random: Random) -> None:
    together, apart = ProcessRun(job), {key: ProcessRun(job) for key in dict.fromkeys(KEYS)}
    for epoch, result in zip(cut, run_reference(job, cut), strict=True):
        watermark, clock = result.source_watermarks["source"], result.processing_time
        mixed = random.sample(epoch.elements, len(epoch.elements))
        seen = together.run_epoch(mixed, watermark, clock)
        for key, run in apart.items():
            alone = run.run_epoch([element for element in epoch.elements if element.key == key], watermark, clock)
            assert alone.panes.get(key) == seen.panes.get(key)
            assert run.keys.get(key) == together.keys.get(key)


@settings(deadline=None)
@given(ANY_JOB, epochs())
def test_calls_that_are_not_due_change_nothing(job: Any, cut: list[Epoch]) -> None:
    run = ProcessRun(job)
    for epoch, result in zip(cut, run_reference(job, cut), strict=True):
        watermark, clock = result.source_watermarks["source"], result.processing_time
        run.run_epoch(epoch.elements, watermark, clock)
        before = {key: (store.state, store.elements, store.deadlines) for key, store in run.keys.items()}
        run.call_all = True
        seen = run.run_epoch((), watermark, clock)
        run.call_all = False
        assert seen.panes == {}
        assert {key: (store.state, store.elements, store.deadlines) for key, store in run.keys.items()} == before


@st.composite
def punctual(draw: st.DrawFn, bound: int) -> list[Element]:
    """Draw elements of which none is more than the bound behind the greatest time before it."""
    greatest, elements = draw(st.integers(-20, 20)), []
    for place, (key, step) in enumerate(draw(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-bound, 9)), max_size=20))):
        elements.append(Element(key, greatest + step, {"id": place}, position=(place,), gap_ms=3))
        greatest = max(greatest, greatest + step)
    return elements


@st.composite
def cuts(draw: st.DrawFn, elements: list[Element]) -> list[Epoch]:
    places = [0, *sorted(draw(st.lists(st.integers(0, len(elements)), max_size=6))), len(elements)]
    return [*(Epoch(tuple(elements[low:high])) for low, high in pairwise(places)), Epoch(end_of_input=True)]


@pytest.mark.parametrize("bound", [0, 8])
def test_final_contents_do_not_depend_on_the_cut_without_late_elements(bound: int) -> None:
    @settings(deadline=None)
    @given(EVENT_TIME, punctual(bound), st.data())
    def check(assigner: Any, elements: list[Element], data: st.DataObject) -> None:
        if isinstance(assigner, CountWindows) and bound:
            return  # Groups by number depend on the order, which the cut is part of; of an ordered input they do not.
        strategy = WatermarkStrategy("t", BoundedOutOfOrderness(bound), max_future_skew_ms=None)
        job = ReferenceJob({"source": strategy}, assigner, TAKEN)
        runs = [list(compare(job, data.draw(cuts(elements)))) for _ in range(2)]
        late = [element for results in runs for result in results for element in result.late]
        assert [element for element in late if assigner.assign(element.timestamp, element.gap_ms)] == [], "only between sliding windows"
        assert final(runs[0]) == final(runs[1])

    check()


def final(results: list[EpochResult]) -> dict[tuple[Key, Window], list[frozenset[object]]]:
    """Return what each window has in its last pane; for count windows, each group."""
    found: defaultdict[tuple[Key, Window], dict[int, Pane]] = defaultdict(dict)
    for result in results:
        for pane in result.panes:
            number = pane.index if pane.time is not None else 0
            found[pane.key, pane.window][number] = pane
    return {slot: [content(pane) for _, pane in sorted(panes.items())] for slot, panes in found.items()}


def content(pane: Pane) -> frozenset[object]:
    assert isinstance(pane.result, tuple)
    return frozenset(pane.result)
