"""Which step runs which windows."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.nodes import WindowNode
from tidemark.semantics.assigners import Cumulative, DynamicSession, Session, Sliding, Tumbling
from tidemark.spark.windows.contract import WindowStep
from tidemark.spark.windows.sessions import SessionStep
from tidemark.spark.windows.sliced import SlicedStep
from tidemark.spark.windows.triggered import TriggeredStep, is_triggered
from tidemark.spark.windows.tumbling import TumblingStep


def step_of(node: WindowNode) -> WindowStep:
    """Return the step of an operator.

    Raises:
        DefinitionError: no step runs such windows.
    """
    if is_triggered(node):
        return TriggeredStep(node)
    if isinstance(node.assigner, Tumbling):
        return TumblingStep(node)
    if isinstance(node.assigner, Sliding | Cumulative):
        return SlicedStep(node)
    if isinstance(node.assigner, Session | DynamicSession):
        return SessionStep(node)
    what = f"windows of kind {type(node.assigner).__name__} cannot be run"
    raise DefinitionError(what, fix="use an assigner of tidemark's own", uid=node.uid, place=node.place)
