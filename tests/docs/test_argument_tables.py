"""The tables of arguments have all of them, with their defaults."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    snippets,
    write_first_job,
)
from tidemark.control.model.spec import AlertThresholds, JobSpec, RestartPolicy
from tidemark.graph.job.job import Job
from tidemark.operations import build_job_definitions
from tidemark.spark.loop.run import run

ROW = re.compile(r"^\| `(\w+)` \| ([^|]*?) ?\|", re.MULTILINE)
SHOWN = {
    "clock": "the machine's",
    "launchers": "all",
    **dict.fromkeys(("tags", "conf", "variables"), "`{}`"),
    "restart": "[`RestartPolicy()`](#restartpolicy)",
    "alerts": "[`AlertThresholds()`](#alertthresholds)",
    "autoscaler": "[`AutoscalerSettings()`](../how-to/autoscaler.md#settings)",
}
"""Defaults that have no short text of their own in Python."""


@pytest.mark.parametrize(
    ("page", "heading", "function"),
    [
        ("docs/how-to/running.md", "### Arguments of `tm.run`", run),
        ("docs/reference/jobs.md", "## The job", Job),
        ("docs/how-to/dagster-running-on.md", "### Arguments", build_job_definitions),
        ("docs/reference/spec.md", "## JobSpec", JobSpec),
        ("docs/reference/spec.md", "## RestartPolicy", RestartPolicy),
        ("docs/reference/spec.md", "## AlertThresholds", AlertThresholds),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_table_is_as_the_signature(page: str, heading: str, function: Callable[..., object]) -> None:
    part = (CHECKOUT / page).read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    shown = dict(ROW.findall(re.split(r"^#", part, maxsplit=1, flags=re.MULTILINE)[0]))
    wanted = {
        name: "" if parameter.default is parameter.empty else SHOWN.get(name, f"`{parameter.default!r}`".replace("'", '"'))
        for name, parameter in inspect.signature(function).parameters.items()
    }
    assert shown == wanted


@pytest.mark.dagster
@pytest.mark.filterwarnings(r"ignore:The `__fields__` attribute is deprecated")  # Dagster's, over pydantic
@pytest.mark.usefixtures("elsewhere")
def test_the_spec_of_the_page_submits_its_job() -> None:
    import dagster as dg

    write_first_job(Path())
    (snippet,) = snippets(CHECKOUT / "docs/reference/spec.md")
    space: dict[str, object] = {"__name__": "definitions"}
    exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - the project's own page
    defs = space["defs"]
    assert isinstance(defs, dg.Definitions)
    assert "fares_operate" in {job.name for job in defs.resolve_all_job_defs()}
