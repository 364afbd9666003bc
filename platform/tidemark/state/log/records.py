"""The records of the job log: terms and epochs, as plain data.

In memory an :class:`EpochRecord` always carries full lists of files; ``epoch_codec`` encodes them as small JSON.
Times are milliseconds since 1970-01-01 UTC, sizes are bytes, paths are relative to the job's folder unless said otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, SourceState
from tidemark.state.encoding.codec import added_field, added_mapping_field
from tidemark.state.log.progress import EpochProgress, OutputRepair
from tidemark.state.log.totals import Totals, empty_totals


@dataclass(frozen=True)
class StateFile:
    """One immutable Parquet file of an operator's state.

    ``min_time`` and ``max_time`` bound its time column, both inclusive, None where unknown; ``epoch`` is the one that wrote it.
    ``part`` says which of the operator's tables it belongs to, empty for its main one. ``owner`` is the job in whose folder it lies,
    in the same store, empty for the job whose record names it.
    """

    path: str
    rows: int
    bytes: int
    min_time: int | None
    max_time: int | None
    epoch: int
    part: str = added_field("")
    owner: str = added_field("")


@dataclass(frozen=True)
class OperatorState:
    """The state of one stateful operator.

    ``definition`` is plain JSON: keys, aggregates, assigner, the DDL of the state's columns. ``files`` are the live state
    files; they are kept sorted by (epoch, path), so that a restored operator reads them in the order a running one does.
    ``counters`` are running numbers that the operator maintains.
    """

    definition: Mapping[str, object]
    files: tuple[StateFile, ...] = ()
    watermark: int = MIN_WATERMARK
    counters: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Put the files into their one order."""
        object.__setattr__(self, "files", tuple(sorted(self.files, key=lambda file: (file.epoch, file.path))))


@dataclass(frozen=True)
class StagedFile:
    """One file written for a sink but visible only once published.

    ``path`` is relative to the sink's location; ``stats`` are Delta's column statistics, None where not collected.
    """

    path: str
    rows: int
    bytes: int
    stats: Mapping[str, object] | None = None


@dataclass(frozen=True)
class SinkPosition:
    """The position of an output's place after the epoch before was published.

    ``table`` is the table's id (Delta's ``metaData.id``), ``version`` its version (of a folder of Parquet files: how many times the job has
    published to it), -1 if there was none. ``entry`` is the checksum of that version's log entry, empty if it is not known (of a folder:
    ``gone`` if it was accepted that the newest rows' files are missing). ``lineage`` and ``epoch`` are those of the newest rows of the job,
    -1 if there were none; all versions from ``since`` on hold them.
    """

    table: str = ""
    version: int = -1
    entry: str = ""
    lineage: str = ""
    epoch: int = -1
    since: int = -1


FOLDER_SINKS: Final = frozenset({"delta", "parquet"})
"""Kinds of sinks whose location is a folder."""


ROW_KEYS: Final = "keys"
"""The option of an output's record with the columns by which rows replace older ones, as JSON."""


def row_keys_option(keys: Sequence[str]) -> dict[str, str]:
    """Return the option with the columns by which rows of an output replace older ones; none where there are no such columns."""
    return {ROW_KEYS: json.dumps(list(keys))} if keys else {}


def row_keys_of(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that ``row_keys_option`` stored; empty where it stored none."""
    return tuple(json.loads(options.get(ROW_KEYS, "[]")))


@dataclass(frozen=True)
class OutputRecord:
    """The part of one epoch for one output: enough to publish it again without Spark's data.

    ``rows`` are those that the job gave the output; where newer rows replace older ones, the files hold the newest of each key.
    ``sink`` is the sink's kind (``delta``, ``parquet``, ``console``, ``memory``, or a connector's), ``schema`` Spark's JSON text of the
    rows' type, ``options`` further settings of the sink. ``before`` is the place's position after the epoch before was published, None if
    it is not known, as in records of earlier releases. ``repairs`` are the newest repairs of missing epochs.
    """

    sink: str
    location: str | None = None
    schema: str | None = None
    files: tuple[StagedFile, ...] = ()
    rows: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    before: SinkPosition | None = added_field(None)  # noqa: RUF009 - it returns a field
    repairs: tuple[OutputRepair, ...] = added_field(())

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The columns by which rows replace older ones; empty where all are added, or where it is not known.

        It is not known of topics, and after an epoch without rows, in records of earlier releases.
        """
        return row_keys_of(self.options)


@dataclass(frozen=True)
class OwnerInfo:
    """The process that drives a job.

    ``started`` is an opaque token of the process's start, so that a reused pid is not mistaken for it; empty if the system
    has none. ``run_id`` identifies the run, such as a Dagster run id.
    """

    host: str
    pid: int
    started: str = ""
    run_id: str = ""


@dataclass(frozen=True)
class TermRecord:
    """A driver's claim on the job: from its slot on only this term may append.

    ``takeover_of`` is the term that still had a fresh heartbeat and was taken over on purpose. ``token`` is random, so that two
    claims made in the same millisecond by one process differ.
    """

    term: int
    owner: OwnerInfo
    taken_at: int
    takeover_of: int | None = None
    token: str = ""


@dataclass(frozen=True)
class ParentRef:
    """The epoch that a lineage was started from."""

    lineage: str
    epoch: int


@dataclass(frozen=True)
class RestoreRef:
    """The restore that a lineage began with: its identity, so that it is made once, and the savepoint with the job that owns it.

    ``uids`` and ``columns`` are the names that it gave: of operators, new by stored ones, and of columns and states, by the operator's new
    uid, None for what was discarded. There are none in records of earlier releases.
    """

    identity: str
    job: str
    savepoint: str
    uids: Mapping[str, str] = added_mapping_field()
    columns: Mapping[str, Mapping[str, str | None]] = added_mapping_field()


@dataclass(frozen=True)
class SourceLogFile:
    """One file of a source's own log.

    ``name`` is its name in Spark's ``sources/<n>/`` (``7``, ``9.compact``), ``path`` where the job's folder keeps the copy.
    A path must never be written twice with different content: put the term or the checksum into it.
    """

    name: str
    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SourceLogRef:
    """The files, oldest first, that a source's log needs to resume from the epoch's offsets."""

    files: tuple[SourceLogFile, ...] = ()


@dataclass(frozen=True)
class EpochRecord:
    """The commit of one epoch, and its checkpoint: all that is needed to resume after it.

    ``offsets`` is the raw text of Spark's offset-log entry, empty before the first. ``sources`` and ``source_logs`` are by source
    name, ``operators`` by uid, ``outputs`` by output name. ``totals`` are counts since the lineage's origin. ``restored`` says
    which restore the lineage began with; its first record repeats an epoch of the parent's, and adds nothing to the outputs.
    ``topics`` are the ids of the Kafka topics that the offsets are of, by source and topic, each as ``CLUSTER/ID``; none where the brokers
    have no ids, and in records of earlier releases.
    """

    job: str
    lineage: str
    parent: ParentRef | None
    term: int
    epoch: int
    processing_time: int
    offsets: str
    progress: EpochProgress
    source_logs: Mapping[str, SourceLogRef] = field(default_factory=dict)
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    operators: Mapping[str, OperatorState] = field(default_factory=dict)
    outputs: Mapping[str, OutputRecord] = field(default_factory=dict)
    totals: Totals = field(default_factory=empty_totals)
    code_version: str = ""
    end_of_input: bool = False
    restored: RestoreRef | None = added_field(None)  # noqa: RUF009 - it returns a field
    topics: Mapping[str, Mapping[str, str]] = added_mapping_field()
