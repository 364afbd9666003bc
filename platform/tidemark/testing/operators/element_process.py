"""Functions over elements in plain Python: the calls that the engine's tasks make."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from tidemark.errors import UserCodeError
from tidemark.graph.operators.element_process.node import BroadcastElementProcessNode, ElementProcessNode
from tidemark.graph.operators.emitting import FAILED, emitted_counter
from tidemark.semantics.closing import closing
from tidemark.semantics.element_process.calls import ElementCalls, Failure
from tidemark.semantics.keyed_process.broadcast_maps import NO_MAPS
from tidemark.semantics.user_rows import copied
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK
from tidemark.spark.columns.user_values import MisfitError, coerce_batch
from tidemark.spark.operators.keyed.python_values import python_rows
from tidemark.testing.arrow_types import arrow_schema
from tidemark.testing.operators.broadcast import written_map
from tidemark.testing.operators.contract import Arrived, Emitted, Folds


@dataclass
class _Kept:
    """What an operator keeps: a broadcast map, and the watermark of the epoch before."""

    broadcast: dict[object, dict[str, object]] = field(default_factory=dict)
    watermark: int = MIN_WATERMARK


class PureElements:
    """What operators over elements have in common: side outputs, and rows with the values that their columns would hold.

    Args:
        node: the operator's declaration.
    """

    def __init__(self, node: ElementProcessNode) -> None:
        self._declared = node
        self._results = None if node.keeps_elements else arrow_schema(node.returns)
        self._sides = {tag.name: arrow_schema(ddl) for tag, ddl in node.side_outputs}
        self._kept = _Kept()
        self._processing_time = 0
        self._arrived: list[Arrived] = []
        self._side: dict[str, list[dict[str, object]]] = {}
        self._failed = 0

    def begin_epoch(self, processing_time: int) -> None:
        """Fix the epoch's processing time, and forget what an epoch that failed has left."""
        self._processing_time = processing_time
        self._arrived, self._side, self._failed = [], {}, 0

    def process(self, element: Arrived) -> str | None:
        """Take an element."""
        self._arrived.append(element)
        return None

    def _emit(self, tag: str | None, row: Mapping[str, object], time: int, emitted: list[Emitted]) -> None:
        if tag is None:
            emitted.append(Emitted(dict(row) if self._results is None else self._typed(row, self._results), time))
        else:
            counter = next(emitted_counter(each) for each, _ in self._declared.side_outputs if each.name == tag)
            self._side.setdefault(counter, []).append(self._typed(row, self._sides[tag]))

    def _fail(self, row: Mapping[str, object], error: str) -> None:
        self._failed += 1
        self._side.setdefault(FAILED, []).append({**row, "error": error})

    def _typed(self, row: Mapping[str, object], schema: pa.Schema) -> dict[str, object]:
        """Return a row with the values that its columns would hold."""
        try:
            if unknown := [column for column in row if column not in schema.names]:
                raise MisfitError(dict(row), f"its columns {', '.join(schema.names)}: it has {unknown[0]!r}")
            return python_rows(coerce_batch([row], schema))[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            what = f"{self._declared.function_name} returned {' '.join(str(error).split())}"
            raise UserCodeError(what, fix="return values of the types in returns=...", uid=self._declared.uid) from error

    def take_side_rows(self) -> tuple[dict[str, list[dict[str, object]]], dict[str, int]]:
        """Return the rows of side outputs since the last call, by counter, and how many of the elements each counter has."""
        found, counts = self._side, {FAILED: self._failed} if self._failed else {}
        self._side, self._failed = {}, 0
        return found, counts

    def state(self) -> list[dict[str, object]]:
        """Return a row per entry of the broadcast map, none without one."""
        return [{"key": key, "value": value} for key, value in self._kept.broadcast.items()]

    def timers(self) -> list[dict[str, object]]:
        """Return nothing: there are no timers without a key."""
        return []

    def snapshot(self) -> object:
        """Return a copy of all that is kept."""
        return copy.deepcopy(self._kept)

    def restore(self, snapshot: object) -> None:
        """Resume from what ``snapshot`` returned."""
        if not isinstance(snapshot, _Kept):
            raise TypeError(f"{type(snapshot).__name__} is no snapshot of a function over elements")
        self._kept = copy.deepcopy(snapshot)


class PureElementProcess(PureElements):
    """A function over elements.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: ElementProcessNode, folds: Folds) -> None:
        del folds
        super().__init__(node)
        self._node = node

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Apply the epoch's broadcast elements, then call the function for the others; return its rows. If it fails, all is as before."""
        # As a task of the engine, which is sent the function as the job declares it.
        node, function = self._node, copy.deepcopy(self._node.function)
        method: Callable[..., object] = getattr(function, node.method, function)  # type: ignore[arg-type]
        kept = _Kept(dict(self._kept.broadcast), max(watermark, self._kept.watermark))
        broadcast = NO_MAPS
        if isinstance(node, BroadcastElementProcessNode):
            rules = (each.row for each in self._arrived if each.port == "broadcast")
            broadcast = written_map(node, node.broadcast, kept.broadcast, rules)
        calls = ElementCalls(
            method,
            node.method,
            tags=frozenset(self._sides),
            watermark=self._kept.watermark,
            processing_time=self._processing_time,
            forgives=node.on_error is not None,
            broadcast=broadcast,
        )
        elements = [each for each in self._arrived if each.port == "elements"]
        emitted: list[Emitted] = []
        if elements:
            with closing(partial(_call, function, "close")):
                _call(function, "open", calls.context)
                for each in elements:
                    self._process(calls, each, emitted)
        self._kept = kept
        return emitted

    def _process(self, calls: ElementCalls, element: Arrived, emitted: list[Emitted]) -> None:
        made = calls.call(copied(element.row), element.time)
        if isinstance(made, Failure):
            self._fail(element.row, made.error)
        else:
            for tag, row in made:
                self._emit(tag, element.row if tag is None and self._node.keeps_elements else row, element.time, emitted)


def _call(function: object, name: str, *arguments: object) -> None:
    method = getattr(function, name, None)
    if callable(method):
        method(*arguments)
