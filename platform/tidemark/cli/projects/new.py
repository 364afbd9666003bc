"""``tidemark new``: a project that runs, to be changed into one's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.projects.package_names import require_package_name
from tidemark.cli.projects.rendering import TEMPLATES, TemplateName, render
from tidemark.cli.projects.writing import write_folder
from tidemark.errors import DefinitionError

_EXAMPLES: Final = ("tidemark new rides", "tidemark new clicks --template kafka --in ~/projects")


@click.command(cls=DocumentedCommand, examples=_EXAMPLES)
@click.argument("name")
@click.option("--template", type=click.Choice(TEMPLATES), default="taxi", show_default=True, help="What the project begins with.")
@click.option("--in", "parent", default=".", metavar="FOLDER", help="The folder to create it in.  [default: this one]")
def new(name: str, template: TemplateName, parent: str) -> None:
    """Create a project that runs: a job, a generator of data, Dagster definitions and a test. NAME is the project's and the job's.

    taxi has late, rejected and malformed rows, kafka the same over a topic, minimal nothing but a window. It is written into a folder of
    that name, which must be missing or empty; nothing is installed or started.
    """
    package = require_package_name(name)
    folder = _expanded(parent) / package
    files = render(template, package)
    write_folder(folder, files)
    click.echo(f"{folder}: {len(files)} files of the template {template}. Next:")
    for line in next_steps(package, folder, template):
        click.echo(f"  {line}")


def _expanded(parent: str) -> Path:
    try:
        return Path(parent).expanduser()
    except RuntimeError as error:
        raise DefinitionError(f"--in {parent}: {error}", fix="give the folder without ~") from error


def next_steps(package: str, folder: Path, template: TemplateName) -> tuple[str, ...]:
    """Return the commands that run a new project, as the README explains them."""
    return (
        f"cd {shlex.quote(str(folder))}",
        "pip install -e '.[dev]'",
        *(("tidemark connectors install kafka",) if template == "kafka" else ()),
        f"python -m {package}    # in a terminal of its own: submits the job, and writes data for it",
        "dagster dev    # http://127.0.0.1:3000",
    )
