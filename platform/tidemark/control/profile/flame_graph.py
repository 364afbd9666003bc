"""Draws stacks as a flame graph: an SVG in which a frame is as wide as the share of samples that had it on the stack. Pure.

Roots are at the top. The elements of frames carry their bounds as attributes, which the script of ``profile_page`` zooms by.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Final

from tidemark.control.model.sanitizing import safe_text
from tidemark.control.profile.stacks import Stack

ROW: Final = 17
"""Height of a frame in pixels."""

_LEAST_SHARE: Final = 0.0005
"""Narrower frames are not drawn: less than a pixel."""

_MOST_ROWS: Final = 300
_PACKAGE: Final = re.compile(r"^(?:[a-z_$][a-z0-9_$]*\.)+(?=[A-Z])")
"""The package of a Java class: there is no room for it, and its tip has it."""

_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

STYLE: Final = (
    ".frame text{font:11px monospace;fill:#1a1a1a;pointer-events:none}.frame rect{stroke:#fff;stroke-width:.5}"
    ".frame:hover rect{stroke:#000}"
)


@dataclass
class Frame:
    """A frame on the stacks that have the same frames above it: samples, and the frames that it called, by name."""

    count: int = 0
    called: dict[str, Frame] = field(default_factory=dict)


def tree_of(stacks: Mapping[Stack, int]) -> Frame:
    """Return all stacks as one tree, under a frame for all samples."""
    root = Frame()
    for stack, count in stacks.items():
        root.count += count
        frame = root
        for name in stack:
            frame = frame.called.setdefault(name, Frame())
            frame.count += count
    return root


def flame_graph(stacks: Mapping[Stack, int], *, title: str, hue: int) -> str:
    """Return the SVG of stacks, one ``all samples`` wide.

    Args:
        stacks: the stacks.
        title: what they are of, for readers that cannot see it.
        hue: of the frames' colours, in degrees.
    """
    root = tree_of(stacks)
    drawn = list(_frames("all samples", root, total=max(root.count, 1), hue=hue))
    height = ROW * (1 + max(depth for depth, _ in drawn))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flames" role="img" aria-label="{_text(title)}" width="100%" height="{height}"'
        f' font-family="monospace"><style>{STYLE}</style>'
    )
    return "".join((head, *(element for _, element in drawn), "</svg>\n"))


def _frames(name: str, root: Frame, *, total: int, hue: int) -> Iterator[tuple[int, str]]:
    """Yield depth and element of each frame, callers first; without recursion, since stacks are deep."""
    waiting = [(name, root, 0, 0)]
    while waiting:
        name, frame, start, depth = waiting.pop()
        yield depth, _element(name, frame.count, start=start, depth=depth, total=total, hue=hue)
        begin = start
        for called, below in sorted(frame.called.items()):
            if below.count / total >= _LEAST_SHARE and depth + 1 < _MOST_ROWS:
                waiting.append((called, below, begin, depth + 1))
            begin += below.count


def _element(name: str, count: int, *, start: int, depth: int, total: int, hue: int) -> str:
    # A frame's text is cut off at its end, as a nested SVG hides what is outside of it.
    share = count / total
    left, width = 100 * start / total, 100 * share
    colour = f"hsl({hue + zlib.crc32(name.encode('utf-8', 'replace')) % 30},{55 + zlib.adler32(name.encode('utf-8', 'replace')) % 25}%,68%)"
    return (
        f'<svg class="frame" x="{left:.3f}%" y="{depth * ROW}" width="{width:.3f}%" height="{ROW - 1}"'
        f' data-x="{left:.3f}" data-w="{width:.3f}">'
        f"<title>{_text(name)}: {count:,} samples, {share:.1%}</title>"
        f'<rect width="100%" height="100%" fill="{colour}"/><text x="3" y="{ROW - 5}">{_text(_PACKAGE.sub("", name))}</text></svg>'
    )


def _text(text: str) -> str:
    """Return a text for XML: what it may not hold is replaced."""
    return escape(_NOT_IN_XML.sub("?", safe_text(text)))
