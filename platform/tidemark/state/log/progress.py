"""Progress of one epoch, as an object, a log line and a line of the job's history.

Everything in it comes from what was committed. Times are milliseconds since 1970-01-01 UTC, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tidemark.clock import format_ms
from tidemark.durations import short_duration
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.state.encoding.codec import added_field, added_mapping_field, from_jsonable, to_jsonable


@dataclass(frozen=True)
class SplitProgress:
    """One split of a source: rows in this epoch, its watermark, the greatest event time so far, and idleness."""

    rows: int
    watermark: int | None
    max_event_time: int | None
    idle: bool


@dataclass(frozen=True)
class SourceProgress:
    """One source: ``read = passed + malformed``. ``lag_ms`` is processing time minus watermark; ``held_by`` the split with the least."""

    rows_read: int
    rows_passed: int
    rows_malformed: int
    watermark: int | None
    lag_ms: int | None
    held_by: str | None
    splits: Mapping[str, SplitProgress] = field(default_factory=dict)


@dataclass(frozen=True)
class FilterProgress:
    """One filter or split: ``rows_in = rows_passed + rows_rejected``; ``rejects_to`` is the tag, if any."""

    rows_in: int
    rows_passed: int
    rows_rejected: int
    rejects_to: str | None = None


@dataclass(frozen=True)
class TransformProgress:
    """One transform: its input rows of the epoch, and its output rows, which may be fewer or more."""

    rows_in: int
    rows_out: int


PROCESS_FUNCTIONS: Final = frozenset({"keyed_process", "connected_process", "broadcast_process"})
"""The kinds of operators that are process functions."""

JUDGES_OF_LATENESS: Final = frozenset({"window", "deduplicate", "interval_join", "window_join", "asof_join"})
"""The kinds of operators to which rows may be late; to all others none ever is."""


@dataclass(frozen=True)
class LateWindow:
    """A window that late rows would have belonged to, the last one of each row: its bounds, milliseconds, and their number."""

    start: int
    end: int
    rows: int


@dataclass(frozen=True)
class OperatorProgress:
    """One stateful operator: ``rows_in = rows_accepted + rows_late +`` the sum of ``counters``.

    ``counters`` are further rows that were not accepted, by reason; windows have none. Those named by ``late_counters`` are late rows, such
    as those of either input of a join.

    ``late_windows`` are the starts of windows that late (not accepted) rows would have belonged to, the newest 100; where late rows are
    of very many windows, those that are more than 50,000 windows behind are the minutes, quarters, hours or days of their starts;
    ``refired_windows`` the starts of windows that fired a late pane, the newest 100. Of interval and as-of joins and of deduplications,
    which have no windows, both are times of rows, to the minute (of more than 100 minutes to the quarter or hour): of late rows, and of
    results that came, or were corrected, although the watermark had passed them before. ``windows_closed`` is how many windows, whatever
    the key, had their panes on time; of sessions, which are each key's own, how many in all.

    ``shortfalls``, by the counter of late rows, say how much more lateness would have kept them: of windows, joins by interval or window
    and deduplications, in epochs with late rows; none in records of earlier releases. ``most_late`` are the windows with the most late
    rows, most first. Where an epoch has late rows of very many keys, the rows of a window are at least as many.

    ``kind`` is the operator's. Of process functions: ``keys`` that keep anything, ``timers`` that wait, and what happened in the epoch:
    ``timers_fired``, ``state_expired`` (values, and entries of lists and maps), ``keys_emptied`` and ``keys_expired``, which keep nothing
    any more. Of changelogs with a lifetime both are the rows, or groups, that were dropped; ``expired`` of a join by input.
    """

    rows_in: int
    rows_accepted: int
    rows_late: int
    watermark: int | None
    panes_on_time: int
    panes_late: int
    state_rows: int
    state_bytes: int
    state_files: int
    late_to: str | None = None
    oldest_open_window: int | None = None
    late_windows: tuple[int, ...] = ()
    refired_windows: tuple[int, ...] = ()
    panes_early: int = added_field(0)
    windows_closed: int = added_field(0)
    counters: Mapping[str, int] = added_mapping_field()
    kind: str = added_field("window")
    keys: int = added_field(0)
    timers: int = added_field(0)
    timers_fired: int = added_field(0)
    state_expired: int = added_field(0)
    keys_emptied: int = added_field(0)
    keys_expired: int = added_field(0)
    expired: Mapping[str, int] = added_mapping_field()
    late_counters: tuple[str, ...] = added_field(())
    shortfalls: Mapping[str, Shortfalls] = added_mapping_field()
    most_late: tuple[LateWindow, ...] = added_field(())

    @property
    def late(self) -> int:
        """All late rows: ``rows_late``, and those that are counted by input."""
        return self.rows_late + sum(self.counters.get(name, 0) for name in self.late_counters)

    @property
    def is_process_function(self) -> bool:
        """Whether it is a process function, which has keys and timers, and to which no element is late."""
        return self.kind in PROCESS_FUNCTIONS


MissingEpochs = Literal["republish", "accept"]
"""How a run may handle epochs that an output's place no longer holds: publish them again, or continue without them."""


