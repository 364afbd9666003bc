"""Jobs over one stream, and the records that they would have left: made from their declarations, without an engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import tidemark as tm
from tidemark.graph.checks.schema_inference import state_columns
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.registry import encode, kind_of
from tidemark.graph.operators.state_names import ELEMENT_ORDER
from tidemark.graph.operators.window.node import WindowNode
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.model.stored_types import type_of_ddl
from tidemark.savepoints.model.verdict import OperatorVerdict, Verdict
from tidemark.semantics.watermarks.watermarks import SourceState
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OperatorState, StateFile

SCHEMA = "zone INT, borough STRING, fare DOUBLE, tip DECIMAL(8, 2), seats INT, at TIMESTAMP"
OFFSETS = 'v2\n{}\ntrips:{"logOffset":3}'

Declare = Callable[[tm.Stream], tm.Stream]


def trips(schema: str = SCHEMA, name: str = "trips") -> tm.Stream:
    """Return the stream that all operators here are over."""
    return tm.source(name, tm.from_elements([], schema=schema), watermarks=tm.ascending(timestamp="at"))


def job_of(*streams: tm.Stream) -> tm.Job:
    """Return a job whose outputs are these streams."""
    return tm.Job("taxi", outputs={f"out{number}": tm.memory(stream, f"out{number}") for number, stream in enumerate(streams)})


def node_of(stream: tm.Stream) -> WindowNode:
    """Return the window operator that a stream is the result of."""
    assert isinstance(stream.node, WindowNode)
    return stream.node


def operator_of(stream: tm.Stream) -> StatefulNode:
    """Return the operator that a stream is the result of."""
    assert isinstance(stream.node, StatefulNode)
    return stream.node


def stored_state(node: StatefulNode, **files: int) -> OperatorState:
    """Return what an operator would have stored, rows by table; the main one is called ``main``."""
    fields = [
        {"name": name, "type": type_of_ddl(kind or "") or {"type": "udt"}, "nullable": True, "metadata": {}}
        for name, kind in (state_columns(node) or {}).items()
    ]
    own = ["__tm_start"] if kind_of(node).keeps(node) == "partials" else [ELEMENT_ORDER, "__tm_start"]
    fields += [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in own]
    definition = json.loads(json.dumps({**encode(node), "schema": {"type": "struct", "fields": fields}}))
    found = [
        StateFile(f"state/{node.uid}/{part}.parquet", rows, 100, 0, 9, 3, "" if part == "main" else part)
        for part, rows in (files or {"main": 10}).items()
    ]
    return OperatorState(definition, tuple(found), 1_000)


def record_of(*streams: tm.Stream, offsets: str = OFFSETS, **files: int) -> EpochRecord:
    """Return the record of an epoch of a job with these operators."""
    nodes = [operator_of(stream) for stream in streams]
    progress = EpochProgress("taxi", "a1", 3, 0, 0, rows_in=0, rows_out=0)
    record = EpochRecord("taxi", "a1", None, 1, 3, 0, offsets, progress, sources={"trips": SourceState()})
    return replace(record, operators={str(node.uid): stored_state(node, **files) for node in nodes})


def judged(before: Declare, after: Declare, *, old: str = SCHEMA, new: str = SCHEMA, **maps: Any) -> OperatorVerdict:
    """Return the verdict on one operator that was declared one way over one stream, and is now another way over another."""
    found = whole(before(trips(old)), after(trips(new)), **maps)
    return found.operators[0]


def whole(before: tm.Stream, after: tm.Stream, **maps: Any) -> Verdict:
    """Return the verdict on a job with one operator."""
    return check_compatibility(record_of(before, **maps.pop("files", {})), job_of(after), **maps)


def columns(**names: str | None) -> Mapping[str, Mapping[str, str | None]]:
    """Return the map of columns of the operator ``w``."""
    return {"w": names}
