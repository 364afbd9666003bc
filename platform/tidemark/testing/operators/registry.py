"""The implementation of each operator kind in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tidemark.graph.model.nodes import StatefulNode
from tidemark.testing.operators.async_map import PureAsyncMap
from tidemark.testing.operators.changelogs.group_aggregate import PureGroupAggregate
from tidemark.testing.operators.changelogs.latest import PureLatest
from tidemark.testing.operators.changelogs.top_n import PureTop
from tidemark.testing.operators.contract import Folds, PureOperator
from tidemark.testing.operators.deduplicate import PureDeduplicate
from tidemark.testing.operators.element_process import PureElementProcess
from tidemark.testing.operators.joins.asof_join import PureAsofJoin
from tidemark.testing.operators.joins.interval_join import PureIntervalJoin
from tidemark.testing.operators.joins.lookup import PureLookup
from tidemark.testing.operators.joins.regular_join import PureRegularJoin
from tidemark.testing.operators.joins.window_join import PureWindowJoin
from tidemark.testing.operators.keyed_process import PureKeyedProcess
from tidemark.testing.operators.running import PureRunning
from tidemark.testing.operators.sql_state import PureSqlState
from tidemark.testing.operators.window import PureWindows

_KINDS: Final[Mapping[str, Callable[[Any, Folds], PureOperator]]] = MappingProxyType(
    {
        "window": PureWindows,
        "deduplicate": PureDeduplicate,
        "keyed_process": PureKeyedProcess,
        "connected_process": PureKeyedProcess,
        "broadcast_process": PureKeyedProcess,
        "element_process": PureElementProcess,
        "broadcast_element_process": PureElementProcess,
        "asof_join": PureAsofJoin,
        "lookup": PureLookup,
        "async_map": PureAsyncMap,
        "regular_join": PureRegularJoin,
        "running": PureRunning,
        "group_aggregate": PureGroupAggregate,
        "sql_state": PureSqlState,
        "latest": PureLatest,
        "top_n": PureTop,
        "interval_join": PureIntervalJoin,
        "window_join": PureWindowJoin,
    }
)


def pure_operator(node: StatefulNode, folds: Folds) -> PureOperator:
    """Return an operator without Spark."""
    return _KINDS[node.KIND](node, folds)
