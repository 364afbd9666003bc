"""What the kinds of operators ask of an epoch, and what they can do faster: known from the graph, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.graph.model.nodes import StatefulNode, WindowNode
from tidemark.graph.windows.native_windows import is_native
from tidemark.semantics.windows.assigners import CountWindows, DynamicSession


@dataclass(frozen=True)
class Capabilities:
    """What one kind declares of its operators.

    ``needs_order``: elements of one event time have to be told apart by their source positions. ``late_known_after_emit``: how many
    rows of an epoch were late, and which, is known only after ``emit``.
    """

    needs_order: Callable[[StatefulNode], bool]
    late_known_after_emit: Callable[[StatefulNode], bool]


def needs_order(node: StatefulNode) -> bool:
    """Return whether elements of one event time have to be told apart by their source positions."""
    return CAPABILITIES[node.KIND].needs_order(node)


def late_known_after_emit(node: StatefulNode) -> bool:
    """Return whether it is known only after ``emit`` how many rows of an epoch were late, and which."""
    return CAPABILITIES[node.KIND].late_known_after_emit(node)


def _windows_need_order(node: StatefulNode) -> bool:
    window = _window(node)
    one_by_one = isinstance(window.assigner, DynamicSession | CountWindows)
    return not is_native(window) or one_by_one or any(aggregate.ordered for _, aggregate in window.aggregates)


def _windows_judge_late(node: StatefulNode) -> bool:
    """Whether a process in Python decides, element by element, once it knows the watermark."""
    return not is_native(_window(node))


def _window(node: StatefulNode) -> WindowNode:
    if not isinstance(node, WindowNode):
        raise TypeError(type(node).__name__)
    return node


CAPABILITIES: dict[str, Capabilities] = {WindowNode.KIND: Capabilities(_windows_need_order, _windows_judge_late)}
"""By the kind of operator."""
