"""What the page on Iceberg says of each guarantee has a test of that name."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_snippets import CHECKOUT

PAGE = CHECKOUT / "docs/how-to/iceberg.md"


def test_each_guarantee_names_tests_that_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert named
    assert {name for name in named if not (Path(__file__).parent / f"{name}.py").exists()} == set()
