"""The schemas of stateful operators, by their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tidemark.graph.model.nodes import StatefulNode
from tidemark.spark.operators.asof_join.schemas import AsofJoinSchemas
from tidemark.spark.operators.base.schemas import OperatorSchemas
from tidemark.spark.operators.changelog.schemas import RowsSchemas
from tidemark.spark.operators.deduplicate.schemas import DeduplicateSchemas
from tidemark.spark.operators.elements.schemas import ElementSchemas
from tidemark.spark.operators.group_aggregate.schemas import GroupAggregateSchemas
from tidemark.spark.operators.interval_join.schemas import IntervalJoinSchemas
from tidemark.spark.operators.keyed_process.schemas import KeyedProcessSchemas
from tidemark.spark.operators.latest.runtime import frames_of
from tidemark.spark.operators.lookup.schemas import LookupSchemas
from tidemark.spark.operators.native_keyed.schemas import NativeKeyedSchemas
from tidemark.spark.operators.regular_join.schemas import RegularJoinSchemas
from tidemark.spark.operators.running.runtime import running_program
from tidemark.spark.operators.sql_state.programs import program_of
from tidemark.spark.operators.top_n.schemas import top_schemas
from tidemark.spark.operators.window.schemas import WindowSchemas
from tidemark.spark.operators.window_join.schemas import WindowJoinSchemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMAS: Final[Mapping[str, Callable[[Any, Mapping[str, DataFrame]], OperatorSchemas]]] = MappingProxyType(
    {
        "deduplicate": DeduplicateSchemas,
        "keyed_process": KeyedProcessSchemas,
        "connected_process": KeyedProcessSchemas,
        "broadcast_process": KeyedProcessSchemas,
        "element_process": ElementSchemas,
        "broadcast_element_process": ElementSchemas,
        "asof_join": AsofJoinSchemas,
        "lookup": LookupSchemas,
        "async_map": ElementSchemas,
        "regular_join": RegularJoinSchemas,
        "running": lambda node, inputs: NativeKeyedSchemas(running_program(node), inputs),
        "group_aggregate": GroupAggregateSchemas,
        "sql_state": lambda node, inputs: NativeKeyedSchemas(program_of(node), inputs),
        "latest": lambda node, inputs: RowsSchemas(frames_of(node), inputs),
        "top_n": top_schemas,
        "interval_join": IntervalJoinSchemas,
        "window_join": WindowJoinSchemas,
        "window": WindowSchemas,
    }
)


def schemas_of(node: StatefulNode, inputs: Mapping[str, DataFrame]) -> OperatorSchemas:
    """Return the columns of an operator.

    Args:
        node: the operator.
        inputs: empty frames with the columns of its inputs, including the engine's own, by port.
    """
    return _SCHEMAS[node.KIND](node, inputs)
