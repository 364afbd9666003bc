"""The runtime of each kind of windows."""

from __future__ import annotations

import dataclasses

from tidemark.graph.operators.window.execution import fires_at_its_end, is_incremental_count, is_local, is_triggered, is_triggered_session
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.spark.operators.aligned.local import LocalRuntime
from tidemark.spark.operators.aligned.sliced import SlicedRuntime
from tidemark.spark.operators.aligned.triggered import TriggeredRuntime
from tidemark.spark.operators.aligned.tumbling import TumblingRuntime
from tidemark.spark.operators.base.windows import WindowRuntime
from tidemark.spark.operators.count.counted import CountedRuntime
from tidemark.spark.operators.process.buffered import BufferedRuntime
from tidemark.spark.operators.process.result_functions import ResultFunctionRuntime
from tidemark.spark.operators.session.session_runtime import SessionRuntime
from tidemark.spark.operators.session.session_triggers import TriggeredSessionRuntime


def window_runtime_of(node: WindowNode) -> WindowRuntime:
    """Return the runtime of an operator: a native one where there is one, else one that keeps elements.

    The runtime of a function after aggregates wraps that of the aggregates.
    """
    if node.aggregates and node.function is not None:
        return ResultFunctionRuntime(node, window_runtime_of(dataclasses.replace(node, function=None)))
    if is_local(node):
        return LocalRuntime(node)
    if is_triggered(node):
        return TriggeredRuntime(node)
    if is_triggered_session(node):
        return TriggeredSessionRuntime(node)
    if is_incremental_count(node):
        return CountedRuntime(node)
    if not fires_at_its_end(node):
        return BufferedRuntime(node)
    if isinstance(node.assigner, Tumbling):
        return TumblingRuntime(node)
    return SlicedRuntime(node) if isinstance(node.assigner, Sliding | Cumulative) else SessionRuntime(node)
