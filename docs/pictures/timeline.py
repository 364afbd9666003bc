"""Draws docs/pictures/timeline.svg: the elements of docs/how-to/first-job.md, the watermark after each epoch, and what becomes of both.

Where the watermark stands, which windows fire and which element is late is not drawn by hand but asked of ``tidemark.semantics``.
Run it from the top of the checkout: ``scripts/run python docs/pictures/timeline.py``.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.semantics.triggers.panes import due_timing
from tidemark.semantics.watermarks.lateness import Lateness, lateness_of
from tidemark.semantics.watermarks.watermarks import MIN_WATERMARK, BoundedOutOfOrderness, SplitStats
from tidemark.semantics.windows.assigners import Tumbling
from tidemark.semantics.windows.windows import Window

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
EPOCHS: Final = (
    (("JFK", "09:05"), ("Midtown", "09:20"), ("JFK", "09:48")),
    (("Midtown", "10:12"), ("Midtown", "09:55")),
    (("JFK", "10:45"), ("JFK", "09:58")),
    (("JFK", "11:20"), ("Midtown", "09:10")),
)
"""Zone and pick-up time of the elements, epoch by epoch; the one without a time cannot be drawn."""

GENERATOR: Final = BoundedOutOfOrderness(10 * MINUTE)
WINDOWS: Final = Tumbling(HOUR)
LATENESS_MS: Final = 30 * MINUTE

_LEFT, _TOP, _ROW, _HOUR_WIDTH, _WIDTH = 92, 96, 74, 250, 960
_COLOURS: Final[dict[Lateness, str]] = {"on_time": "#1f6f8b", "late_accepted": "#c77700", "late": "#b3261e"}
_WORDS: Final[dict[Lateness, str]] = {
    "on_time": "on time",
    "late_accepted": "behind, within the allowed lateness",
    "late": "late: to the side output",
}
_WATERMARK = 'stroke="#6a1b9a" stroke-width="2.5" stroke-dasharray="7 4"'
_STYLE = "text{font:13px sans-serif;fill:#333}.small{font-size:11px}.head{font-weight:bold}"


@dataclass(frozen=True)
class Row:
    """One epoch: its elements with their verdicts, the watermark after it, and the panes it fires by window."""

    elements: tuple[tuple[str, int, Lateness], ...]
    watermark: int
    fired: tuple[tuple[Window, str], ...]


def milliseconds(clock: str) -> int:
    """Return a time of day in milliseconds.

    >>> milliseconds("09:30") // MINUTE
    570
    """
    hours, minutes = clock.split(":")
    return int(hours) * HOUR + int(minutes) * MINUTE


def rows() -> Iterator[Row]:
    """Yield the epochs as the contract has them; keys of one window fire together and are shown once."""
    before, latest = MIN_WATERMARK, 0
    kept: set[Window] = set()
    for epoch in EPOCHS:
        judged = [(zone, milliseconds(clock), WINDOWS.assign(milliseconds(clock))[0]) for zone, clock in epoch]
        verdicts = [lateness_of(window, LATENESS_MS, before) for _, _, window in judged]
        latest = max(latest, *(time for _, time, _ in judged))
        after = GENERATOR.watermark(SplitStats(latest, {}, 0, before)) or before
        touched = {window for (_, _, window), verdict in zip(judged, verdicts, strict=True) if verdict != "late"}
        kept |= touched
        panes = ((window, due_timing(window, before=before, after=after, touched=window in touched)) for window in sorted(kept))
        fired = tuple((window, timing) for window, timing in panes if timing is not None)
        elements = tuple((zone, time, verdict) for (zone, time, _), verdict in zip(judged, verdicts, strict=True))
        yield Row(elements, after, fired)
        before = after


def x_of(time: int) -> float:
    """Return where a time of day lies, in pixels."""
    return _LEFT + (time - 9 * HOUR) / HOUR * _HOUR_WIDTH


def draw() -> str:
    """Return the picture as SVG."""
    drawn = tuple(rows())
    bottom = _TOP + _ROW * len(drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 92}" role="img" aria-labelledby="title">',
        '<title id="title">Elements by event time, the watermark after each epoch, and the windows it fires</title>',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{bottom + 92}" fill="#ffffff"/>',
        *_windows(bottom),
        *_staircase(drawn),
        *(part for number, row in enumerate(drawn) for part in _row(number, row)),
        *_legend(bottom),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _windows(bottom: int) -> Iterator[str]:
    yield f'<text class="head" x="{_LEFT}" y="24">event time →</text>'
    for number, hour in enumerate((9, 10, 11)):
        left, fill = x_of(hour * HOUR), "#eef4f7" if number % 2 == 0 else "#f8f4ea"
        middle, name = left + _HOUR_WIDTH / 2, f"window [{hour:02d}:00, {hour + 1}:00)"
        yield f'<rect x="{left:.0f}" y="66" width="{_HOUR_WIDTH}" height="{bottom - 66}" fill="{fill}"/>'
        yield f'<text class="small" x="{middle:.0f}" y="82" text-anchor="middle">{name}</text>'
    for hour in (9, 10, 11, 12):
        yield f'<text x="{x_of(hour * HOUR):.0f}" y="56" text-anchor="middle">{hour:02d}:00</text>'


def _row(number: int, row: Row) -> Iterator[str]:
    top = _TOP + number * _ROW
    yield f'<line x1="20" y1="{top + _ROW}" x2="{_WIDTH - 10}" y2="{top + _ROW}" stroke="#cccccc"/>'
    yield f'<text class="head" x="20" y="{top + 30}">epoch {number}</text>'
    for zone, time, verdict in row.elements:
        x, colour = x_of(time), _COLOURS[verdict]
        yield f'<circle cx="{x:.1f}" cy="{top + 24}" r="6" fill="{colour}"/>'
        yield f'<text class="small" x="{x:.1f}" y="{top + 44}" text-anchor="middle" style="fill:{colour}">{zone}</text>'
    for window, timing in row.fired:
        middle = x_of(window.start) + 70
        yield f'<rect x="{middle - 62:.0f}" y="{top + 51}" width="124" height="18" rx="9" fill="#2e7d32"/>'
        yield f'<text class="small" x="{middle:.0f}" y="{top + 64}" text-anchor="middle" style="fill:#ffffff">fires {timing}</text>'


def _staircase(drawn: tuple[Row, ...]) -> Iterator[str]:
    """Yield the watermark: within an epoch it stands where the epoch before left it, at the epoch's end it moves."""
    points = [f"{x_of(drawn[0].watermark):.1f},{_TOP + _ROW}"]
    for number, row in enumerate(drawn[1:], start=1):
        end = _TOP + (number + 1) * _ROW
        points += [f"{x_of(drawn[number - 1].watermark):.1f},{end}", f"{x_of(row.watermark):.1f},{end}"]
    yield f'<polyline points="{" ".join(points)}" fill="none" {_WATERMARK}/>'
    for number, row in enumerate(drawn):
        minutes = row.watermark // MINUTE
        shown = f"W({number}) = {minutes // 60:02d}:{minutes % 60:02d}:59.999"
        x, y = x_of(row.watermark), _TOP + (number + 1) * _ROW
        yield f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="#6a1b9a"/>'
        yield f'<text class="small" x="{x + 8:.1f}" y="{y - 6}" style="fill:#6a1b9a">{shown}</text>'


def _legend(bottom: int) -> Iterator[str]:
    x = _LEFT
    for verdict, words in _WORDS.items():
        yield f'<circle cx="{x}" cy="{bottom + 32}" r="6" fill="{_COLOURS[verdict]}"/>'
        yield f'<text x="{x + 14}" y="{bottom + 37}">{words}</text>'
        x += 60 + 7 * len(words)
    y = bottom + 62
    words = "watermark: latest event time less 10 minutes and 1 ms, moved when an epoch ends; allowed lateness 30 minutes"
    yield f'<line x1="{_LEFT - 6}" y1="{y}" x2="{_LEFT + 34}" y2="{y}" {_WATERMARK}/>'
    yield f'<text x="{_LEFT + 42}" y="{y + 5}">{words}</text>'


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw(), encoding="utf-8")
