"""What comes from data is shown as text: no links, no images, no HTML on Dagster's pages."""

from __future__ import annotations

import pytest

from tidemark.assets.checks.sample_rows import sample_markdown
from tidemark.assets.values.markdown import as_plain

pytestmark = pytest.mark.dagster

EVIL = "![x](https://x.y/pixel.png) <img src=x> [a](b) `c` *d* | e & ~~f~~ \\g"


def test_no_character_of_the_data_means_anything() -> None:
    shown = as_plain(EVIL)
    assert shown.replace("\\", "") == EVIL.replace("\\", "")
    for number, character in enumerate(shown):
        if character in "`*[]<>|&~":
            assert shown[number - 1] == "\\", shown[: number + 1]
    assert shown.endswith("\\\\g")


def test_lines_and_cells_stay_apart() -> None:
    table = sample_markdown([{"a|b": "one\ntwo\r\n# three", "n": EVIL}])
    header, rule, row = table.splitlines()
    assert rule == "|---|---|"
    for line in (header, row):
        assert len(line.replace("\\|", "").split("|")) == 4
    assert "!\\[x\\]" in row
    assert "\\<img" in row
