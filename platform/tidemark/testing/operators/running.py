"""Running results in plain Python."""

from __future__ import annotations

from math import isnan
from typing import Any

from tidemark.graph.operators.running.node import Extreme, RunningNode
from tidemark.semantics.running.keyed_fold import Stepped
from tidemark.testing.operators.aggregate_folds import argument_of, fold_of
from tidemark.testing.operators.contract import Arrived, Folds, value_of
from tidemark.testing.operators.keyed_fold import PureKeyedFold


class PureRunning(PureKeyedFold):
    """Running results.

    Args:
        node: its declaration.
        folds: of aggregates that the harness does not know by their kind, by name.

    Raises:
        DefinitionError: an aggregate is an SQL one, and has no fold.
    """

    def __init__(self, node: RunningNode, folds: Folds) -> None:
        super().__init__(node, node.keys, node.ttl)
        self._running = node
        self._folds = {name: folds.get(name) or fold_of(name, aggregate, node) for name, aggregate in node.aggregates}

    def step(self, state: Any, element: Arrived) -> Stepped[Any, dict[str, object]]:  # noqa: ANN401  # each fold has its own
        """Return the results with an element."""
        node = self._running
        if node.extreme is not None:
            best = self._best(node.extreme, state, element)
            return Stepped(best, [dict(best[1])])
        before = state or {name: fold.create() for name, fold in self._folds.items()}
        after = {
            name: self._folds[name].add(
                before[name], argument_of(aggregate, element.row, name=name, node=node), element.time, element.position
            )
            for name, aggregate in node.aggregates
        }
        names = [name for name, _ in self._keys]
        return Stepped(after, [{**dict(zip(names, self.key_of(element.row), strict=True)), **self.values(after)}])

    def _best(self, extreme: Extreme, state: Any, element: Arrived) -> tuple[Any, Any]:  # noqa: ANN401
        value = value_of(extreme.by, element.row, what=extreme.kind, node=self._node)
        if state is None or _is_better(value, state[0], most=extreme.kind == "max_by"):
            return value, dict(element.row)
        return state[0], state[1]

    def values(self, state: Any) -> dict[str, object]:  # noqa: ANN401
        """Return the results so far, or the element."""
        if self._running.extreme is not None:
            return {"element": state[1]}
        return {name: fold.result(state[name]) for name, fold in self._folds.items()}


def _is_better(value: Any, best: Any, *, most: bool) -> bool:  # noqa: ANN401
    """Return whether a value takes the place of the best one; null loses, NaN is greater than any number."""
    if value is None or best is None:
        return best is None and value is not None
    one, other = ((isinstance(each, float) and isnan(each), each) for each in (value, best))
    if one[0] or other[0]:
        return one[0] > other[0] if most else one[0] < other[0]
    return bool(value > best if most else value < best)
