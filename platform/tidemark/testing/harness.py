"""One stateful operator of a job without Spark: elements in, rows out, epoch by epoch, in milliseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from tidemark.errors import DefinitionError
from tidemark.graph.api.streams import Stream
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import OutputTag, StatefulNode
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.operators.registry import kind_of
from tidemark.semantics.changelog.row_kinds import NAMES
from tidemark.semantics.user_rows import copied
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.testing.elements import InputColumns
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, Row
from tidemark.testing.operators.joins.lookup import PureLookup
from tidemark.testing.operators.registry import pure_operator

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_FOLDS: Final[Folds] = MappingProxyType({})


@dataclass(frozen=True)
class HarnessSnapshot:
    """What ``OperatorHarness.snapshot`` returns: the operator's state, its watermark, and the processing time."""

    state: object
    watermark: int
    processing_time: int


@checked_methods()
class OperatorHarness:
    """Runs the operator of a stream without Spark, one element at a time, with the same results as the engine.

    Elements passed between two calls of ``advance_watermark`` are one epoch: they are processed in order of event time, then in the order
    passed, and are late by the watermark of the epoch before. Keys and arguments must be column names, since no SQL is evaluated.

    Where a process function, or one over elements, raises an exception, the epoch has no effects: state, timers, counts and the watermark
    are as before. Its elements are gone.

    Args:
        stream: the result of the operator's ``.uid(...)``; its rows are the operator's.
        folds: Python implementations of SQL aggregates, by their names (see ``tidemark.testing.folds``).
        table: the rows of the table that a ``lookup`` reads, which is not read then; of a database it is needed.
        schema: DDL of the columns that elements have, or a mapping of inputs to it: elements have all of these, with values of their types.
            Without it elements are checked against the names of the columns that the job declares, as far as these are known.

    Raises:
        DefinitionError: the stream is not that of a stateful operator, or uses SQL that only Spark evaluates; or ``schema`` is no DDL.

    >>> import tidemark as tm
    >>> trips = tm.source(
    ...     "trips", tm.files("in", format="json", schema="at TIMESTAMP, zone STRING, fare DOUBLE"), watermarks=tm.ascending(timestamp="at")
    ... )
    >>> hourly = trips.key_by("zone").window(tm.tumbling("1 hour")).aggregate(fares=tm.sum("fare")).uid("hourly")
    >>> harness = OperatorHarness(hourly)
    >>> harness.process({"zone": "N", "fare": 5.0}, at=1_000)
    >>> harness.process({"zone": "N", "fare": 2.5}, at=2_000)
    >>> [(row["zone"], row["fares"], row["pane_timing"]) for row in harness.advance_watermark(3_599_999)]
    [('N', 7.5, 'ON_TIME')]
    """

    def __init__(
        self,
        stream: Stream,
        *,
        folds: Folds = _NO_FOLDS,
        table: Sequence[Row] | None = None,
        schema: str | Mapping[str, str] | None = None,
    ) -> None:
        node = getattr(stream, "node", None)
        if not isinstance(node, StatefulNode):
            raise DefinitionError(
                "OperatorHarness needs the stream of a stateful operator",
                fix="pass the result of .aggregate(...), .process(...) or their .uid(...), before any .select or .filter",
                place=call_site(),
            )
        self._node = node
        self._columns = InputColumns(node, schema, call_site())
        self._operator = pure_operator(node, folds)
        if table is not None:
            if not isinstance(self._operator, PureLookup):
                raise DefinitionError(
                    f"the operator is a {kind_of(node).noun}, and reads no table",
                    fix="leave table= out; it is for .lookup(...)",
                    uid=node.uid,
                    place=node.place,
                )
            self._operator.set_table(table)
        self._arrived: list[Arrived] = []
        counters = kind_of(node).counters(node)
        self._side: dict[str, list[dict[str, object]]] = {counter: [] for counter in (*counters, *node.emitted_tags)}
        self._counts: Counter[str] = Counter({"in": 0, "accepted": 0, **dict.fromkeys(counters, 0)})
        self._watermark = MIN_WATERMARK
        self._processing_time = 0
        self._emitted: list[Emitted] = []

    @property
    def watermark(self) -> int:
        """The newest watermark of the inputs, milliseconds."""
        return self._watermark

    @property
    def counts(self) -> Mapping[str, int]:
        """Rows so far: ``in`` = ``accepted`` + those of each other counter, such as ``late``."""
        return dict(self._counts)

    @property
    def emitted(self) -> list[Emitted]:
        """All result rows so far, with their event times."""
        return list(self._emitted)

    def process(self, row: Row, *, at: int | datetime, port: str | None = None, operation: str = "insert") -> None:
        """Add an element to the epoch.

        Args:
            row: its columns, those of the operator's input. The event time may be left out, and what the operator does not read.
            at: its event time: milliseconds, or an instant with a time zone.
            port: the input, for an operator that has several.
            operation: of a changelog's row: ``insert``, ``update_before``, ``update_after`` or ``delete``.

        Raises:
            DefinitionError: the operator has no such input, ``row`` is no mapping, names a column that the input has not or lacks one that
                the operator reads, ``at`` is missing, is no time or has no zone, or there is no such operation.
        """
        place = call_site()
        ports = self._node.PORTS
        chosen = ports[0] if port is None and len(ports) == 1 else port
        if chosen not in ports:
            raise DefinitionError(
                f"the operator has no input {chosen!r}",
                fix=f"name one: port={' or '.join(map(repr, ports))}",
                uid=self._node.uid,
                place=place,
            )
        if operation not in NAMES:
            raise DefinitionError(
                f"operation={operation!r} is no change of a row", fix=f"write one of: {', '.join(NAMES)}", uid=self._node.uid, place=place
            )
        self._columns.check(chosen, row, place)
        self._arrived.append(Arrived(chosen, copied(dict(row)), self._time(at), (len(self._arrived),), NAMES[operation]))

    def set_processing_time(self, at: int | datetime) -> None:
        """Set the processing time of the epoch that ``advance_watermark`` ends; it never goes back either."""
        self._processing_time = max(self._processing_time, self._time(at))

    def advance_watermark(self, to: int | datetime) -> list[dict[str, object]]:
        """End the epoch with a watermark; return the rows that the operator emits.

        A watermark never goes back: one that is not higher ends the epoch, and ``watermark`` stays as it is, as with Flink's operators.
        """
        return self._end_epoch(self._time(to))

    def end_input(self) -> list[dict[str, object]]:
        """End the epoch and the input: everything that waits for event time fires."""
        return self._end_epoch(MAX_WATERMARK)

    def side_output(self, tag: OutputTag | str) -> list[dict[str, object]]:
        """Return all rows so far of a side output, by its tag or the tag's name, or of a counter, such as ``late``, by its name.

        Raises:
            DefinitionError: the operator has no such side output and no such counter.
        """
        name = tag.name if isinstance(tag, OutputTag) else tag
        tags = {own.name: counter for counter, own in (*self._node.side_tags.items(), *self._node.emitted_tags.items())}
        # A tag comes first where a counter has its name.
        known = {**{counter: counter for counter in self._side}, **tags}
        if name not in known:
            names = [*tags, *(counter for counter in self._side if counter not in tags.values())]
            raise DefinitionError(
                f"the operator has no side output {name!r}",
                fix=f"give a tag that it has, or its name: {', '.join(map(repr, names)) or 'none'}",
                uid=self._node.uid,
                place=call_site(),
            )
        return list(self._side[known[name]])

    def state(self) -> list[dict[str, object]]:
        """Return the operator's state, as rows."""
        return self._operator.state()

    def timers(self) -> list[dict[str, object]]:
        """Return the timers that a process function has set: key, ``domain``, the time when each is ``due``, and its ``name``."""
        return self._operator.timers()

    def snapshot(self) -> HarnessSnapshot:
        """Return the state and the watermark after the newest epoch, for another harness of the same operator, or a changed one."""
        return HarnessSnapshot(self._operator.snapshot(), self._watermark, self._processing_time)

    def restore(self, snapshot: HarnessSnapshot) -> None:
        """Resume from a snapshot, as a job does from a savepoint; rows that were emitted before stay."""
        self._operator.restore(snapshot.state)
        self._watermark, self._processing_time = snapshot.watermark, snapshot.processing_time

    def _end_epoch(self, watermark: int) -> list[dict[str, object]]:
        arrived, self._arrived = sorted(self._arrived, key=lambda each: (each.time, each.position)), []
        after, counts = max(self._watermark, watermark), Counter({"in": len(arrived), "accepted": len(arrived)})
        side: dict[str, list[dict[str, object]]] = {}
        self._operator.begin_epoch(self._processing_time)
        for element in arrived:
            counter = self._operator.process(element)
            if counter is not None:
                counts.update({counter: 1, "accepted": -1})
                side.setdefault(counter, []).append(dict(element.row))
        try:
            emitted = self._operator.end_epoch(after)
        except KeyError as error:
            missed = self._columns.misses(error)
            if missed is None:
                raise
            raise missed from error
        rows, aside = self._operator.take_side_rows()
        for counter, number in aside.items():
            counts.update({counter: number, "accepted": -number})
        # Only here, since all effects of an epoch land, or none.
        self._watermark = after
        self._counts.update(counts)
        for counter, found in (*side.items(), *rows.items()):
            self._side[counter] += found
        self._emitted += emitted
        return [each.row for each in emitted]

    def _time(self, at: object) -> int:
        if isinstance(at, datetime):
            if at.tzinfo is not None:
                return (at - _EPOCH) // timedelta(milliseconds=1)
            wrong = f"{at!r} has no time zone"
        elif isinstance(at, int) and not isinstance(at, bool):
            return at
        else:
            wrong = f"{at!r} is no time"
        raise DefinitionError(wrong, fix="give datetime(..., tzinfo=UTC), or milliseconds", uid=self._node.uid, place=call_site())
