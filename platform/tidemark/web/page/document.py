"""The document of a job's page: all that it shows, as plain JSON. Pure.

Times are milliseconds since 1970-01-01 UTC, sizes are bytes, rates are rows per second; None is what is not known.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Final

from tidemark.control.model.view import AlertView, Backpressure, JobView, SourceView
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.encoding.redaction import redacted
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.state.status.driver_load import Backlog
from tidemark.web.page.facts import JobFacts, SavepointLine
from tidemark.web.page.graph_boxes import graph_of_page

LATE: Final = "late"
REJECTED: Final = "rejected"
MALFORMED: Final = "malformed"
"""Counters in a job's totals."""

FORMAT: Final = 1
"""The version of the document's form."""

STAGES: Final = ("absorb", "count", "watermarks", "fire", "output", "check", "publish", "upkeep")
"""The stages of an epoch in order, as the engine names them; ``absorb``, ``fire`` and ``output`` are followed by what they are of."""

_SLOWEST: Final = 3
"""How many of an epoch's longest stages are named in full."""

_BAD_STATES: Final = frozenset({"dead", "failed", "damaged"})
_TONES: Final[Mapping[str, str]] = {
    "ok": "good",
    "starting": "busy",
    "stopped": "off",
    "failing": "warn",
    "unwatched": "warn",
    "hung": "bad",
    "silent": "bad",
    "failed": "bad",
    "damaged": "bad",
}


def job_page(facts: JobFacts) -> dict[str, object]:
    """Return the document of a job's page.

    ``at`` is when it was made; all else changes only with the job, or while a lag grows (``tag_of``).
    """
    view = facts.view
    last = facts.epochs[-1] if facts.epochs else None
    return {
        "format": FORMAT,
        "at": view.at,
        "job": view.job,
        "description": facts.graph.description if facts.graph is not None else "",
        "state": view.state,
        "health": view.health,
        "tone": tone_of(view),
        "since": view.since,
        "reason": view.reason,
        "advice": view.advice,
        "warning": view.warning,
        "error": {"code": view.error.code, "message": redacted(view.error.message)} if view.error is not None else None,
        "problems": list(facts.problems),
        "driver": _driver(view),
        "epoch": {"number": view.epoch, "at": view.epoch_at, "took_ms": view.epoch_ms, "lineage": view.lineage},
        "watermark": view.watermark,
        "lag_ms": view.lag_ms,
        "rows": {
            **to_jsonable(view.rows),
            "per_second": view.rows_per_second,
            "out_per_second": view.rows_out_per_second,
        },
        "state_size": {"rows": view.state_rows, "bytes": view.state_bytes, "files": view.state_files},
        "graph": graph_of_page(facts),
        "sources": [_source(name, source, view.pressure, last) for name, source in view.sources.items()],
        "pressure": _pressure(facts),
        "stages": _stages(facts.epochs),
        "epochs": [_epoch(epoch) for epoch in facts.epochs],
        "refused": list(_refused(facts)),
        "alerts": [_alert(item) for item in view.alerts],
        "savepoints": [_savepoint(line) for line in facts.savepoints],
        "savepoints_in_all": facts.savepoints_in_all,
        "changes": [{**to_jsonable(change), "what": redacted(change.what)} for change in reversed(facts.changes)],
        "generation": _generation(view),
        "commands": [{"what": what, "command": command} for what, command in _commands(view, facts.store)],
    }


def tag_of(document: Mapping[str, object]) -> str:
    """Return an entity tag of a document: the same for documents that differ only in when they were made."""
    plain = {key: value for key, value in document.items() if key != "at"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]


def tone_of(view: JobView) -> str:
    """Return how a job's state is coloured: ``good``, ``busy``, ``off``, ``warn`` or ``bad``."""
    return "bad" if view.state in _BAD_STATES else _TONES[view.health]


def _driver(view: JobView) -> dict[str, object]:
    process = view.process
    return {
        "attempt": view.attempt,
        "host": process.host if process is not None else None,
        "pid": process.pid if process is not None else None,
        "application": process.application if process is not None else None,
        "process": view.process_state,
        "heartbeat_at": view.heartbeat_at,
        "started_at": view.started_at,
        "restarts": view.restarts_done,
        "next_start_at": view.next_start_at,
        "starting": view.start.stage if view.start is not None and view.health == "starting" else "",
        "standby": str(view.standby) if view.standby is not None else "",
    }


