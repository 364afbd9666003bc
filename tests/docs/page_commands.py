"""Commands that pages show: each has to be one that there is, with the arguments and options that it is given."""

from __future__ import annotations

import re
import shlex

import click

from tests.command_tree import subcommands
from tidemark.cli.program.main import main


def commands_of(text: str) -> list[str]:
    """Return what a page types behind ``tidemark``, line by line."""
    return re.findall(r"^\$ tidemark (.+?)(?: &)?$", text, re.MULTILINE)


def require_understood(line: str) -> None:
    """Parse a command as the command line does, without running it."""
    name, *arguments = shlex.split(line)
    command = subcommands(main)[name]
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = subcommands(command)[name]
    with command.make_context(name, arguments, parent=click.Context(main)) as context:
        assert context.params
