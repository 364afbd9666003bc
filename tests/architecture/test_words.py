"""Words that no page, message or docstring has: idioms for which Flink's, Spark's and Dagster's docs have a term."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import CHECKOUT, package_sources

PAGES = (
    CHECKOUT / "README.md",
    CHECKOUT / "ARCHITECTURE.md",
    *sorted((CHECKOUT / "docs").glob("*.md")),
    *sorted((CHECKOUT / "docs").glob("*/*.md")),
)
HISTORY = CHECKOUT / "docs" / "adr"
"""Decisions say what was thought at their time, in its words."""

IDIOMS = {
    "anew": "again, or: new",
    "at hand": "current, or: in progress",
    "held against": "compared with",
    "stands against": "conflicts with, or: blocks",
    "goes on from": "resumes from, or: continues after",
    "go on from": "resume from, or: continue after",
    "whoever": "the process, user or caller that is meant",
    "lets go of": "releases",
    "let go of": "release",
    "feel the pulse": "poll",
}
_FOUND = re.compile(r"\b(" + "|".join(words.replace(" ", r"\s+") for words in IDIOMS) + r")\b", re.IGNORECASE)


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield a file's prose with the number of its first line: of Python the strings and comments."""
    if path.suffix != ".py":
        yield 1, path.read_text(encoding="utf-8")
        return
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in {tokenize.STRING, tokenize.COMMENT}:
                yield token.start[0], token.string


def idioms_in(path: Path) -> list[str]:
    """Return the places of idioms in a file, each with what to write."""
    found = []
    for first, text in prose_of(path):
        for idiom in _FOUND.finditer(text):
            words, line = " ".join(idiom[0].lower().split()), first + text.count("\n", 0, idiom.start())
            found.append(f"{path.relative_to(CHECKOUT)}:{line}: {words!r}; write {IDIOMS[words]}")
    return found


def test_pages_messages_and_docstrings_have_the_fields_words() -> None:
    files = [*(source.path for source in package_sources()), *(page for page in PAGES if HISTORY not in page.parents)]
    assert len(files) > 500
    assert [found for path in files for found in idioms_in(path)] == []


def test_idioms_are_found() -> None:
    """Also across the end of a line.

    As here: a line that ends is not held
    against the list.
    """
    places = idioms_in(Path(__file__).resolve())
    assert {idiom for idiom in IDIOMS if any(f": {idiom!r};" in place for place in places)} == set(IDIOMS)
    assert sum("'held against'" in place for place in places) >= 2