def _source(name: str, source: SourceView, pressure: Backpressure, last: EpochProgress | None) -> dict[str, object]:
    waiting = pressure.waiting.get(name)
    progress = last.sources.get(name) if last is not None else None
    return {
        "name": name,
        "watermark": source.watermark,
        "lag_ms": source.lag_ms,
        "held_by": source.held_by,
        "bound_ms": source.bound_ms,
        "rows": source.rows_read,
        "malformed": source.rows_malformed,
        "waiting": _backlog(waiting),
        "splits": [
            {
                "name": split,
                "watermark": at.watermark,
                "lag_ms": at.lag_ms,
                "idle": at.idle,
                "holds": split == source.held_by,
                "rows": progress.splits[split].rows if progress is not None and split in progress.splits else None,
                "waiting_rows": waiting.splits.get(split) if waiting is not None else None,
            }
            for split, at in source.splits.items()
            if split
        ],
    }


def _backlog(waiting: Backlog | None) -> dict[str, int | None] | None:
    return {"files": waiting.files, "rows": waiting.rows, "bytes": waiting.bytes} if waiting is not None else None


def _pressure(facts: JobFacts) -> dict[str, object]:
    view, pressure = facts.view, facts.view.pressure
    driver = facts.observation.driver
    load = driver.load if driver is not None else None
    return {
        "busy_share": pressure.busy_share,
        "busy_since": pressure.busy_since,
        "polled_at": pressure.looked_at,
        "intake": pressure.intake,
        "adaptive": view.spec.adaptive_intake if view.spec is not None else False,
        "trigger_ms": load.trigger_ms if load is not None else view.spec.trigger_ms if view.spec is not None else None,
        "epoch_ms": load.epoch_ms if load is not None else None,
        "catch_up_ms": pressure.catch_up_ms,
        "files": pressure.waiting_files,
        "rows": pressure.waiting_rows,
        "bytes": pressure.waiting_bytes,
    }


def _epoch(epoch: EpochProgress) -> dict[str, object]:
    return {
        "epoch": epoch.epoch,
        "lineage": epoch.lineage,
        "at": epoch.processing_time,
        "took_ms": epoch.duration_ms,
        "rows_in": epoch.rows_in,
        "rows_out": epoch.rows_out,
        "late": epoch.rows_late,
        "malformed": epoch.rows_malformed,
        "rejected": sum(item.rows_rejected for item in epoch.filters.values()),
        "watermark": epoch.watermark,
        "lag_ms": max((source.lag_ms for source in epoch.sources.values() if source.lag_ms is not None), default=None),
        "stages": _by_stage(epoch),
        "slowest": [list(item) for item in nlargest(_SLOWEST, epoch.stages.items(), key=itemgetter(1))],
    }


def _by_stage(epoch: EpochProgress) -> dict[str, int]:
    """Return the milliseconds of an epoch's stages; those of single operators and outputs are added up: ``fire hourly`` is of ``fire``."""
    found = dict.fromkeys(STAGES, 0)
    for name, took in epoch.stages.items():
        stage = name.partition(" ")[0]
        found[stage] = found.get(stage, 0) + took
    return found


def _stages(epochs: Sequence[EpochProgress]) -> list[str]:
    """Return the names of the stages that took time, in the order in which an epoch passes them."""
    found = dict.fromkeys(stage for epoch in epochs for stage, took in _by_stage(epoch).items() if took)
    return sorted(found, key=lambda stage: STAGES.index(stage) if stage in STAGES else len(STAGES))


