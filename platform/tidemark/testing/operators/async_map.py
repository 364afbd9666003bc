"""Asynchronous enrichment in plain Python: the calls that the engine's tasks make."""

from __future__ import annotations

import copy

from tidemark.errors import UserCodeError
from tidemark.graph.operators.async_map.function import call_of, lifecycle
from tidemark.graph.operators.async_map.node import AsyncMapNode
from tidemark.semantics.async_map.calls import AsyncCalls
from tidemark.semantics.user_rows import describe_failure, one_row
from tidemark.testing.operators.contract import Arrived, Emitted, Folds
from tidemark.testing.operators.element_process import PureElements


class PureAsyncMap(PureElements):
    """An asynchronous function; it is called for real, with its timeouts and retries.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: AsyncMapNode, folds: Folds) -> None:
        del folds
        super().__init__(node)
        self._node = node

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Call the function for the epoch's elements; return its rows."""
        node, function = self._node, copy.deepcopy(self._node.function)
        elements, self._arrived = self._arrived, []
        self._kept.watermark = max(watermark, self._kept.watermark)
        emitted: list[Emitted] = []
        if not elements:
            return emitted
        with AsyncCalls(call_of(function), node.settings) as calls:
            try:
                self._complete(calls, function, "open")
                for answer in calls.run((dict(each.row), each) for each in elements):
                    element = answer.element
                    if answer.error is None:
                        self._take(answer.value, element, emitted)
                    elif node.on_error is not None:
                        self._fail(element.row, answer.describe(node.settings))
                    else:
                        raise answer.cause
            finally:
                calls.cancel()
                self._complete(calls, function, "close")
        return emitted

    def _take(self, value: object, element: Arrived, emitted: list[Emitted]) -> None:
        """Emit what the function returned; what is no row is put aside, if that is asked for."""
        try:
            row = one_row(value, self._node.function_name)
        except UserCodeError as error:
            if self._node.on_error is None:
                raise
            self._fail(element.row, describe_failure(error))
        else:
            self._emit(None, row, element.time, emitted)

    def _complete(self, calls: AsyncCalls, function: object, name: str) -> None:
        method = lifecycle(function, name)
        if method is not None:
            calls.complete(method())
