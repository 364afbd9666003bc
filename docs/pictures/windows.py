"""Draws docs/pictures/windows-*.svg: for each kind of window the elements, the watermark after each epoch, and the panes it fires.

Run it from the top of the checkout: ``scripts/run python -m docs.pictures.windows``.
"""
# ruff: noqa: INP001 - a script, not a package

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from docs.pictures.scenes import MINUTE, SCENES, Scene, extent, milliseconds, time_of_day, total_of
from tidemark.semantics.reference.reference import EpochResult
from tidemark.semantics.windows.assigners import CountWindows
from tidemark.semantics.windows.windows import GLOBAL_WINDOW

_FROM, _UNTIL = milliseconds("08:45"), milliseconds("10:30")
_LEFT, _TOP, _WIDTH, _RIGHT = 150, 62, 1000, 26
_LANE, _BAR, _PAD = 26, 22, 12
_ZONES: Final = ("JFK", "Midtown")
_TAKEN, _LATE, _WATERMARK, _OPEN = "#1f6f8b", "#b3261e", "#6a1b9a", "#777777"
_TIMINGS: Final = {"ON_TIME": "#2e7d32", "LATE": "#c77700", "EARLY": "#1f6f8b"}
_DASHED = f'stroke="{_WATERMARK}" stroke-width="2.5" stroke-dasharray="7 4"'
_STYLE = "text{font:13px sans-serif;fill:#333}.small{font-size:11px}.head{font-weight:bold}"


@dataclass(frozen=True)
class Bar:
    """A pane or an open window: where it lies, what is written on it, and its colour; without bounds it is drawn round."""

    start: int
    end: int
    text: str
    colour: str
    bounded: bool
    filled: bool = True

    @property
    def left(self) -> float:
        """Where it begins, in pixels."""
        return x_of(max(self.start, _FROM)) - (0 if self.bounded else 8)

    @property
    def width(self) -> float:
        """As long as it lasts, and as its text is."""
        return max(x_of(min(self.end, _UNTIL)) + (0 if self.bounded else 8) - self.left, 6.6 * len(self.text))


@dataclass(frozen=True)
class Row:
    """One epoch, or what is open after the last: its name, elements (lane, time, late), bars line by line, the watermark after it."""

    name: str
    elements: tuple[tuple[int, int, bool], ...]
    lines: tuple[tuple[Bar, ...], ...]
    watermark: int | None

    @property
    def height(self) -> int:
        """In pixels."""
        lanes = len(_ZONES) * _LANE if self.elements else 0
        return lanes + len(self.lines) * _BAR + 2 * _PAD


def rows(scene: Scene) -> tuple[Row, ...]:
    """Return the epochs as the contract has them, and what is open after the last."""
    results = scene.results()
    drawn = [_epoch(scene, number, result) for number, result in enumerate(results)]
    waiting = [
        Bar(*extent(held.window, held.result), f"{held.key[0]} {held.elements} open", _OPEN, held.window != GLOBAL_WINDOW, filled=False)
        for held in results[-1].open_windows
        if held.panes == 0 or isinstance(scene.assigner, CountWindows)
    ]
    return (*drawn, Row("still open", (), _stacked(waiting), None)) if waiting else tuple(drawn)


def _epoch(scene: Scene, number: int, result: EpochResult) -> Row:
    late = {(element.key[0], element.timestamp) for element in result.late}
    read = [(zone, milliseconds(clock)) for zone, clock, _ in scene.fares[number]]
    bars = []
    for pane in result.panes:
        text = f"{pane.key[0]} {total_of(pane.result).rides} {pane.timing} {pane.index}"
        bars.append(Bar(*extent(pane.window, pane.result), text, _TIMINGS[pane.timing], pane.window != GLOBAL_WINDOW))
    elements = tuple((_ZONES.index(zone), time, (zone, time) in late) for zone, time in read)
    return Row(f"epoch {number}", elements, _stacked(bars), result.watermark)


def _stacked(bars: list[Bar]) -> tuple[tuple[Bar, ...], ...]:
    """Put each bar on the first line on which it covers no other."""
    lines: list[list[Bar]] = []
    for bar in bars:
        free = (line for line in lines if all(bar.left >= other.left + other.width or bar.left + bar.width <= other.left for other in line))
        line = next(free, None)
        if line is None:
            lines.append([bar])
        else:
            line.append(bar)
    return tuple(map(tuple, lines))


def x_of(time: int) -> float:
    """Return where a time of day lies, in pixels."""
    return _LEFT + (time - _FROM) / (_UNTIL - _FROM) * (_WIDTH - _LEFT - _RIGHT)


