"""The runtimes of stateful operators, by their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from tidemark.errors import UserCodeError
from tidemark.graph.model.nodes import StatefulNode
from tidemark.spark.operators.asof_join.runtime import AsofJoinRuntime
from tidemark.spark.operators.async_map.runtime import AsyncMapRuntime
from tidemark.spark.operators.base.contract import OperatorRuntime
from tidemark.spark.operators.deduplicate.runtime import DeduplicateRuntime
from tidemark.spark.operators.element_process.runtime import ElementProcessRuntime
from tidemark.spark.operators.group_aggregate.runtime import GroupAggregateRuntime
from tidemark.spark.operators.interval_join.runtime import IntervalJoinRuntime
from tidemark.spark.operators.keyed_process.runtime import KeyedProcessRuntime
from tidemark.spark.operators.latest.runtime import LatestRuntime
from tidemark.spark.operators.lookup.runtime import LookupRuntime
from tidemark.spark.operators.registry.sendable import check_sendable
from tidemark.spark.operators.regular_join.runtime import RegularJoinRuntime
from tidemark.spark.operators.running.runtime import running_runtime
from tidemark.spark.operators.sql_state.runtime import sql_state_runtime
from tidemark.spark.operators.top_n.runtime import top_runtime
from tidemark.spark.operators.window.runtimes import window_runtime_of
from tidemark.spark.operators.window_join.runtime import WindowJoinRuntime

_RUNTIMES: Final[Mapping[str, Callable[[Any], OperatorRuntime]]] = MappingProxyType(
    {
        "deduplicate": DeduplicateRuntime,
        "keyed_process": KeyedProcessRuntime,
        "connected_process": KeyedProcessRuntime,
        "broadcast_process": KeyedProcessRuntime,
        "element_process": ElementProcessRuntime,
        "broadcast_element_process": ElementProcessRuntime,
        "asof_join": AsofJoinRuntime,
        "lookup": LookupRuntime,
        "async_map": AsyncMapRuntime,
        "regular_join": RegularJoinRuntime,
        "running": running_runtime,
        "group_aggregate": GroupAggregateRuntime,
        "sql_state": sql_state_runtime,
        "latest": LatestRuntime,
        "top_n": top_runtime,
        "interval_join": IntervalJoinRuntime,
        "window_join": WindowJoinRuntime,
        "window": window_runtime_of,
    }
)


def runtime_of(node: StatefulNode) -> OperatorRuntime:
    """Return the runtime of an operator."""
    return _RUNTIMES[node.KIND](node)


def runtimes_of(nodes: Iterable[StatefulNode], *, job: str) -> dict[int, OperatorRuntime]:
    """Return the runtimes of a job's operators for a run, by ``id(node)``.

    Raises:
        UserCodeError: a function cannot be sent to workers.
    """
    found = {}
    for node in nodes:
        try:
            check_sendable(node)
        except UserCodeError as error:
            raise error.with_job(job) from error.__cause__
        found[id(node)] = runtime_of(node)
    return found
