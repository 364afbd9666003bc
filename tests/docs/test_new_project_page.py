"""The page on new projects shows what the command prints, the files that it writes, and commands that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.docs.page_commands import commands_of, require_understood
from tests.docs.page_walk import Step, steps_of
from tests.docs.test_snippets import CHECKOUT
from tidemark.cli.program.main import main
from tidemark.cli.projects.rendering import TEMPLATES, render

TEXT = (CHECKOUT / "docs/how-to/new-project.md").read_text(encoding="utf-8")
TYPED = re.findall(r"`tidemark ([a-z].*?)`", TEXT)


@pytest.mark.parametrize("line", [*commands_of(TEXT), *TYPED])
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


@pytest.mark.parametrize("step", steps_of(TEXT), ids=lambda step: step.command)
def test_each_command_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, step.command.split()[1:]).output == step.shown


def test_every_file_and_every_template_is_named() -> None:
    files = {path for path in render("taxi", "rides") if path not in {"rides/__init__.py", "data/landing/.gitkeep"}}
    assert [path for path in sorted(files) if f"`{path}`" not in TEXT] == []
    assert [template for template in TEMPLATES if f"| `{template}`" not in TEXT] == []
