"""The ``tidemark`` command: run a job, have it run on, see how it is, what it did, and how it is built.

Only ``run`` and ``state show JOB UID`` start a JVM in this process; ``submit``, ``start``, ``restart`` and ``supervise``
start drivers that have their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

from tidemark.cli.options import TidemarkGroup

_COMMANDS: Final[Mapping[str, str]] = {
    "run": "running:run",
    "graph": "running:graph",
    "check": "checking:check_job",
    "state": "state_showing:state",
    "submit": "submitting:submit",
    "start": "steering:start",
    "stop": "steering:stop",
    "cancel": "steering:cancel",
    "restart": "steering:restart",
    "suspend": "steering:suspend",
    "resume": "steering:resume",
    "list": "looking:list_jobs",
    "status": "looking:status",
    "history": "looking:history",
    "logs": "looking:logs",
    "top": "top:top",
    "supervise": "supervising:supervise",
    "silence": "silencing:silence",
    "savepoint": "savepointing:savepoint",
    "rewind": "rewinding:rewind",
    "rescale": "rewinding:rescale",
    "fork": "forking:fork",
    "diff": "forking:diff",
    "discard": "forking:discard",
    "promote": "upgrading:promote",
    "upgrade": "upgrading:upgrade",
    "class-archive": "archiving:class_archive",
}


class _Commands(TidemarkGroup):
    """Loads a command when it is asked for: to load them all takes longer than most of them run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, as the help has them."""
        return sorted({*super().list_commands(ctx), *_COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None where there is none of that name."""
        if cmd_name in _COMMANDS and cmd_name not in self.commands:
            module, _, name = _COMMANDS[cmd_name].partition(":")
            self.add_command(getattr(import_module(f"tidemark.cli.{module}"), name), cmd_name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark")
def main() -> None:
    """Event-time streams on Spark, with Flink's semantics."""
