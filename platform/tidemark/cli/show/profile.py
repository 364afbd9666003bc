"""``tidemark profile``: flame graphs of a running driver, of its JVM and its Python, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import click
from rich.console import Console
from rich.progress import Progress

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import echo_json, existing_store, json_option, store_option
from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.control.profile.driver_processes import DriverProcesses, driver_processes
from tidemark.control.profile.profile import Language, Profile, profile_driver, require_new
from tidemark.control.profile.stacks import busiest
from tidemark.control.view.job_views import views
from tidemark.errors import ProfileError

_SHOWN: Final = 5


@click.command(
    cls=DocumentedCommand,
    examples=("tidemark profile rides", "tidemark profile rides --seconds 60 --only python --idle"),
)
@click.argument("job")
@click.option("--seconds", type=click.IntRange(min=1, max=3600), default=30, show_default=True, help="How long to sample.")
@click.option("--output", type=click.Path(path_type=Path), default=None, help="A new folder for the page.  [default: profile-JOB-TIME]")
@click.option("--only", type=click.Choice(["jvm", "python"]), default=None, help="Leave the other one out.  [default: both]")
@click.option("--idle", is_flag=True, help="Also sample Python threads that wait, such as for an answer from a service.")
@store_option
@json_option
def profile(job: str, store: str | None, *, seconds: int, output: Path | None, only: str | None, idle: bool, as_json: bool) -> None:
    """Sample where a running driver spends its time, and draw flame graphs of it. JOB is a job's name.

    Runs on the machine and as the user of the driver, which goes on meanwhile. Needs a JDK for the JVM (jcmd, jfr) and py-spy for Python.
    """
    [(seen, _)] = views(existing_store(store), job)
    found = driver_processes(job, seen.heartbeat)
    folder = (output or Path(f"profile-{job}-{format_ms(SYSTEM_CLOCK.now_ms())[:19].replace(':', '')}")).expanduser().absolute()
    require_new(folder, job)
    with _progress(found, seconds) as on_second:
        made = profile_driver(found, seconds=seconds, only=cast("Language | None", only), idle=idle, on_second=on_second)
    try:
        page = made.write(folder)
    except OSError as error:
        raise ProfileError(f"the profile cannot be written to {folder}: {error.strerror}", fix="give --output FOLDER", job=job) from error
    if as_json:
        echo_json(_plain(made, page))
    else:
        click.echo("\n".join((*_text(made), f"page: {page}")))


@contextmanager
def _progress(found: DriverProcesses, seconds: int) -> Iterator[Callable[[float], None]]:
    """Show a bar on standard error; without a terminal, one line."""
    text = f"sampling {found.job} for {seconds} s: driver {found.python}, JVM {found.jvm}"
    console = Console(stderr=True)
    if not console.is_terminal:
        click.echo(text, err=True)
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(text, total=seconds)
        yield lambda passed: bar.update(task, completed=passed)


def _text(made: Profile) -> Iterator[str]:
    """Yield the functions that took most time by themselves."""
    for side in made.sides:
        yield f"{side.name}: {side.samples:,} samples"
        for name, own, _ in busiest(side.stacks, most=_SHOWN):
            yield f"  {own / side.samples:6.1%}  {name}"


def _plain(made: Profile, page: Path) -> dict[str, object]:
    sides: dict[str, object] = {
        key: {
            "samples": made.stacks[key].total(),
            "functions": [{"name": name, "own": own, "total": total} for name, own, total in busiest(made.stacks[key])],
        }
        for key in made.stacks
    }
    return {"job": made.job, "page": str(page), "seconds": made.seconds, **sides}
