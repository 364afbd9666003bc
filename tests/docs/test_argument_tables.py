"""The tables of arguments have all of them, with their defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

from tests.docs.test_snippets import CHECKOUT
from tidemark.graph.job.job import Job
from tidemark.spark.loop.run import run

ROW = re.compile(r"^\| `(\w+)` \| ([^|]*?) ?\|", re.MULTILINE)
SHOWN = {"clock": "the machine's", "tags": "`{}`"}
"""Defaults that have no text of their own in Python."""


@pytest.mark.parametrize(
    ("page", "heading", "function"),
    [("docs/how-to/running.md", "### Arguments of `tm.run`", run), ("docs/reference/jobs.md", "## The job", Job)],
    ids=["run", "Job"],
)
def test_the_table_is_as_the_signature(page: str, heading: str, function: Callable[..., object]) -> None:
    part = (CHECKOUT / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    shown = dict(ROW.findall(re.split(r"^#", part, maxsplit=1, flags=re.MULTILINE)[0]))
    wanted = {
        name: "" if parameter.default is parameter.empty else SHOWN.get(name, f"`{parameter.default!r}`".replace("'", '"'))
        for name, parameter in inspect.signature(function).parameters.items()
    }
    assert shown == wanted