@dataclass(frozen=True)
class OutputRepair:
    """The repair of epochs that an output's place no longer held.

    ``how``: ``republished`` or ``accepted``. ``epoch`` is the one whose record has it, ``what`` says in words what was missing and why,
    ``epochs`` are those that were published again, or that stay missing: as far as they are known and retained then; none in records of
    earlier builds. ``lineages`` are those of the epochs that stay missing, in the same order; a single one is that of all.
    """

    how: Literal["republished", "accepted"]
    epoch: int
    what: str
    epochs: tuple[int, ...] = ()
    lineages: tuple[str, ...] = added_field(())

    @property
    def accepted(self) -> frozenset[tuple[str, int]]:
        """Lineages and numbers of the epochs that stay missing."""
        lineages = self.lineages * len(self.epochs) if len(self.lineages) == 1 else self.lineages
        return frozenset(zip(lineages, self.epochs, strict=False)) if self.how == "accepted" else frozenset()

    @classmethod
    def of_gap(cls, epoch: int, what: str, missing: Iterable[tuple[str, int]]) -> OutputRepair:
        """Return the repair of a gap that was accepted.

        Args:
            epoch: the one whose record has it.
            what: what was missing and why, in words.
            missing: lineages and numbers of the epochs.
        """
        found = tuple(dict.fromkeys(missing))
        lineages = tuple(lineage for lineage, _ in found)
        return cls("accepted", epoch, what, tuple(number for _, number in found), lineages[:1] if len(set(lineages)) == 1 else lineages)

    def __str__(self) -> str:
        """Return the repair as a line of text."""
        if self.how == "accepted":
            return f"gap accepted in epoch {self.epoch}: {self.what}"
        again = ", ".join(map(str, self.epochs)) or "none"
        return f"epochs published again in epoch {self.epoch}: {again}, since {self.what}"


@dataclass(frozen=True)
class OutputProgress:
    """One output: rows, files and bytes this epoch added to its sink, and the repair of epochs that its place had lost.

    ``changes`` of a changelog are its numbers of inserts, updates and deletes, by ``insert``, ``update`` and ``delete``.
    """

    rows: int
    files: int
    bytes: int
    sink: str
    location: str | None = None
    repair: OutputRepair | None = added_field(None)  # noqa: RUF009 - it returns a field
    changes: Mapping[str, int] = added_mapping_field()


