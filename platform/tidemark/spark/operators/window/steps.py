"""Which step runs which windows."""

from __future__ import annotations

import dataclasses

from tidemark.graph.operators.window.execution import fires_at_its_end, is_counted, is_triggered, is_triggered_session
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.assigners import Cumulative, Sliding, Tumbling
from tidemark.spark.operators.aligned.sliced import SlicedStep
from tidemark.spark.operators.aligned.triggered import TriggeredStep
from tidemark.spark.operators.aligned.tumbling import TumblingStep
from tidemark.spark.operators.base.windows import WindowRuntime
from tidemark.spark.operators.count.counted import CountedStep
from tidemark.spark.operators.process.buffered import BufferedStep
from tidemark.spark.operators.process.result_functions import ResultFunctionStep
from tidemark.spark.operators.session.session_triggers import TriggeredSessionStep
from tidemark.spark.operators.session.sessions import SessionStep


def step_of(node: WindowNode) -> WindowRuntime:
    """Return the step of an operator: a native one where there is one, else one that keeps elements.

    A function behind aggregates is a step around that of the aggregates.
    """
    if node.aggregates and node.function is not None:
        return ResultFunctionStep(node, step_of(dataclasses.replace(node, function=None)))
    if is_triggered(node):
        return TriggeredStep(node)
    if is_triggered_session(node):
        return TriggeredSessionStep(node)
    if is_counted(node):
        return CountedStep(node)
    if not fires_at_its_end(node):
        return BufferedStep(node)
    if isinstance(node.assigner, Tumbling):
        return TumblingStep(node)
    return SlicedStep(node) if isinstance(node.assigner, Sliding | Cumulative) else SessionStep(node)
