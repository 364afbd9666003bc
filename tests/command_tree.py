from __future__ import annotations

import click


def subcommands(group: click.Command) -> dict[str, click.Command]:
    """Return the commands of a group by name, also those that are loaded when they are asked for."""
    assert isinstance(group, click.Group)
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
