"""A reference of the contract, one element at a time: sources with their watermarks, one keyed window operator, epoch by epoch.

Tests compare the engine with it. Its input is the elements of each epoch; its output is everything the contract says about the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from tidemark.errors import DefinitionError
from tidemark.semantics.process.evictors import Evictor
from tidemark.semantics.process.window_function_calls import WindowFunction
from tidemark.semantics.reference.reference_counts import CountOperator
from tidemark.semantics.reference.reference_operator import OpenWindow, Operator, WindowOperator
from tidemark.semantics.reference.reference_results import Accumulator, Element, Fold, Results
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.triggers.triggers import Trigger
from tidemark.semantics.watermarks.event_time import epoch_processing_time, malformed_reason
from tidemark.semantics.watermarks.source_state import SourceState, SplitObservation
from tidemark.semantics.watermarks.watermark_progress import advance, end_of_input, operator_watermark
from tidemark.semantics.watermarks.watermark_strategy import MIN_WATERMARK, WatermarkStrategy
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import WindowAssigner


@dataclass(frozen=True)
class ReferenceJob(Generic[Accumulator]):
    """Sources by name, united, keyed, windowed, and aggregated or processed.

    With a ``fold`` a pane's result is the fold's; with a ``function`` the tuple of its rows, over all elements, or, if there is a fold
    too, over the fold's result as one row. ``trigger`` and ``evictor`` as for ``WindowOperator``; count windows have neither. ``key_names``
    are those of ``context.key``, which is empty without them.
    """

    sources: Mapping[str, WatermarkStrategy]
    assigner: WindowAssigner
    fold: Fold[Accumulator] | None = None
    allowed_lateness_ms: int = 0
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    function: WindowFunction | None = None
    key_names: tuple[str, ...] = ()

    def operator(self) -> Operator:
        """Return the operator before the first epoch.

        Raises:
            DefinitionError: settings that do not go together.
        """
        results = Results(self.fold, self.function, key_names=self.key_names, merging=self.assigner.merging)
        if not isinstance(self.assigner, CountWindows):
            return WindowOperator(
                self.assigner, results, allowed_lateness_ms=self.allowed_lateness_ms, trigger=self.trigger, evictor=self.evictor
            )
        if self.trigger is not None or self.evictor is not None or self.allowed_lateness_ms:
            raise DefinitionError("count windows have no trigger, no evictor and no lateness", fix="use global windows")
        return CountOperator(self.assigner, results)


@dataclass(frozen=True)
class Epoch:
    """The input of one epoch.

    ``processing_time`` is the clock's time; ``behind`` names the sources that were not read to their end; ``end_of_input`` says that
    nothing comes after this epoch's elements.
    """

    elements: tuple[Element, ...] = ()
    processing_time: int = 0
    behind: frozenset[str] = frozenset()
    end_of_input: bool = False


@dataclass(frozen=True)
class Malformed:
    """An element that its source found malformed, and why."""

    element: Element
    reason: str


@dataclass(frozen=True)
class SourceCounts:
    """Counts of one source and epoch: ``read = passed + malformed``."""

    read: int
    passed: int
    malformed: int


@dataclass(frozen=True)
class OperatorCounts:
    """Counts of the operator and one epoch: ``rows_in = accepted + late``."""

    rows_in: int
    accepted: int
    late: int


@dataclass(frozen=True)
class EpochResult:
    """The result of an epoch.

    ``late`` and ``malformed`` are in the order the elements were processed and read; ``sources`` and ``watermark``, the operator's in the
    domain of its windows, are as they are after the epoch; ``open_windows`` is the operator's state once expired windows are dropped.
    """

    processing_time: int
    panes: tuple[Pane, ...]
    late: tuple[Element, ...]
    malformed: tuple[Malformed, ...]
    counts: OperatorCounts
    source_counts: Mapping[str, SourceCounts]
    sources: Mapping[str, SourceState]
    watermark: int
    open_windows: tuple[OpenWindow, ...]

    @property
    def source_watermarks(self) -> Mapping[str, int]:
        """The watermark of each source after the epoch."""
        return {name: state.watermark for name, state in self.sources.items()}


@dataclass
class _SourceEpoch:
    """The input of one source in one epoch, while it is read."""

    good: list[tuple[Element, int]] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)

    def observations(self, metrics: Iterable[str]) -> dict[str, SplitObservation]:
        names = tuple(metrics)
        by_split: dict[str, list[tuple[Element, int]]] = {}
        for element, timestamp in self.good:
            by_split.setdefault(element.split, []).append((element, timestamp))
        return {
            split: SplitObservation(
                rows=len(rows),
                max_event_time=max(timestamp for _, timestamp in rows),
                metrics={name: max((e.marks[name] for e, _ in rows if name in e.marks), default=None) for name in names},
            )
            for split, rows in by_split.items()
        }


class ReferenceRun(Generic[Accumulator]):
    """A job between two epochs: the watermarks of its sources and the state of its operator."""

    def __init__(self, job: ReferenceJob[Accumulator]) -> None:
        self._job = job
        self._operator = job.operator()
        self._watermark = MIN_WATERMARK
        self._sources = {name: SourceState() for name in job.sources}
        self._processing_time: int | None = None

    def run_epoch(self, epoch: Epoch) -> EpochResult:
        """Process one epoch's elements, advance the watermarks, fire.

        Raises:
            DefinitionError: an element of a source that the job does not have.
        """
        now = self._processing_time = epoch_processing_time(self._processing_time, epoch.processing_time)
        read = self._read(epoch, now)

        arrived = [entry for source in read.values() for entry in source.good]
        arrived.sort(key=lambda entry: (entry[1], entry[0].position))
        self._operator.begin_epoch(now)
        late = [element for element, timestamp in arrived if not self._operator.process_element(element, timestamp)]

        for name, strategy in self._job.sources.items():
            observed = read[name].observations(strategy.generator.metrics)
            state = advance(strategy, self._sources[name], observed, processing_time=now, caught_up=name not in epoch.behind)
            self._sources[name] = end_of_input(state) if epoch.end_of_input else state
        self._watermark = operator_watermark(self._watermark, tuple(self._sources.values()))
        panes = self._operator.advance_watermark(self._watermark)

        return EpochResult(
            processing_time=now,
            panes=panes,
            late=tuple(late),
            malformed=tuple(entry for source in read.values() for entry in source.malformed),
            counts=OperatorCounts(len(arrived), len(arrived) - len(late), len(late)),
            source_counts={
                name: SourceCounts(len(source.good) + len(source.malformed), len(source.good), len(source.malformed))
                for name, source in read.items()
            },
            sources=dict(self._sources),
            watermark=self._operator.watermark,
            open_windows=self._operator.open_windows(),
        )

    def _read(self, epoch: Epoch, now: int) -> dict[str, _SourceEpoch]:
        read = {name: _SourceEpoch() for name in self._job.sources}
        for element in epoch.elements:
            strategy = self._job.sources.get(element.source)
            if strategy is None:
                raise DefinitionError(f"no source named {element.source!r}", fix=f"use one of {', '.join(sorted(self._job.sources))}")
            timestamp = now if strategy.timestamp is None else element.timestamp
            reason = malformed_reason(timestamp, now, strategy.max_future_skew_ms)
            if timestamp is None or reason is not None:
                read[element.source].malformed.append(Malformed(element, str(reason)))
            else:
                read[element.source].good.append((element, timestamp))
        return read


def run_reference(job: ReferenceJob[Accumulator], epochs: Sequence[Epoch]) -> tuple[EpochResult, ...]:
    """Run a job from its beginning over the epochs; one result for each.

    Raises:
        DefinitionError: an element of a source that the job does not have.

    >>> from tidemark.semantics.watermarks.watermark_generators import Ascending
    >>> from tidemark.semantics.windows.assigners import Tumbling
    >>> count = Fold(create=lambda: 0, add=lambda n, value, timestamp, position: n + 1, result=lambda n: n)
    >>> job = ReferenceJob({"source": WatermarkStrategy("t", Ascending())}, Tumbling(10), count)
    >>> first, last = run_reference(job, [Epoch((Element(("a",), 3),)), Epoch((Element(("a",), 10),))])
    >>> first.panes, [(pane.window.start, pane.timing, pane.result) for pane in last.panes]
    ((), [(0, 'ON_TIME', 1)])
    """
    run = ReferenceRun(job)
    return tuple(run.run_epoch(epoch) for epoch in epochs)
