"""Windows in plain Python, element by element."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from tidemark.errors import DefinitionError
from tidemark.graph.aggregates.aggregates_custom import FoldElements, StateResult, plain
from tidemark.graph.model.aggregates import Aggregate
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.process.window_function_calls import WindowFunction
from tidemark.semantics.reference.reference import ReferenceJob
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.testing import folds as known
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, instant, value_of

_FOLDS: Final[Mapping[str, Callable[[], Fold[Any]]]] = MappingProxyType(
    {
        "avg": known.avg,
        "collect_list": known.collect_list,
        "collect_set": known.collect_set,
        "count": known.count,
        "count_distinct": known.count_distinct,
        "max": known.max,
        "max_by": known.max_by,
        "min": known.min,
        "min_by": known.min_by,
        "stddev": known.stddev,
        "stddev_pop": known.stddev_pop,
        "sum": known.sum,
        "variance": known.variance,
        "variance_pop": known.variance_pop,
    }
)


class PureWindows(PureOperatorBase):
    """A window operator.

    Args:
        node: its declaration.
        folds: of aggregates that the harness does not know by their kind, by name.

    Raises:
        DefinitionError: an aggregate is an SQL one, and has no fold.
    """

    def __init__(self, node: WindowNode, folds: Folds) -> None:
        self._node = node
        function = cast("WindowFunction | None", node.function and node.function.function)
        fold = _together(node, folds) if node.aggregates else None
        self._operator = ReferenceJob(
            {},
            node.assigner,
            fold,
            node.allowed_lateness_ms,
            node.trigger,
            node.evictor,
            function,
            tuple(name for name, _ in node.keys),
        ).operator()

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time."""
        self._operator.begin_epoch(processing_time)

    def process(self, element: Arrived) -> str | None:
        """Process an element; return ``late`` where no window accepts it."""
        node = self._node
        key = tuple(value_of(expression, element.row, what=f"key {name!r}", node=node) for name, expression in node.keys)
        gap = self._gap(node.assigner, element.row) if isinstance(node.assigner, DynamicSession) else None
        taken = self._operator.process_element(Element(key, element.time, element.row, position=element.position, gap_ms=gap), element.time)
        return None if taken else "late"

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the rows of the panes that fire."""
        return [emitted for pane in self._operator.advance_watermark(watermark) for emitted in self._rows(pane)]

    def state(self) -> list[dict[str, object]]:
        """Return the open windows: key, bounds, number of elements and of emitted panes."""
        return [
            {**self._key(open_window.key), **self._bounds(open_window.window), "elements": open_window.elements, "panes": open_window.panes}
            for open_window in self._operator.open_windows()
        ]

    def _gap(self, assigner: DynamicSession, row: Mapping[str, object]) -> int:
        gap = value_of(assigner.gap_by, row, what="session gap_by", node=self._node)
        if isinstance(gap, int):
            return gap
        raise DefinitionError(
            f"the session's gap is {gap!r}", fix="give milliseconds as an int in the row", uid=self._node.uid, place=self._node.place
        )

    def _key(self, key: tuple[object, ...]) -> dict[str, object]:
        return dict(zip((name for name, _ in self._node.keys), key, strict=True))

    def _bounds(self, window: Window) -> dict[str, object]:
        if window == GLOBAL_WINDOW or isinstance(self._node.assigner, CountWindows):
            return {"window_start": None, "window_end": None}
        return {"window_start": instant(window.start), "window_end": instant(window.end)}

    def _rows(self, pane: Pane) -> list[Emitted]:
        own: dict[str, object] = {"pane_timing": pane.timing, "pane_index": pane.index}
        if self._node.assigner.merging:
            ends = ((each.start, each.end) for each in pane.replaces)
            own["replaces"] = [(instant(start), None if end is None else instant(end)) for start, end in ends]
        made = pane.result if self._node.function is not None else [pane.result]
        if not isinstance(made, list | tuple):
            raise TypeError(f"a pane's result is {made!r}")
        before = {**self._key(pane.key), **self._bounds(pane.window)}
        return [Emitted({**before, **dict(row), **own}, pane.result_time) for row in made]


def _together(node: WindowNode, folds: Folds) -> Fold[Any]:
    """Return one fold whose result is a row of all aggregates."""
    parts = {name: folds.get(name) or _fold(name, aggregate, node) for name, aggregate in node.aggregates}

    def add(states: dict[str, object], row: object, time: int, position: tuple[int | str, ...]) -> dict[str, object]:
        if not isinstance(row, Mapping):
            raise TypeError(f"an element is {row!r}, no row")
        return {
            name: parts[name].add(states[name], _argument(aggregate, row, name=name, node=node), time, position)
            for name, aggregate in node.aggregates
        }

    def result(states: dict[str, object]) -> object:
        row = {name: fold.result(states[name]) for name, fold in parts.items()}
        if not node.reduced:
            return row
        (reduced,) = row.values()
        return reduced

    return Fold(create=lambda: {name: fold.create() for name, fold in parts.items()}, add=add, result=result)


def _argument(aggregate: Aggregate, row: Mapping[str, object], *, name: str, node: WindowNode) -> object:
    """Return an aggregate's argument in a row: one value, or several in a tuple; for ``count()`` any that is not null."""
    values = tuple(value_of(_column(text), row, what=f"argument of aggregate {name!r}", node=node) for text in aggregate.arguments)
    return values if len(values) > 1 or aggregate.functions else values[0] if values else True


def _column(text: str) -> str:
    """Return the column of an argument; those of ``reduce`` have a type, too."""
    cast = re.fullmatch(r"CAST\(`(.+)` AS .+\)", text)
    return cast[1].replace("``", "`") if cast else text


def _fold(name: str, aggregate: Aggregate, node: WindowNode) -> Fold[Any]:
    made = [each.function for each in aggregate.functions]
    elements = next((each for each in made if isinstance(each, FoldElements)), None)
    finish = next((each for each in made if isinstance(each, StateResult)), None)
    if elements is not None and finish is not None:
        return Fold(
            create=elements.create,
            add=lambda state, values, *_: elements.add(state, *map(plain, cast("tuple[object, ...]", values))),
            result=finish,
        )
    if aggregate.kind in _FOLDS:
        return _FOLDS[aggregate.kind]()
    raise DefinitionError(
        f"the harness does not know the aggregate {name!r} ({aggregate.kind}), which is SQL",
        fix=f"give its implementation in Python: OperatorHarness(stream, folds={{{name!r}: tidemark.testing.folds...}})",
        uid=node.uid,
        place=node.place,
    )
