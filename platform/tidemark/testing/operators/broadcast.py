"""The map that a broadcast stream writes, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.broadcast import BroadcastSpec
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.testing.arrow_types import arrow_schema
from tidemark.testing.operators.contract import Row, value_of


def written_map(
    node: StatefulNode, spec: BroadcastSpec, entries: dict[object, dict[str, object]], rows: Iterable[Row]
) -> Mapping[str, Mapping[Any, Any]]:
    """Apply an epoch's rows of the stream to the entries, which are changed; return the map by its name, as functions read it."""
    names = arrow_schema(spec.value).names
    for row in rows:
        key = value_of(spec.key, row, what="the broadcast key", node=node)
        if spec.removes is not None and value_of(spec.removes, row, what="broadcast removes", node=node) is True:
            entries.pop(key, None)
        else:
            entries[key] = {name: row.get(name) for name in names}
    # Values that were restored may lack columns that the map has now.
    for key in [key for key, value in entries.items() if list(value) != names]:
        entries[key] = {name: entries[key].get(name) for name in names}
    return read_only({spec.name: entries})
