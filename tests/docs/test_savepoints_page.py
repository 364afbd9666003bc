"""The page on savepoints shows commands that there are."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from click import Context

from tests.docs.test_snippets import CHECKOUT
from tidemark.cli.main import main

PAGE = CHECKOUT / "docs/savepoints.md"
COMMANDS = re.findall(r"^\$ tidemark (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(line: str) -> None:
    name, *arguments = shlex.split(line)
    command = main.commands[name]
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    with command.make_context(name, arguments, parent=Context(main)) as context:
        assert context.params


def test_every_command_is_shown() -> None:
    text = PAGE.read_text(encoding="utf-8")
    group = main.commands["savepoint"]
    assert isinstance(group, click.Group)
    assert [name for name in group.commands if f"{name} JOB" not in text and f"{name} taxi" not in text] == []
    assert [name for name in ("rewind", "rescale", "fork", "diff", "discard") if f"tidemark {name} " not in text] == []
