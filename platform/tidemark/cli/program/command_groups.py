"""Groups of commands: help by purpose, suggestions for mistyped names, and commands that are loaded on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Final, NamedTuple

import click

from tidemark.cli.program.documented_command import DocumentedCommand, write_examples
from tidemark.errors import TidemarkError

FAILED: Final = 1
TEMPORARY: Final = 75
"""Exit codes: an error; a transient error."""


class Entry(NamedTuple):
    """A command: its location as ``module:name`` within ``tidemark.cli``, and one sentence for the help of its group."""

    place: str
    text: str


_OTHER_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("explain", "plan", "draw", "show"), "graph"),
    **dict.fromkeys(("validate", "verify", "test"), "check"),
    **dict.fromkeys(("jobs", "ls", "ps"), "list"),
    **dict.fromkeys(("kill", "abort"), "cancel"),
    **dict.fromkeys(("init", "create"), "new"),
    **dict.fromkeys(("pause",), "suspend"),
    **dict.fromkeys(("execute", "exec"), "run"),
    **dict.fromkeys(("deploy",), "submit"),
}
"""Commands by the words that other tools have for them."""

Sections = Mapping[str, Mapping[str, Entry]]
"""Commands by name, by purpose; a command may be listed under two."""


class SuggestingGroup(click.Group):
    """Suggests similar commands for an unknown name; its help shows whole sentences.

    Args:
        settings: as click's.
        examples: lines as they are typed in a shell, each beginning with ``tidemark``.
        attributes: as click's.
    """

    command_class = DocumentedCommand

    def __init__(self, *settings: object, examples: Sequence[str] = (), **attributes: object) -> None:
        super().__init__(*settings, **attributes)  # type: ignore[arg-type]  # click's own, passed on unchanged
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples after the commands."""
        write_examples(self.examples, formatter)
        super().format_epilog(ctx, formatter)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that was typed, and its arguments; fails as click does."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            near = [_OTHER_WORDS[name.lower()]] if _OTHER_WORDS.get(name.lower()) in known else get_close_matches(name.lower(), known, n=2)
            meant = f" Did you mean {' or '.join(repr(other) for other in near)}?" if near else ""
            ctx.fail(f"No such command {name!r}.{meant} See `{ctx.command_path} --help`.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with its whole first sentence."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, command.get_short_help_str(limit=10_000)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(SuggestingGroup):
    """Loads a command on first use: loading them all takes longer than most of them run.

    Args:
        sections: the commands by title; the help lists them without loading any.
        attributes: as click's.
    """

    def __init__(self, *, sections: Sections, **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]  # click's own, passed on unchanged
        self.sections = sections
        self._entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted({*super().list_commands(ctx), *self._entries})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None for an unknown name."""
        if cmd_name in self._entries and cmd_name not in self.commands:
            module, _, name = self._entries[cmd_name].place.partition(":")
            self.add_command(getattr(import_module(f"tidemark.cli.{module}"), name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by purpose."""
        del ctx  # the formatter has all that is needed
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.text) for name, entry in section.items()])


class TidemarkGroup(LazyGroup):
    """Prints Tidemark's errors as one line on standard error; the exit code says whether they are transient."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            click.echo(f"tidemark: {error}", err=True)
            ctx.exit(TEMPORARY if error.transient else FAILED)


def entries(*rows: tuple[str, str, str]) -> Mapping[str, Entry]:
    """Return a section from rows of name, place and text."""
    return {name: Entry(place, text) for name, place, text in rows}


def names_of(sections: Sections) -> Sequence[str]:
    """Return the names of all commands, each once."""
    return tuple(dict.fromkeys(name for section in sections.values() for name in section))
