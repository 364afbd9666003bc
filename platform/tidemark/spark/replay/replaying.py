"""Runs a process function again over a past epoch of one key, in this process, where a debugger can stop in it.

Elements are read again from the job's sources, state and timers from its store as they were before the epoch. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.errors import ColumnError, DefinitionError, StateMismatchError
from tidemark.graph.job.job import Job, require_job
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import StatefulNode, walk
from tidemark.graph.operators.keyed_process.node import KeyedProcessNode
from tidemark.spark.env.session import session_of_job
from tidemark.spark.replay.job_line import JobLine, LineEpoch
from tidemark.spark.replay.key_replay import KeyReplay
from tidemark.spark.replay.replay_input import PastEpoch
from tidemark.spark.replay.replayed import Key, ReplayedEpoch
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.layout import job_folder
from tidemark.state.store.root_store import root_store
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    job: Job,
    uid: str,
    *,
    key: Key,
    epochs: int | Iterable[int] | None = None,
    store: str | JobStore | None = None,
    spark: SparkSession | None = None,
) -> tuple[ReplayedEpoch, ...]:
    """Run a process function again over past epochs of one key, in this process, and say what it did: why did this key fire?

    The function is the job's as it is now, so that a change can be tried on what happened: breakpoints in it are reached, and the
    differences say what it would have kept otherwise. Elements are read from the sources again; state, timers and broadcast maps are those
    before each epoch. Nothing is written.

    Args:
        job: the job.
        uid: of a process function of a keyed stream, with no other operator that keeps state before it.
        key: the values of the key's columns by name.
        epochs: which ones, of those that the job's log retains; the newest by default. Of a job that was restored or rewound an earlier
            number is that of the epoch that its state comes from.
        store: root of the job store; the job's own by default.
        spark: the session; by default the running one, or one on this machine.

    Raises:
        DefinitionError: the job has no such process function, or one behind another operator that keeps state.
        ColumnError: the key has other columns.
        StateMismatchError: the log retains no such epoch, or it is the job's first that is retained, or the job's state does not come
            from it, since the job was restored from an earlier one.
        EngineError: the input of an epoch cannot be read any more.
        Exception: whatever the function raises, unless it has ``on_error``.
    """
    require_job(job, "replay", call_site())
    node = _node_of(job, uid, key)
    root = root_store(store, job.store, make=False)
    folder = root.at(job_folder(job.name))
    session = session_of_job(job.name) if spark is None else spark
    log = JobLog(folder, job.name)
    found = _pasts(JobLine(log.epochs(), uid), job.name, uid, _wanted(epochs))
    pasts = ((PastEpoch(session, job, folder, each.before, each.record), each.names) for each in found)
    return tuple(KeyReplay(past, node, dict(key), names).run() for past, names in pasts)


def _wanted(epochs: int | Iterable[int] | None) -> list[int] | None:
    if epochs is None:
        return None
    return [epochs] if isinstance(epochs, int) else sorted(set(epochs))


def _node_of(job: Job, uid: str, key: object) -> KeyedProcessNode:
    nodes = {node.uid: node for node in job.nodes if isinstance(node, KeyedProcessNode)}
    if uid not in nodes:
        raise DefinitionError(
            f"there is no process function of a keyed stream {uid!r}",
            fix=f"name one of those there are: {', '.join(str(name) for name in nodes) or 'none'}",
            job=job.name,
            uid=uid,
        )
    node = nodes[uid]
    other = next((found for found in walk(node.inputs) if isinstance(found, StatefulNode)), None)
    if other is not None:
        raise DefinitionError(
            f"{uid!r} reads what {other.uid!r} makes, and only what comes from sources can be read again",
            fix="replay the first operator, or push its results into an OperatorHarness",
            job=job.name,
            uid=uid,
        )
    names = [name for name, _ in node.keys]
    if not isinstance(key, Mapping) or sorted(key) != sorted(names):
        given = f"has the columns {', '.join(key) or 'none'}" if isinstance(key, Mapping) else f"is {key!r}, which names no columns"
        raise ColumnError(
            f"the key {given}, and {uid!r} is keyed by {', '.join(names)}",
            fix=f"give key={{{', '.join(f'{name!r}: ...' for name in names)}}}",
            job=job.name,
            uid=uid,
        )
    return node


def _pasts(line: JobLine, job: str, uid: str, wanted: Sequence[int] | None) -> Iterator[LineEpoch]:
    """Yield the wanted epochs of a job's line; the newest that can be replayed where none is named."""
    known = line.replayable
    for number in wanted if wanted is not None else known[-1:] or [0]:
        found = line.epochs.get(number)
        if found is None or not found.can_be_replayed:
            shown = f"{known[0]} to {known[-1]}" if known else "none"
            raise StateMismatchError(
                f"epoch {number} cannot be replayed: {line.why_not(number)}",
                fix=f"choose one of those that can: {shown}",
                job=job,
                uid=uid,
            )
        yield found
