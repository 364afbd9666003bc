"""The page of a profile: the flame graphs of the JVM and of Python side by side, and the functions that took most time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tidemark.clock import format_ms
from tidemark.control.model.sanitizing import safe_text
from tidemark.control.profile.flame_graph import flame_graph
from tidemark.control.profile.stacks import Stack, busiest

_STYLE: Final = """
body{font:14px sans-serif;margin:16px;color:#1a1a1a;background:#fff}
.sides{display:flex;flex-wrap:wrap;gap:16px}.side{flex:1 1 560px;min-width:0}
table{border-collapse:collapse;margin:8px 0}td,th{padding:2px 10px 2px 0;text-align:left;font:12px monospace}
td:nth-child(-n+2),th:nth-child(-n+2){text-align:right}.side svg.flames{display:block}.frame{cursor:pointer}
"""

_SCRIPT: Final = """
for (const graph of document.querySelectorAll('svg.flames')) {
  const frames = [...graph.querySelectorAll('svg.frame')];
  graph.addEventListener('click', event => {
    const chosen = event.target.closest('svg.frame');
    if (!chosen) return;
    const left = +chosen.dataset.x, width = +chosen.dataset.w;
    for (const frame of frames) {
      const x = 100 * (frame.dataset.x - left) / width, w = 100 * frame.dataset.w / width;
      frame.style.display = x + w < 0.01 || x > 99.99 ? 'none' : '';
      frame.setAttribute('x', Math.max(x, 0) + '%');
      frame.setAttribute('width', Math.min(x + w, 100) - Math.max(x, 0) + '%');
    }
  });
}
"""


@dataclass(frozen=True)
class Side:
    """One half of a profile.

    Args:
        name: what was sampled, such as ``JVM``.
        stacks: how often each stack was seen.
        about: what a sample is, one sentence.
        hue: of the flame graph, in degrees.
    """

    name: str
    stacks: Mapping[Stack, int]
    about: str
    hue: int

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return sum(self.stacks.values())

    def svg(self, job: str) -> str:
        """Return the flame graph of a job."""
        return flame_graph(self.stacks, title=f"{self.name} of {job}", hue=self.hue)


def profile_page(job: str, sides: Sequence[Side], *, at: int, seconds: int) -> str:
    """Return the page as HTML; it loads nothing from elsewhere.

    Args:
        job: the job's name.
        sides: what was sampled.
        at: when the profile began, in milliseconds.
        seconds: how long it took.
    """
    title = escape(f"Profile of {job}: {seconds} s from {format_ms(at)}")
    return "".join(
        (
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>',
            f"<h1>{title}</h1><p>A frame is as wide as its share of the samples. A click enlarges it; one on the top frame goes back.</p>",
            '<div class="sides">',
            *(_side(job, side) for side in sides),
            f"</div><script>{_SCRIPT}</script></body></html>\n",
        )
    )


def _side(job: str, side: Side) -> str:
    head = f'<section class="side"><h2>{escape(side.name)}: {side.samples:,} samples</h2><p>{escape(side.about)}</p>'
    return f"{head}{side.svg(job)}{_table(side)}</section>"


def _table(side: Side) -> str:
    total = max(side.samples, 1)
    rows = "".join(
        f"<tr><td>{own / total:.1%}</td><td>{all_of_it / total:.1%}</td><td>{escape(safe_text(name))}</td></tr>"
        for name, own, all_of_it in busiest(side.stacks)
    )
    return f"<table><tr><th>itself</th><th>with what it calls</th><th>function</th></tr>{rows}</table>"
