"""``tidemark class-archive``: have Spark start faster on this machine."""

from __future__ import annotations

import click
from rich.console import Console


@click.command("class-archive")
@click.option("--remove", is_flag=True, help="Remove the archive; drivers start as if there had never been one.")
def class_archive(*, remove: bool) -> None:
    """Have Spark start in two thirds of the time: make Java's archive of the classes that a driver loads.

    Takes about a minute and 200 MB in the environment that tidemark is installed in. To be made again after another Java or PySpark was
    installed; until then Spark starts as it did before.
    """
    from tidemark.spark.env.class_archive import make_archive, remove_archive

    if remove:
        click.echo("The archive is removed." if remove_archive() else "There is no archive for this Java and PySpark.")
        return
    with Console(stderr=True).status("Running the jobs from which the archive is made (about a minute)"):
        path = make_archive()
    click.echo(f"Drivers start from {path} now ({path.stat().st_size // 1_000_000} MB).")
