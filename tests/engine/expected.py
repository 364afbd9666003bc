"""What the element-by-element reference says that each epoch of a scenario has to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.engine.drive import Facts, Seen, aggregated, in_text_order
from tests.engine.late_facts import expected_facts
from tests.engine.streams import Operator, Row, Scenario, Source
from tidemark.semantics.reference.reference import Epoch, EpochResult, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_operator import Element, Fold, Position
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.watermarks.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME, named_reason
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.semantics.windows.windows import GLOBAL_WINDOW

Taken = tuple[tuple[int, Position, Row], ...]


def run_expected(scenario: Scenario) -> list[Seen]:
    """Run a scenario through the reference, operator by operator; return what each epoch has to do."""
    epochs = [
        Epoch(
            elements=tuple(_elements(scenario, number)),
            processing_time=scenario.clock[number],
            # All elements are there from the beginning: a source has more to read until it has read its last batch.
            behind=frozenset(source.name for source in scenario.sources if number + 1 < len(source.batches)),
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
            panes={o.uid: in_text_order(map(_pane, by_uid[o.uid][number].panes)) for o in scenario.operators},
            late={o.uid: _late(by_uid[o.uid][number]) for o in scenario.operators},
            malformed={name: _malformed(source, whole[number]) for name, source in names.items()},
            sources={name: _source_facts(name, epochs[number], whole[number]) for name in names},
            operators={o.uid: _operator_facts(o, by_uid[o.uid], number) for o in scenario.operators},
            oldest={o.uid: _oldest(by_uid[o.uid][number]) for o in scenario.operators},
        )
        for number in range(len(epochs))
    ]


def _add(taken: Taken, value: object, timestamp: int, position: Position) -> Taken:
    assert isinstance(value, Row)
    return (*taken, (timestamp, position, value))


def content_of(operator: Operator) -> Fold[Taken]:
    """Return the aggregates of an operator as a fold."""

    def result(taken: Taken) -> tuple[object, ...]:
        # A window that a pane has emptied may stay so.
        return taken and aggregated([row for _, _, row in sorted(taken, key=lambda entry: entry[:2])], operator)

    return Fold(create=tuple, add=_add, result=result)


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
    return run_reference(
        ReferenceJob(strategies, operator.assigner, content_of(operator), operator.lateness, trigger=operator.trigger), mine
    )


def _pane(pane: Pane) -> tuple[object, ...]:
    assert isinstance(pane.result, tuple)
    bounds = (None, None) if pane.window == GLOBAL_WINDOW else (pane.window.start, pane.window.end)
    return (*pane.key, *bounds, pane.timing, pane.index, *pane.result)


def _rows(elements: Iterable[Element]) -> Iterable[tuple[Element, Row]]:
    for element in elements:
        assert isinstance(element.value, Row)
        yield element, element.value


def _late(result: EpochResult) -> list[tuple[object, ...]]:
    return in_text_order((row.id, row.key, row.split, row.time, row.value) for _, row in _rows(result.late))


def _malformed(source: Source, result: EpochResult) -> list[tuple[object, ...]]:
    found = []
    for malformed in result.malformed:
        element = malformed.element
        if element.source != source.name:
            continue
        ((_, row),) = _rows([element])
        time = element.timestamp
        shown = time if time is not None and MIN_EVENT_TIME <= time <= MAX_EVENT_TIME else None
        split = row.split if source.strategy.split_by else None
        found.append(
            (row.id, row.key, row.value, named_reason(malformed.reason, source.strategy.timestamp), shown, split, result.processing_time)
        )
    return in_text_order(found)


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
    windows = [operator.assigner.assign(_time(element)) for element in result.late]
    before = results[number - 1].watermark if number else MIN_WATERMARK
    late = {found[-1].start for found in windows if found}
    refired = {pane.window.start for pane in result.panes if pane.timing == "LATE"}
    return {
        "counts": (result.counts.rows_in, result.counts.accepted, result.counts.late),
        "watermark": _known(result.watermark),
        "panes": (
            sum(pane.timing == "EARLY" for pane in result.panes),
            sum(pane.timing == "ON_TIME" for pane in result.panes),
            sum(pane.timing == "LATE" for pane in result.panes),
        ),
        "late_windows": tuple(sorted(late)[-100:]),
        **expected_facts(windows, operator.lateness, before),
        "refired_windows": tuple(sorted(refired)[-100:]),
        "stateless": not result.open_windows,
    }


def _oldest(result: EpochResult) -> int | None:
    return min((found.window.start for found in result.open_windows if found.window != GLOBAL_WINDOW), default=None)


def _time(element: Element) -> int:
    assert element.timestamp is not None
    return element.timestamp


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_WATERMARK else watermark
