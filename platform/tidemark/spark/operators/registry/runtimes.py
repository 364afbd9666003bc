"""The runtimes of stateful operators, by their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.graph.definition.definition import operator_definition
from tidemark.graph.model.nodes import StatefulNode, WindowNode
from tidemark.spark.operators.base.contract import OperatorRuntime
from tidemark.spark.operators.registry.steps import step_of


def runtime_of(node: StatefulNode) -> OperatorRuntime:
    """Return what runs an operator."""
    return _RUNTIMES[node.KIND](node)


def stored_definition(node: StatefulNode) -> Mapping[str, object]:
    """Return an operator's declaration as it is recorded beside its state."""
    return _DEFINITIONS[node.KIND](node)


def _window(node: StatefulNode) -> WindowNode:
    if not isinstance(node, WindowNode):
        raise TypeError(type(node).__name__)
    return node


_RUNTIMES: dict[str, Callable[[StatefulNode], OperatorRuntime]] = {WindowNode.KIND: lambda node: step_of(_window(node))}
_DEFINITIONS: dict[str, Callable[[StatefulNode], Mapping[str, object]]] = {WindowNode.KIND: lambda node: operator_definition(_window(node))}
