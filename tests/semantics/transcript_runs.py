"""Transcripts: what an operator is given and what it has to do, epoch by epoch, as data; played by the reference and the window process.

A transcript is a mapping of ``name``, ``windows``, ``epochs`` and, where they are not the default, ``trigger``, ``evictor`` and
``lateness`` (milliseconds). Settings are written as users write them, in milliseconds. An epoch has

- ``input``: elements as ``[key:]time id [gap n] [amount n]``, in the order in which they are read; the key is ``a`` unless given;
- ``watermark`` that the epoch ends with and ``clock``, its processing time: as before where they are left out; or ``end: true`` at the
  end of input;
- ``expect``: the panes in order, as ``[key:] [start, end) TIMING index: ids``, ``-`` for no element, and ``replacing`` bounds;
  windows without bounds are ``global``, and their panes end with ``at`` the result's time;
- ``late``: ids of late elements; ``state``: windows left, as ``[key:] [start, end) holds n, fired n``; both are checked where given.

``expect`` left out means that there is no pane.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tests.semantics.process_runs import TAKEN, KeyStore, ProcessRun, in_contract_order
from tests.semantics.window_settings import apart
from tidemark.semantics.process import evictors
from tidemark.semantics.reference.reference import ReferenceJob
from tidemark.semantics.reference.reference_operator import Element, Key
from tidemark.semantics.triggers import builtin_triggers
from tidemark.semantics.triggers.panes import Pane
from tidemark.semantics.triggers.window_state import read_state
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK
from tidemark.semantics.windows import assigners
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

FOLDER = Path(__file__).parent / "transcripts"
_ELEMENT = re.compile(r"(?:(?P<key>\w+):)?(?P<time>-?\d+) (?P<id>\w+)(?: gap (?P<gap>\d+))?(?: amount (?P<amount>-?\d+))?")
_EPOCH = {"input", "watermark", "clock", "end", "expect", "late", "state"}
_TRANSCRIPT = {"name", "windows", "trigger", "evictor", "lateness", "epochs", "fails"}

_NAMES: Mapping[str, Callable[..., object]] = {
    "tumbling": assigners.Tumbling,
    "sliding": assigners.Sliding,
    "cumulative": assigners.Cumulative,
    "session": lambda gap=None, gap_by=None, domain="event": (
        assigners.DynamicSession(gap_by, domain) if gap is None else assigners.Session(gap, domain)
    ),
    "count_window": assigners.CountWindows,
    "global_window": assigners.GlobalWindows,
    "event_time_trigger": builtin_triggers.EventTimeTrigger,
    "processing_time_trigger": builtin_triggers.ProcessingTimeTrigger,
    "continuous_event_time_trigger": builtin_triggers.ContinuousEventTimeTrigger,
    "continuous_processing_time_trigger": builtin_triggers.ContinuousProcessingTimeTrigger,
    "count_trigger": builtin_triggers.CountTrigger,
    "delta_trigger": lambda threshold: builtin_triggers.DeltaTrigger(threshold, apart),
    "each_epoch_trigger": builtin_triggers.EachEpochTrigger,
    "never_trigger": builtin_triggers.NeverTrigger,
    "purging_trigger": builtin_triggers.PurgingTrigger,
    "count_evictor": evictors.CountEvictor,
    "time_evictor": evictors.TimeEvictor,
    "delta_evictor": lambda threshold, after=False: evictors.DeltaEvictor(threshold, apart, after),
}


class TranscriptError(AssertionError):
    """A transcript that cannot be read, or that something did not keep to."""


@dataclass(frozen=True)
class Transcript:
    """A transcript as it stands in its file; ``fails`` is what the runner has to find wrong with it."""

    place: str
    parts: Mapping[str, object]

    @property
    def name(self) -> str:
        return f"{self.place}: {self.parts.get('name')}"

    @property
    def fails(self) -> str | None:
        found = self.parts.get("fails")
        return None if found is None else str(found)

    def job(self) -> ReferenceJob[tuple[object, ...]]:
        unknown = set(self.parts) - _TRANSCRIPT
        if unknown:
            raise TranscriptError(f"{self.name}: unknown {', '.join(sorted(unknown))}")
        lateness = self.parts.get("lateness", 0)
        return ReferenceJob(
            {},
            setting(self.parts["windows"]),  # type: ignore[arg-type]
            TAKEN,
            lateness if isinstance(lateness, int) else 0,
            trigger=setting(self.parts.get("trigger")),  # type: ignore[arg-type]
            evictor=setting(self.parts.get("evictor")),  # type: ignore[arg-type]
        )

    def epochs(self) -> Iterator[Mapping[str, object]]:
        steps = self.parts.get("epochs")
        if not isinstance(steps, list) or not steps:
            raise TranscriptError(f"{self.name}: no epochs")
        for step in steps:
            if not isinstance(step, dict) or set(step) - _EPOCH:
                raise TranscriptError(f"{self.name}: not an epoch: {step!r}")
            yield step


@dataclass(frozen=True)
class Seen:
    """What one epoch did, as transcripts write it."""

    expect: list[str]
    late: list[str]
    state: list[str] | None


def transcripts(folder: str = "") -> list[Transcript]:
    """Return the transcripts of a folder's files."""
    found = []
    for path in sorted((FOLDER / folder).glob("*.yaml")):
        found += [Transcript(path.stem, parts) for parts in yaml.safe_load(path.read_text(encoding="utf-8"))]
    return found


