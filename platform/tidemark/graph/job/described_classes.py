"""The classes that a described graph is made of, by name: nodes, sinks, sources, and what these are declared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

_MODULES: Final = (
    "tidemark.graph.connectors.iceberg.node",
    "tidemark.graph.connectors.kafka.spec",
    "tidemark.graph.connectors.postgres.node",
    "tidemark.graph.connectors.sql_table.node",
    "tidemark.graph.model.aggregates",
    "tidemark.graph.model.nodes",
    "tidemark.graph.model.postgres_changes_spec",
    "tidemark.graph.model.record_decoding",
    "tidemark.graph.model.schema",
    "tidemark.graph.model.source_specs",
    "tidemark.graph.operators.asof_join.node",
    "tidemark.graph.operators.async_map.node",
    "tidemark.graph.operators.broadcast",
    "tidemark.graph.operators.deduplicate.node",
    "tidemark.graph.operators.element_process.node",
    "tidemark.graph.operators.group_aggregate.node",
    "tidemark.graph.operators.interval_join.node",
    "tidemark.graph.operators.join_keys",
    "tidemark.graph.operators.keyed_process.descriptors",
    "tidemark.graph.operators.keyed_process.node",
    "tidemark.graph.operators.latest.node",
    "tidemark.graph.operators.lookup.node",
    "tidemark.graph.operators.regular_join.node",
    "tidemark.graph.operators.running.node",
    "tidemark.graph.operators.sql_state.node",
    "tidemark.graph.operators.top_n.node",
    "tidemark.graph.operators.window.node",
    "tidemark.graph.operators.window_join.node",
    "tidemark.semantics.async_map.calls",
    "tidemark.semantics.keyed_process.declarations",
    "tidemark.semantics.process.evictors",
    "tidemark.semantics.triggers.element_triggers",
    "tidemark.semantics.triggers.event_time_trigger",
    "tidemark.semantics.triggers.time_triggers",
    "tidemark.semantics.watermarks.watermark_generators",
    "tidemark.semantics.watermarks.watermark_strategy",
    "tidemark.semantics.windows.assigners",
    "tidemark.semantics.windows.local_windows",
)


@cache
def described_classes() -> Mapping[str, type]:
    """Return the classes by name. Modules are Tidemark's own, so that importing them runs no code of a job."""
    found: dict[str, type] = {}
    for name in _MODULES:
        module = import_module(name)
        found |= {
            each.__qualname__: each
            for each in vars(module).values()
            if isinstance(each, type) and is_dataclass(each) and each.__module__ == name
        }
    return MappingProxyType(found)