def _refused(facts: JobFacts) -> Iterator[dict[str, object]]:
    """Yield the rows that nodes did not accept, by node and reason, with the side output that has them, if any."""
    epochs = facts.epochs
    last = epochs[-1] if epochs else None
    for name, counts in facts.view.totals["sources"].items():
        recent = sum(epoch.sources[name].rows_malformed for epoch in epochs if name in epoch.sources)
        yield {"role": "source", "name": name, **_refusal(counts, MALFORMED, recent, to=_malformed_to(facts, name), is_loss=True)}
    for name, counts in facts.view.totals["filters"].items():
        recent = sum(epoch.filters[name].rows_rejected for epoch in epochs if name in epoch.filters)
        tag = last.filters[name].rejects_to if last is not None and name in last.filters else None
        yield {"role": "filter", "name": name, **_refusal(counts, REJECTED, recent, to=tag)}
    for uid, counts in facts.view.totals["operators"].items():
        now = last.operators.get(uid) if last is not None else None
        for reason in sorted(counts.keys() - {"in", "accepted"}):
            recent = sum(_not_accepted(epoch.operators[uid], reason) for epoch in epochs if uid in epoch.operators)
            is_late = reason == LATE or (now is not None and reason in now.late_counters)
            to = now.late_to if now is not None and reason == LATE else None
            yield {"role": "operator", "name": uid, **_refusal(counts, reason, recent, to=to, is_loss=is_late)}


def _refusal(counts: Mapping[str, int], reason: str, recent: int, *, to: str | None, is_loss: bool = False) -> dict[str, object]:
    """Return a reason with its rows in all and in the newest epochs; ``is_loss`` says of late and malformed rows that nobody chose it."""
    return {"reason": reason, "total": counts.get(reason, 0), "recent": recent, "to": to or "", "is_loss": is_loss}


def _not_accepted(operator: OperatorProgress, reason: str) -> int:
    return operator.rows_late if reason == LATE else operator.counters.get(reason, 0)


def _malformed_to(facts: JobFacts, source: str) -> str | None:
    """Return the tag of a source's side output, if the job uses it."""
    graph = facts.graph
    ids = {node.id for node in graph.nodes if node.role == "source" and node.name == source} if graph is not None else set()
    return next((edge.tag for edge in graph.edges if edge.tag and edge.start in ids), None) if graph is not None else None


def _alert(item: AlertView) -> dict[str, object]:
    return {**to_jsonable(item), "text": redacted(item.text)}


def _savepoint(line: SavepointLine) -> dict[str, object]:
    outline, info = line.outline, line.info
    return {
        "name": outline.name,
        "taken_at": outline.pinned_at,
        "epoch": outline.epoch,
        "lineage": outline.lineage,
        "kind": info.kind,
        "by": info.by,
        "note": redacted(info.note),
        "state_rows": info.state_rows,
        "state_bytes": info.state_bytes,
    }


def _generation(view: JobView) -> dict[str, object] | None:
    """Return the newest generation of a submitted job: the code it wants, what it began with, and its newest upgrade."""
    spec, upgrade = view.spec, view.upgrade
    if spec is None:
        return None
    origin = spec.origin
    return {
        "number": view.generation,
        "seen": view.generation_seen,
        "wanted": spec.wanted,
        "code": spec.code,
        "version": spec.version,
        "fork_of": {"job": origin.job, "savepoint": origin.restore.savepoint} if origin is not None else None,
        "restored_from": spec.restore.savepoint if spec.restore is not None else "",
        "upgrade": None
        if upgrade is None
        else {"text": upgrade.text, "step": upgrade.step, "at": upgrade.at, "ended": upgrade.ended, "trouble": redacted(upgrade.trouble)},
    }


def _commands(view: JobView, store: str | None) -> Iterator[tuple[str, str]]:
    """Yield commands with what they do: those that are natural in the job's state."""
    job = view.job + (f" --store {shlex.quote(store)}" if store is not None else "")
    if view.epoch is not None:
        yield "take a savepoint", f"tidemark savepoint trigger {job}"
    if view.spec is not None:
        if view.spec.wanted == "running" and view.state not in {"failed", "finished"}:
            yield "stop after the current epoch", f"tidemark stop {job}"
            yield "restart the driver", f"tidemark restart {job}"
        else:
            yield "start", f"tidemark start {job}"
        yield "follow the driver's log", f"tidemark logs {job} --follow"
    yield "show the newest epochs", f"tidemark history {job}"
