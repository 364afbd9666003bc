"""ARCHITECTURE names files that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "platform" / "tidemark"
_PATH = re.compile(r"`([\w./{},]+/[\w./{},]*)`")
_CHOICE = re.compile(r"\{([^{}]*)\}")
_IN_A_STORE = frozenset({"refs/rewind.json"})


def each_path(text: str) -> Iterator[str]:
    """Yield the paths that a text with braces stands for: ``a/{b,c}`` is ``a/b`` and ``a/c``."""
    choice = _CHOICE.search(text)
    if choice is None:
        yield text.rstrip("/")
        return
    for one in choice.group(1).split(","):
        yield from each_path(text[: choice.start()] + one + text[choice.end() :])


def test_paths_are_there() -> None:
    page = (CHECKOUT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = {path for text in _PATH.findall(page) for path in each_path(text)} - _IN_A_STORE
    places = (CHECKOUT, PACKAGE, *(folder for folder in PACKAGE.iterdir() if folder.is_dir()))
    assert len(named) > 100
    assert not [path for path in sorted(named) if not any((place / path).exists() or (place / f"{path}.py").exists() for place in places)]
