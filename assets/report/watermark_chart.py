"""A small chart of a job's watermark and late rows over its epochs, as an image inside Markdown.

Dagster's UI shows Markdown images with a ``data:`` URI, so the chart needs no server and no file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark.assets.values.instants import instant_or_none, newest_event_of_all
from tidemark.clock import format_ms
from tidemark.state import EpochProgress

WIDTH, HEIGHT = 640, 200
MAX_POINTS = 120
_LEFT, _RIGHT, _TOP, _MIDDLE, _BOTTOM = 150, 630, 20, 110, 180
# Mid tones, readable on the light and the dark theme.
_WATER, _EVENT, _LATE, _TEXT = "#2d8bba", "#8a94a6", "#d9534f", "#7a8494"


@dataclass(frozen=True)
class ChartPoint:
    """One point of the chart, for one or several neighbouring epochs: times in milliseconds, None if unknown."""

    epoch: int
    watermark: int | None
    newest: int | None
    late: int


def chart_points(epochs: Sequence[EpochProgress], limit: int = MAX_POINTS) -> tuple[ChartPoint, ...]:
    """Return at most ``limit`` points: neighbouring epochs are merged, their late rows added, the times of the last kept."""
    if not epochs:
        return ()
    step = -(-len(epochs) // limit)
    groups = [epochs[start : start + step] for start in range(0, len(epochs), step)]
    return tuple(
        ChartPoint(
            group[-1].epoch, instant_or_none(group[-1].watermark), newest_event_of_all(group[-1]), sum(epoch.rows_late for epoch in group)
        )
        for group in groups
    )


def watermark_chart(epochs: Sequence[EpochProgress]) -> str:
    """Return the chart as Markdown; its alternative text is a summary.

    Args:
        epochs: oldest first; more than ``MAX_POINTS`` are merged.
    """
    points = chart_points(epochs)
    if not points:
        return "No epoch has been committed yet."
    image = base64.b64encode(svg(points).encode()).decode()
    return f"![{_summary(points)}](data:image/svg+xml;base64,{image})"


def svg(points: Sequence[ChartPoint]) -> str:
    """Return the chart as SVG: above, watermark and newest event time; below, late rows per epoch."""
    times = [time for point in points for time in (point.watermark, point.newest) if time is not None]
    low, high = (min(times), max(times)) if times else (0, 1)
    most = max(point.late for point in points)
    width = (_RIGHT - _LEFT) / len(points)

    def x(index: int) -> float:
        return _LEFT + (index + 0.5) * width

    def y(time: int) -> float:
        return _MIDDLE - (_MIDDLE - _TOP) * (time - low) / max(high - low, 1)

    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" fill="{_TEXT}">',
        f"<title>{_summary(points)}</title>",
        _label(_TOP + 4, format_ms(high)[:16] if times else "no event time yet"),
        _label(_MIDDLE, format_ms(low)[:16] if times else ""),
        _label(_BOTTOM - 24, f"late rows, at most {most}"),
        f'<text x="{_LEFT}" y="{HEIGHT - 4}">epoch {points[0].epoch}</text>',
        f'<text x="{_RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{points[-1].epoch}</text>',
        f'<text x="{_LEFT}" y="12"><tspan fill="{_WATER}">watermark</tspan> · <tspan fill="{_EVENT}">newest event</tspan></text>',
        f'<line x1="{_LEFT}" y1="{_BOTTOM}" x2="{_RIGHT}" y2="{_BOTTOM}" stroke="{_EVENT}" stroke-width="0.5"/>',
        _line(points, lambda point: point.newest, x, y, f'stroke="{_EVENT}" stroke-dasharray="3 2"'),
        _line(points, lambda point: point.watermark, x, y, f'stroke="{_WATER}" stroke-width="2"'),
        *(_bar(x(index), width, point.late, most) for index, point in enumerate(points) if point.late),
        "</svg>",
    ]
    return "".join(parts)


def _label(y: int, text: str) -> str:
    return f'<text x="{_LEFT - 6}" y="{y}" text-anchor="end">{text}</text>'


def _line(
    points: Sequence[ChartPoint],
    pick: Callable[[ChartPoint], int | None],
    x: Callable[[int], float],
    y: Callable[[int], float],
    style: str,
) -> str:
    known = [(x(index), y(time)) for index, point in enumerate(points) if (time := pick(point)) is not None]
    if len(known) == 1:
        # A line of a single point would be invisible.
        known = [(known[0][0] - 2, known[0][1]), (known[0][0] + 2, known[0][1])]
    coordinates = " ".join(f"{a:.1f},{b:.1f}" for a, b in known)
    return f'<polyline points="{coordinates}" fill="none" {style}/>' if known else ""


def _bar(center: float, width: float, late: int, most: int) -> str:
    height = max(1.0, (_BOTTOM - _MIDDLE - 12) * late / most)
    size = max(1.0, min(width * 0.8, 12.0))
    place = f'x="{center - size / 2:.1f}" y="{_BOTTOM - height:.1f}" width="{size:.1f}" height="{height:.1f}"'
    return f'<rect class="late" {place} fill="{_LATE}"/>'


def _summary(points: Sequence[ChartPoint]) -> str:
    last = points[-1]
    watermark = format_ms(last.watermark) if last.watermark is not None else "none or the end of input"
    late = sum(point.late for point in points)
    return f"epochs {points[0].epoch} to {last.epoch}: watermark {watermark}, {late} late rows"
