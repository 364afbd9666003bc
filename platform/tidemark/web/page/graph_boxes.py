"""The graph in the document of a job's page: boxes with rates, late rows, state and lag, and the edges between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tidemark.control.model.view import UNHEALTHY
from tidemark.control.view.view_builder import lag_until, recent_load
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.state.status.driver_load import EPOCHS
from tidemark.state.status.job_graph import GraphNode, JobGraph
from tidemark.web.page.facts import JobFacts
from tidemark.web.page.flow import NodeRows, graph_of_progress, sources_of, sum_of_epochs

NOT_STORED: Final = (
    "No driver of this release has started the job yet, so the edges of its graph are not known; the next start stores them."
)
NEVER_RAN: Final = "The job has not run yet: its graph is known after its first start."


def graph_of_page(facts: JobFacts) -> dict[str, object]:
    """Return the graph of a job's page: ``nodes``, ``edges``, and a ``note`` if it is not whole."""
    last = facts.epochs[-1] if facts.epochs else None
    graph = facts.graph or graph_of_progress(facts.view.job, last)
    load = facts.observation.driver.load if facts.observation.driver is not None else None
    recent = facts.epochs[-(load.epochs if load is not None else EPOCHS) :]
    rows = sum_of_epochs(graph, recent)
    return {
        "note": "" if facts.graph is not None else NOT_STORED if last is not None else NEVER_RAN,
        "code_version": graph.code_version,
        "nodes": [_box(facts, graph, node, rows[node.id], last) for node in graph.nodes],
        "edges": [{"start": edge.start, "end": edge.end, "tag": edge.tag} for edge in graph.edges],
    }


def _box(facts: JobFacts, graph: JobGraph, node: GraphNode, rows: NodeRows, last: EpochProgress | None) -> dict[str, object]:
    operator = last.operators.get(node.name) if last is not None and node.role == "operator" else None
    per_second = _rates(facts, rows)
    return {
        "id": node.id,
        "role": node.role,
        "name": node.name,
        "kind": node.kind,
        "text": node.text,
        "detail": node.detail,
        "description": node.description,
        "rows_in": rows.rows_in,
        "rows_out": rows.rows_out,
        "in_per_second": per_second[0],
        "out_per_second": per_second[1],
        "late": rows.late,
        "lag_ms": _lag(facts, node, operator, last),
        "watermark": _watermark(facts, node, operator),
        "held_by": _held_by(facts, graph, node),
        "state": None if operator is None else _state(operator),
    }


def _rates(facts: JobFacts, rows: NodeRows) -> tuple[float | None, float | None]:
    """Return the rows per second into and out of a node, as ``JobView.rows_per_second``; None while no driver reports a load."""
    driver = facts.observation.driver
    if driver is None or driver.load is None:
        return None, None
    load = replace(driver.load, rows_in=rows.rows_in or 0, rows_out=rows.rows_out or 0)
    found = recent_load(facts.observation, load, facts.view.at)
    if found is None:
        return None, None
    return (found.rows_in if rows.rows_in is not None else None), (found.rows_out if rows.rows_out is not None else None)


def _watermark(facts: JobFacts, node: GraphNode, operator: OperatorProgress | None) -> int | None:
    if node.role == "source" and node.name in facts.view.sources:
        return facts.view.sources[node.name].watermark
    return operator.watermark if operator is not None else None


def _lag(facts: JobFacts, node: GraphNode, operator: OperatorProgress | None, last: EpochProgress | None) -> int | None:
    """Return the lag of a source or an operator: processing time minus watermark, as ``JobView.lag_ms``."""
    view = facts.view
    if node.role == "source" and node.name in view.sources:
        return view.sources[node.name].lag_ms
    if operator is None or last is None or operator.watermark is None or last.end_of_input:
        return None
    behind = view.health in UNHEALTHY or view.pressure.busy_since is not None
    return lag_until(operator.watermark, last.processing_time - operator.watermark, view.at if behind else None)


def _held_by(facts: JobFacts, graph: JobGraph, node: GraphNode) -> str:
    """Return the source, and its split, that holds a node's watermark back; empty for nodes without one, and where all inputs are idle."""
    if node.role not in {"source", "operator"}:
        return ""
    reached = sources_of(graph, node.id)
    names = [each.name for each in graph.nodes if each.id in reached and each.name in facts.view.sources]
    active = [name for name in names if not _is_idle(facts, name)]
    if not active:
        return ""
    holder = min(active, key=lambda name: _order(facts.view.sources[name].watermark))
    split = facts.view.sources[holder].held_by
    parts: Iterable[str] = (f"source {holder}" if len(names) > 1 else "", f"split {split}" if split else "")
    return ", ".join(filter(None, parts))


def _is_idle(facts: JobFacts, source: str) -> bool:
    splits = facts.view.sources[source].splits.values()
    return bool(splits) and all(split.idle for split in splits)


def _order(watermark: int | None) -> tuple[bool, int]:
    """Return what to sort watermarks by: none yet is the least."""
    return watermark is not None, watermark or 0


def _state(operator: OperatorProgress) -> dict[str, object]:
    return {
        "rows": operator.state_rows,
        "bytes": operator.state_bytes,
        "files": operator.state_files,
        "keys": operator.keys if operator.is_process_function else None,
        "timers": operator.timers if operator.is_process_function else None,
        "oldest_open_window": operator.oldest_open_window,
    }
