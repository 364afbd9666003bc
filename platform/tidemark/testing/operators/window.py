"""Windows in plain Python, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tidemark.errors import DefinitionError
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.process.window_function_calls import WindowFunction
from tidemark.semantics.reference.reference import ReferenceJob
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window
from tidemark.testing.operators.aggregate_folds import argument_of, fold_of
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, instant, value_of


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
        zone = self._zone(node.assigner, element.row) if isinstance(node.assigner, LocalWindows) else None
        arrived = Element(key, element.time, element.row, position=element.position, gap_ms=gap, zone=zone)
        return None if self._operator.process_element(arrived, element.time) else "late"

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

    def _zone(self, assigner: LocalWindows, row: Mapping[str, object]) -> str | None:
        if assigner.zone_by is None:
            return None
        zone = value_of(assigner.zone_by, row, what="zone_by", node=self._node)
        return None if zone is None else str(zone).rstrip(" ")

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
    parts = {name: folds.get(name) or fold_of(name, aggregate, node) for name, aggregate in node.aggregates}

    def add(states: dict[str, object], row: object, time: int, position: tuple[int | str, ...]) -> dict[str, object]:
        if not isinstance(row, Mapping):
            raise TypeError(f"an element is {row!r}, no row")
        return {
            name: parts[name].add(states[name], argument_of(aggregate, row, name=name, node=node), time, position)
            for name, aggregate in node.aggregates
        }

    def result(states: dict[str, object]) -> object:
        row = {name: fold.result(states[name]) for name, fold in parts.items()}
        if not node.reduced:
            return row
        (reduced,) = row.values()
        return reduced

    return Fold(create=lambda: {name: fold.create() for name, fold in parts.items()}, add=add, result=result)
