"""A chart of a job's watermark, lag, rows and late rows over its epochs, as an image inside Markdown.

Dagster's UI shows Markdown images with a ``data:`` URI, so the chart needs no server and no file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidemark.assets.values.instants import instant_or_none, newest_event_of_all
from tidemark.clock import format_ms
from tidemark.durations import short_duration
from tidemark.state import EpochProgress

WIDTH, HEIGHT = 960, 540
MAX_POINTS = 120
_LEFT, _RIGHT = 190, 950
# Mid tones, readable on the light and the dark theme.
_WATER, _EVENT, _LAG, _ROWS, _LATE, _TEXT = "#2d8bba", "#8a94a6", "#b7791f", "#4c9a6a", "#d9534f", "#7a8494"


@dataclass(frozen=True)
class ChartPoint:
    """One point of the chart, for one or several neighbouring epochs: times and lag in milliseconds, None if unknown."""

    epoch: int
    watermark: int | None
    newest: int | None
    late: int
    lag: int | None = None
    rows: int = 0


@dataclass(frozen=True)
class _Panel:
    """A part of the chart, between two heights."""

    top: int
    bottom: int

    def y(self, value: float, low: float, high: float) -> float:
        return self.bottom - (self.bottom - self.top) * (value - low) / max(high - low, 1)


_TIMES, _LAGS, _READ, _TOO_LATE = _Panel(34, 190), _Panel(220, 300), _Panel(330, 410), _Panel(440, 510)
_Pick = Callable[[ChartPoint], int | None]


def chart_points(epochs: Sequence[EpochProgress], limit: int = MAX_POINTS) -> tuple[ChartPoint, ...]:
    """Return at most ``limit`` points: neighbouring epochs are merged, their rows added, the times of the last kept."""
    if not epochs:
        return ()
    step = -(-len(epochs) // limit)
    groups = [epochs[start : start + step] for start in range(0, len(epochs), step)]
    return tuple(
        ChartPoint(
            epoch=group[-1].epoch,
            watermark=instant_or_none(group[-1].watermark),
            newest=newest_event_of_all(group[-1]),
            late=sum(epoch.rows_late for epoch in group),
            lag=_lag(group[-1]),
            rows=sum(epoch.rows_in for epoch in group),
        )
        for group in groups
    )


def _lag(epoch: EpochProgress) -> int | None:
    lags = [source.lag_ms for source in epoch.sources.values() if source.lag_ms is not None]
    return max(lags) if lags and instant_or_none(epoch.watermark) is not None else None


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
    """Return the chart as SVG: from above, watermark and newest event time, lag, rows read and late rows per epoch."""
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13" fill="{_TEXT}">',
        f"<title>{_summary(points)}</title>",
        f'<text x="{_LEFT}" y="18"><tspan fill="{_WATER}">watermark</tspan> · <tspan fill="{_EVENT}">newest event</tspan></text>',
        *_times(points),
        *_lags(points),
        *_rows(points),
        *_late(points),
        f'<text x="{_LEFT}" y="{HEIGHT - 6}">epoch {points[0].epoch}</text>',
        f'<text x="{_RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{points[-1].epoch}</text>',
        "</svg>",
    ]
    return "".join(parts)


def _times(points: Sequence[ChartPoint]) -> Iterator[str]:
    times = [time for point in points for time in (point.watermark, point.newest) if time is not None]
    low, high = (min(times), max(times)) if times else (0, 1)
    yield _label(_TIMES.top + 5, format_ms(high)[:16] if times else "no event time yet")
    yield _label(_TIMES.bottom, format_ms(low)[:16] if times else "")
    yield _line(points, lambda point: point.newest, lambda time: _TIMES.y(time, low, high), f'stroke="{_EVENT}" stroke-dasharray="3 2"')
    yield _line(points, lambda point: point.watermark, lambda time: _TIMES.y(time, low, high), f'stroke="{_WATER}" stroke-width="2"')


def _lags(points: Sequence[ChartPoint]) -> Iterator[str]:
    lags = [point.lag for point in points if point.lag is not None]
    most = max(lags, default=0)
    yield _label(_LAGS.top + 5, "lag of the watermark,", _LAG)
    yield _label(_LAGS.top + 22, f"at most {short_duration(most)}" if lags else "unknown", _LAG)
    yield _base(_LAGS)
    yield _line(points, lambda point: point.lag, lambda lag: _LAGS.y(lag, 0, most), f'stroke="{_LAG}" stroke-width="2"')


def _rows(points: Sequence[ChartPoint]) -> Iterator[str]:
    most = max(point.rows for point in points)
    yield _label(_READ.top + 5, "rows read,", _ROWS)
    yield _label(_READ.top + 22, f"at most {most:,}", _ROWS)
    yield _base(_READ)
    bars = " ".join(f"M{_x(points, place):.1f} {_READ.bottom}V{_READ.y(point.rows, 0, most):.1f}" for place, point in _with(points, "rows"))
    if bars:
        yield f'<path class="rows" d="{bars}" stroke="{_ROWS}" stroke-width="{_bar_width(points):.1f}"/>'


def _late(points: Sequence[ChartPoint]) -> Iterator[str]:
    most = max(point.late for point in points)
    yield _label(_TOO_LATE.top + 5, "late rows,", _LATE)
    yield _label(_TOO_LATE.top + 22, f"at most {most:,}", _LATE)
    yield _base(_TOO_LATE)
    width = _bar_width(points)
    for place, point in _with(points, "late"):
        top = min(_TOO_LATE.y(point.late, 0, most), _TOO_LATE.bottom - 1)
        at = f'x="{_x(points, place) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_TOO_LATE.bottom - top:.1f}"'
        yield f'<rect class="late" {at} fill="{_LATE}"/>'


def _with(points: Sequence[ChartPoint], name: str) -> Iterator[tuple[int, ChartPoint]]:
    return ((place, point) for place, point in enumerate(points) if getattr(point, name))


def _x(points: Sequence[ChartPoint], place: int) -> float:
    return _LEFT + (place + 0.5) * (_RIGHT - _LEFT) / len(points)


def _bar_width(points: Sequence[ChartPoint]) -> float:
    return max(1.0, min((_RIGHT - _LEFT) / len(points) * 0.8, 16.0))


def _label(y: int, text: str, color: str = _TEXT) -> str:
    return f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end" fill="{color}">{text}</text>'


def _base(panel: _Panel) -> str:
    return f'<line x1="{_LEFT}" y1="{panel.bottom}" x2="{_RIGHT}" y2="{panel.bottom}" stroke="{_EVENT}" stroke-width="0.5"/>'


def _line(points: Sequence[ChartPoint], pick: _Pick, y: Callable[[int], float], style: str) -> str:
    known = [(_x(points, place), y(value)) for place, point in enumerate(points) if (value := pick(point)) is not None]
    if len(known) == 1:
        # A line of a single point would be invisible.
        known = [(known[0][0] - 2, known[0][1]), (known[0][0] + 2, known[0][1])]
    coordinates = " ".join(f"{a:.1f},{b:.1f}" for a, b in known)
    return f'<polyline points="{coordinates}" fill="none" {style}/>' if known else ""


def _summary(points: Sequence[ChartPoint]) -> str:
    last = points[-1]
    watermark = format_ms(last.watermark) if last.watermark is not None else "none or the end of input"
    behind = f", {short_duration(last.lag)} behind" if last.lag is not None else ""
    rows, late = (sum(counts) for counts in zip(*((point.rows, point.late) for point in points), strict=True))
    return f"epochs {points[0].epoch} to {last.epoch}: watermark {watermark}{behind}, {rows:,} rows, {late:,} late rows"