def draw(scene: Scene) -> str:
    """Return a scene's picture as SVG."""
    drawn = rows(scene)
    tops = [_TOP + sum(row.height for row in drawn[:number]) for number in range(len(drawn) + 1)]
    height = tops[-1] + 74
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{scene.title}: elements by event time, the watermark after each epoch, and the panes it fires</title>',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_grid(tops),
        *_staircase(tops, drawn),
        *(part for top, row in zip(tops[:-1], drawn, strict=True) for part in _row(top, row)),
        *_legend(tops[-1]),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(tops: list[int]) -> Iterator[str]:
    yield '<text class="head" x="20" y="24">event time →</text>'
    for time in range(_FROM, _UNTIL + 1, 15 * MINUTE):
        x = f"{x_of(time):.1f}"
        yield f'<line x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{tops[-1]}" stroke="#e3e3e3"/>'
        yield f'<text x="{x}" y="{_TOP - 16}" text-anchor="middle">{time_of_day(time)}</text>'
    for top in tops:
        yield f'<line x1="20" y1="{top}" x2="{_WIDTH - _RIGHT}" y2="{top}" stroke="#bbbbbb"/>'


def _row(top: int, row: Row) -> Iterator[str]:
    yield f'<text class="head" x="20" y="{top + _PAD + 16}">{row.name}</text>'
    for lane, zone in enumerate(_ZONES if row.elements else ()):
        yield f'<text class="small" x="{_LEFT - 8}" y="{top + _PAD + lane * _LANE + 14}" text-anchor="end">{zone}</text>'
    for lane, time, late in row.elements:
        x, y, colour = x_of(time), top + _PAD + lane * _LANE + 10, _LATE if late else _TAKEN
        yield f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{colour}"/>'
        yield f'<text class="small" x="{x + 10:.1f}" y="{y + 4}" style="fill:{colour}">{time_of_day(time)}{" late" if late else ""}</text>'
    first = top + _PAD + (len(_ZONES) * _LANE if row.elements else 0)
    for number, line in enumerate(row.lines):
        for bar in line:
            yield from _bar(first + number * _BAR, bar)


def _bar(top: int, bar: Bar) -> Iterator[str]:
    look = f'fill="{bar.colour}"' if bar.filled else f'fill="#ffffff" stroke="{bar.colour}" stroke-dasharray="4 3"'
    radius = 2 if bar.bounded else 9
    yield f'<rect x="{bar.left + 1:.1f}" y="{top}" width="{bar.width - 2:.1f}" height="18" rx="{radius}" {look}/>'
    ink = "#ffffff" if bar.filled else bar.colour
    yield (
        f'<text class="small" x="{bar.left + bar.width / 2:.1f}" y="{top + 13}" text-anchor="middle" '
        f'style="fill:{ink}">{bar.text}</text>'
    )  # fmt: skip


def _staircase(tops: list[int], drawn: tuple[Row, ...]) -> Iterator[str]:
    """Yield the watermark: within an epoch it stands where the epoch before left it, at the epoch's end it moves."""
    marks = [(end, row.watermark) for end, row in zip(tops[1:], drawn, strict=True) if row.watermark is not None]
    points = [f"{x_of(marks[0][1]):.1f},{marks[0][0]}"]
    for (_, before), (end, mark) in pairwise(marks):
        points += [f"{x_of(before):.1f},{end}", f"{x_of(mark):.1f},{end}"]
    yield f'<polyline points="{" ".join(points)}" fill="none" {_DASHED}/>'
    for number, (end, mark) in enumerate(marks):
        x = x_of(mark)
        yield f'<circle cx="{x:.1f}" cy="{end}" r="4" fill="{_WATERMARK}"/>'
        yield f'<text class="small" x="{x + 8:.1f}" y="{end - 4}" style="fill:{_WATERMARK}">W({number})</text>'


def _legend(bottom: int) -> Iterator[str]:
    x, y = 26, bottom + 26
    for colour, words in ((_TAKEN, "taken by a window"), (_LATE, "late: to the side output")):
        yield f'<circle cx="{x}" cy="{y - 4}" r="6" fill="{colour}"/><text x="{x + 14}" y="{y}">{words}</text>'
        x += 40 + 7 * len(words)
    yield f'<rect x="{x}" y="{y - 13}" width="60" height="18" rx="2" fill="{_TIMINGS["ON_TIME"]}"/>'
    yield f'<text x="{x + 68}" y="{y}">a pane: key, elements, timing, index</text>'
    yield f'<line x1="20" y1="{y + 24}" x2="60" y2="{y + 24}" {_DASHED}/>'
    yield f'<text x="68" y="{y + 29}">watermark W(n): latest event time less 5 minutes and 1 ms, moved when epoch n ends</text>'


if __name__ == "__main__":
    for shown in SCENES:
        (Path(__file__).parent / f"windows-{shown.name}.svg").write_text(draw(shown), encoding="utf-8")
