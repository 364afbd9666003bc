"""Commands whose exit code is an answer, for continuous integration: 0 for yes, 1 for no. Errors therefore have other codes."""

from __future__ import annotations

import traceback
from typing import Final

import click

from tidemark.cli.program.command_groups import TEMPORARY
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.errors import TidemarkError

EXIT_NO: Final = 1
EXIT_FAILED: Final = 2
EXIT_INTERRUPTED: Final = 130
"""Exit codes: the answer is no (different, incompatible); an error, as with ``diff`` and ``grep``; Ctrl-C, as in shells."""


class YesNoCommand(DocumentedCommand):
    """A command whose exit code 1 is an answer; every error ends it with another code."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            click.echo(f"tidemark: {error}", err=True)
            ctx.exit(TEMPORARY if error.transient else EXIT_FAILED)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(EXIT_INTERRUPTED)
        except Exception:  # noqa: BLE001 - Python's own exit code for it is 1
            traceback.print_exc()
            ctx.exit(EXIT_FAILED)
