"""Commands whose help has options by purpose and ends with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

OPTIONS: Final = "Options"

_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    OPTIONS: (),
    "The job's code": ("--version", "--code-path", "--folder", "--env"),
    "Spark": ("--launcher", "--master", "--conf", "--parallelism"),
    "Stored state": ("--restore", "--restore-of", "--claim", "--map", "--column", "--allow-non-restored-state", "--missing-epochs"),
    "After a failure": (
        "--restart",
        "--restart-delay",
        "--restart-longest",
        "--restart-multiplier",
        "--restart-jitter",
        "--restart-attempts",
        "--restart-window",
        "--restart-reset-after",
        "--same-epoch-failures",
        "--hang-after",
        "--standby",
    ),
    "Common": ("--store", "--by", "--why", "--wait", "--timeout", "--json", "--help"),
}
"""The sections of a command's options, in the order of its help. An option that none of them names is among the command's own."""

_SECTION_OF: Final = {option: title for title, options in _SECTIONS.items() for option in options}

NAMED_OPTIONS: Final = frozenset(_SECTION_OF)
"""The options that have a section other than ``OPTIONS``."""


class DocumentedCommand(click.Command):
    """A command with examples; its help lists the command's own options first.

    Args:
        settings: as click's.
        examples: lines as they are typed in a shell, each beginning with ``tidemark``.
        attributes: as click's.
    """

    def __init__(self, *settings: object, examples: Sequence[str] = (), **attributes: object) -> None:
        super().__init__(*settings, **attributes)  # type: ignore[arg-type]  # click's own, passed on unchanged
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by purpose."""
        found: dict[str, list[tuple[str, str]]] = {title: [] for title in _SECTIONS}
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        for option in options:
            record = option.get_help_record(ctx)
            if record is not None:
                found[section_of(option)].append(record)
        for title, records in found.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        write_examples(self.examples, formatter)


def section_of(option: click.Option) -> str:
    """Return the title of an option's section."""
    return next((_SECTION_OF[name] for name in option.opts if name in _SECTION_OF), OPTIONS)


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Write examples as they are typed: their lines are not wrapped."""
    if examples:
        with formatter.section("Examples" if len(examples) > 1 else "Example"):
            formatter.write("".join(f"{' ' * formatter.current_indent}{line}\n" for line in examples))