def setting(text: object) -> object:
    """Return what a setting such as ``purging_trigger(count_trigger(2))`` makes.

    Raises:
        TranscriptError: it is none.
    """
    if text is None:
        return None

    def made(node: ast.expr) -> object:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _NAMES:
            named = {keyword.arg: made(keyword.value) for keyword in node.keywords if keyword.arg is not None}
            return _NAMES[node.func.id](*map(made, node.args), **named)
        if isinstance(node, ast.Call):
            raise TranscriptError(f"unknown setting {ast.unparse(node)}")
        return ast.literal_eval(node)

    return made(ast.parse(str(text), mode="eval").body)


def play(transcript: Transcript) -> None:
    """Play a transcript with the reference, and with the window process twice: as little stored as may be, and all.

    Raises:
        TranscriptError: one of them did something else, or the transcript cannot be read.
    """
    steps = list(transcript.epochs())
    players = {
        "reference": played_by_reference(transcript),
        "process": played_by_process(transcript),
        # An engine may keep elements that no window holds; then the number of those stored says nothing.
        "hoarding process": (replace(seen, state=None) for seen in played_by_process(transcript, hoards=True)),
    }
    for player, seen in players.items():
        for number, (step, found) in enumerate(zip(steps, seen, strict=True)):
            for part in ("expect", "late", "state"):
                if (part != "expect" and part not in step) or getattr(found, part) is None:
                    continue
                expected = [str(entry) for entry in as_list(step.get(part))]
                if expected != getattr(found, part):
                    raise TranscriptError(
                        f"{transcript.name}, epoch {number}, {player}: {part} is {getattr(found, part)}, the transcript has {expected}"
                    )


def played_by_reference(transcript: Transcript) -> Iterator[Seen]:
    """Yield what the reference's operator does in each epoch."""
    operator, position = transcript.job().operator(), 0
    for elements, watermark, clock in inputs(transcript):
        operator.begin_epoch(clock)
        taken = sorted((numbered(element, position + place) for place, element in enumerate(elements)), key=in_contract_order)
        position += len(elements)
        late = [element for element in taken if not operator.process_element(element, element.timestamp or 0)]
        panes = operator.advance_watermark(watermark)
        state = [shown_state(found.key, found.window, found.elements, found.panes) for found in operator.open_windows()]
        yield Seen(list(map(shown_pane, in_key_order(panes))), ids(late), sorted(state))


def played_by_process(transcript: Transcript, *, hoards: bool = False) -> Iterator[Seen]:
    """Yield what the window process does in each epoch."""
    run, position = ProcessRun(transcript.job(), hoards=hoards), 0
    for number, (elements, watermark, clock) in enumerate(inputs(transcript)):
        taken = [numbered(element, position + place) for place, element in enumerate(elements)]
        position += len(elements)
        seen = run.run_epoch(taken, watermark, clock)
        panes = in_key_order(pane for found in seen.panes.values() for pane in found)
        late = [str(value["id"]) for value in seen.late if isinstance(value, dict)]
        state = [entry for key, store in run.keys.items() for entry in stored_state(run, key, store, number)]
        yield Seen(list(map(shown_pane, panes)), late, sorted(state))


def inputs(transcript: Transcript) -> Iterator[tuple[list[Element], int, int]]:
    """Yield each epoch's elements, watermark and clock."""
    watermark, clock = MIN_WATERMARK, 0
    for step in transcript.epochs():
        watermark = MAX_WATERMARK if step.get("end") else as_int(step.get("watermark", watermark))
        clock = as_int(step.get("clock", clock))
        yield [element(str(entry)) for entry in as_list(step.get("input"))], watermark, clock


def element(text: str) -> Element:
    """Return the element of a text.

    Raises:
        TranscriptError: it is none.
    """
    found = _ELEMENT.fullmatch(text)
    if found is None:
        raise TranscriptError(f"not an element: {text!r}")
    gap = None if found["gap"] is None else int(found["gap"])
    row = {"id": found["id"], "amount": int(found["amount"] or 0)}
    return Element((found["key"] or "a",), int(found["time"]), row, gap_ms=gap)


def numbered(element: Element, place: int) -> Element:
    return Element(element.key, element.timestamp, element.value, position=(place,), gap_ms=element.gap_ms)


def stored_state(run: ProcessRun, key: Key, store: KeyStore, epoch: int) -> Iterator[str]:
    state = read_state(store.state, epoch)
    for window in state.windows.values():
        yield shown_state(key, window.window, window.held, window.panes)
    windows = run.job.assigner
    if state.counted and isinstance(windows, CountWindows):
        yield shown_state(key, GLOBAL_WINDOW, len(store.elements), state.counted // (windows.slide or windows.size))


def in_key_order(panes: Sequence[Pane] | Iterator[Pane]) -> list[Pane]:
    return sorted(panes, key=lambda pane: (str(pane.key), pane.window.end, pane.window.start, pane.index))


def shown_pane(pane: Pane) -> str:
    content = pane.result if isinstance(pane.result, tuple) else ()
    replacing = f" replacing {', '.join(f'[{start}, {end})' for start, end in pane.replaces)}" if pane.replaces else ""
    at = f" at {pane.result_time}" if pane.window == GLOBAL_WINDOW else ""
    return f"{shown_slot(pane.key, pane.window)} {pane.timing} {pane.index}: {''.join(map(str, content)) or '-'}{replacing}{at}"


def shown_state(key: Key, window: Window, held: int, fired: int) -> str:
    return f"{shown_slot(key, window)} holds {held}, fired {fired}"


def shown_slot(key: Key, window: Window) -> str:
    owner = "" if key == ("a",) else f"{key[0]}: "
    return owner + ("global" if window == GLOBAL_WINDOW else f"[{window.start}, {window.end})")


def ids(elements: Sequence[Element]) -> list[str]:
    return [str(element.value["id"]) for element in elements if isinstance(element.value, dict)]


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_int(value: object) -> int:
    if not isinstance(value, int):
        raise TranscriptError(f"not a time: {value!r}")
    return value
