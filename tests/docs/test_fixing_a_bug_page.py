"""The walk-through of a bug and its fix: a reader who types what it shows, sees what it shows. Drivers really run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.page_commands import commands_of, require_understood
from tests.docs.page_walk import Step, Walk, like, steps_of
from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    snippets,
)
from tests.seeds import only_long
from tidemark.state.status.log_folder import LOGS_VARIABLE

PAGE = CHECKOUT / "docs/how-to/fixing-a-bug.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = commands_of(TEXT)
FILES = ("tips", "land", "show", "tips_mean", "tips_v2", "tips_nought")

BESIDE = "## Try it beside the job first"
"""From here on the page shows another run of it."""

COLUMNS_ONLY = ("history", "list", "savepoint list")
"""What these show of a job at some moment is another thing each time."""


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


@only_long
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("part", ["on the job itself", "beside the job"])
def test_what_is_typed_shows_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    monkeypatch.setenv(LOGS_VARIABLE, str(tmp_path / "logs"))
    monkeypatch.setenv("TIDEMARK_STORE", "")
    first, second = (steps_of(part) for part in TEXT.split(BESIDE))
    begin = [step for step in first if step.command.startswith(("export", "mkdir", "python land")) or step.verb == "submit"]
    taken = [step for step in first if step.verb == "savepoint trigger"]
    assert (len(begin), len(taken)) == (4, 1)
    folder = tmp_path / "walk"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    walked([*begin, *taken, *second] if part == "beside the job" else first, Walk(saved().land))


def walked(steps: list[Step], walk: Walk) -> None:
    """Do the steps, and hold what is said against what the page shows."""
    try:
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if step.verb in {"diff", "stop"}:
                walk.rest("tips", "tips-percent")
            elif step.verb in {"upgrade", "promote"}:
                walk.go_on()
            elif step.verb in {"savepoint trigger", "python show.py"}:
                walk.wait_for_hours(3)
            said = walk.do(step)
            told = step.verb == "diff" or (following is not None and following.command == "echo $?")
            assert told or walk.code == 0 or not step.command.startswith("tidemark"), f"{step.command}: {said}"
            require_alike(step, said)
    finally:
        walk.end()


def require_alike(step: Step, said: str) -> None:
    found, shown = like(said), like(step.shown)
    if step.verb in COLUMNS_ONLY and "--changes" not in step.command:
        assert columns(found[0]) == columns(shown[0]), step.command
    elif "…" in shown:
        assert [line for line in shown if line != "…" and line not in found] == [], step.command
    else:
        assert found == shown, step.command


def columns(line: str) -> list[str]:
    return re.split(r" {2,}", line)


def saved() -> ModuleType:
    """Save the page's files as it says, and return that which lands files."""
    found = {snippet.module: snippet.code for snippet in snippets(PAGE)}
    assert tuple(found) == FILES
    for name, code in found.items():
        Path(f"{name}.py").write_text(code, encoding="utf-8")
    return importlib.import_module("land")
