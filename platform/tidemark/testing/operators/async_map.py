"""Asynchronous enrichment in plain Python: the calls that the engine's tasks make."""

from __future__ import annotations

import copy
from functools import partial

from tidemark.errors import UserCodeError
from tidemark.graph.operators.async_map.function import call_of, lifecycle
from tidemark.graph.operators.async_map.node import AsyncMapNode
from tidemark.semantics.async_map.calls import Answer, AsyncCalls
from tidemark.semantics.closing import closing
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
        """Call the function for the epoch's elements; return its rows. If it fails, all is as before."""
        emitted: list[Emitted] = []
        if self._arrived:
            function = copy.deepcopy(self._node.function)
            calls = AsyncCalls(call_of(function), self._node.settings)
            with closing(partial(self._close, calls, function)):
                self._complete(calls, function, "open")
                for answer in calls.run((each.row, each) for each in self._arrived):
                    self._take(answer, emitted)
        self._kept.watermark = max(watermark, self._kept.watermark)
        return emitted

    def _take(self, answer: Answer[Arrived], emitted: list[Emitted]) -> None:
        """Emit what the function returned; an element that failed is put aside, if that is asked for."""
        node, element = self._node, answer.element
        if answer.error is not None:
            if node.on_error is None:
                raise answer.cause
            self._fail(element.row, answer.describe(node.settings))
            return
        try:
            row = one_row(answer.value, node.function_name)
        except UserCodeError as error:
            if node.on_error is None:
                raise
            self._fail(element.row, describe_failure(error))
        else:
            self._emit(None, row, element.time, emitted)

    def _close(self, calls: AsyncCalls, function: object) -> None:
        with calls:
            calls.cancel()
            self._complete(calls, function, "close")

    def _complete(self, calls: AsyncCalls, function: object, name: str) -> None:
        method = lifecycle(function, name)
        if method is not None:
            calls.complete(method())