@dataclass(frozen=True)
class EpochProgress:
    """One committed epoch.

    ``sources``, ``filters`` and ``transforms`` (by ``name``), ``operators`` (by uid), ``outputs`` (by output name); ``stages`` is
    milliseconds by stage. ``finished_at_start``, of histories and statuses alone: a driver committed it and ended before it had noted its
    publication; the next start published what of it was not published yet.
    """

    job: str
    lineage: str
    epoch: int
    processing_time: int
    duration_ms: int
    rows_in: int
    rows_out: int
    sources: Mapping[str, SourceProgress] = field(default_factory=dict)
    filters: Mapping[str, FilterProgress] = field(default_factory=dict)
    operators: Mapping[str, OperatorProgress] = field(default_factory=dict)
    outputs: Mapping[str, OutputProgress] = field(default_factory=dict)
    stages: Mapping[str, int] = field(default_factory=dict)
    spark_jobs: int = 0
    end_of_input: bool = False
    transforms: Mapping[str, TransformProgress] = added_mapping_field()
    finished_at_start: bool = added_field(False)

    @property
    def watermark(self) -> int | None:
        """The least watermark of the sources, none before the first."""
        marks = [source.watermark for source in self.sources.values()]
        known = [mark for mark in marks if mark is not None]
        return min(known) if marks and len(known) == len(marks) else None

    @property
    def rows_late(self) -> int:
        """Rows of this epoch that were late."""
        return sum(operator.late for operator in self.operators.values())

    @property
    def judges_of_lateness(self) -> tuple[str, ...]:
        """The uids of the operators to which rows may be late."""
        return tuple(uid for uid, operator in self.operators.items() if operator.kind in JUDGES_OF_LATENESS)

    @property
    def rows_judged(self) -> int:
        """Rows that these operators read in this epoch, of which ``rows_late`` are a share."""
        return sum(self.operators[uid].rows_in for uid in self.judges_of_lateness)

    @property
    def rows_malformed(self) -> int:
        """Rows of this epoch that a source could not parse or that had no timestamp."""
        return sum(source.rows_malformed for source in self.sources.values())


def encode_progress(progress: EpochProgress) -> dict[str, object]:
    """Return the progress as plain JSON."""
    plain: dict[str, object] = to_jsonable(progress)
    return plain


def decode_progress(plain: object, *, path: str) -> EpochProgress:
    """Return the progress from its plain JSON.

    Raises:
        CorruptStoreError: a field is missing, unknown or of another type; ``path`` says where it was stored.
    """
    return from_jsonable(EpochProgress, plain, path=path)


def finished_text(progress: EpochProgress) -> str:
    """Return in words that a start has finished the publication of an epoch.

    >>> finished_text(EpochProgress("taxi", "a1", 7, 1_000, 250, rows_in=1200, rows_out=24))
    'epoch 7 was committed by a driver that ended before its publication was noted; the next start published what was left of it'
    """
    return (
        f"epoch {progress.epoch} was committed by a driver that ended before its publication was noted; the next start published what was "
        "left of it"
    )


def format_progress(progress: EpochProgress) -> str:
    """Return the progress as one log line, with the numbers that are not zero.

    >>> format_progress(EpochProgress("taxi", "a1", 7, 1_000, 250, rows_in=1200, rows_out=24))
    'taxi epoch 7: in 1,200, out 24, watermark -, took 250ms'
    """
    files = sum(item.state_files for item in progress.operators.values())
    size = sum(item.state_bytes for item in progress.operators.values())
    lags = [source.lag_ms for source in progress.sources.values() if source.lag_ms is not None]
    parts = [f"in {progress.rows_in:,}", f"out {progress.rows_out:,}"]
    parts += [f"{name} {rows:,}" for name, rows in (("late", progress.rows_late), ("malformed", progress.rows_malformed)) if rows]
    parts.append(f"watermark {format_ms(progress.watermark)}")
    parts += [f"lag {short_duration(max(lags))}"] if lags else []
    parts += [f"state {sum(item.state_rows for item in progress.operators.values()):,} rows {size:,} B in {files} files"] if files else []
    stages = ", ".join(f"{name} {took}ms" for name, took in progress.stages.items())
    parts.append(f"took {short_duration(progress.duration_ms)}" + (f" ({stages})" if stages else ""))
    parts += ["end of input"] if progress.end_of_input else []
    return f"{progress.job} epoch {progress.epoch}: {', '.join(parts)}"
