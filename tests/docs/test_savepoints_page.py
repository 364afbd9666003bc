"""The page on savepoints shows commands that there are."""

from __future__ import annotations

import pytest

from tests.command_tree import subcommands
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_snippets import CHECKOUT
from tidemark.cli.program.main import main

PAGE = CHECKOUT / "docs/how-to/savepoints.md"
COMMANDS = commands_of(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


def test_every_command_is_shown() -> None:
    text = PAGE.read_text(encoding="utf-8")
    savepoint = subcommands(main)["savepoint"]
    assert [name for name in subcommands(savepoint) if f"{name} JOB" not in text and f"{name} taxi" not in text] == []
    assert [name for name in ("rewind", "rescale", "fork", "diff", "discard") if f"tidemark {name} " not in text] == []
