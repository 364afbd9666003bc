"""``tidemark connectors``: installs the jars of Spark's connectors, which PySpark does not contain."""

from __future__ import annotations

import click

from tidemark.cli.program.command_groups import SuggestingGroup
from tidemark.cli.program.options import echo_json, json_option
from tidemark.spark.env.connector_jars import CONNECTORS, Jar, connectors_folder, install, installed


@click.group(cls=SuggestingGroup, examples=("tidemark connectors install kafka",))
def connectors() -> None:
    """Install the jars of Spark's connectors, which PySpark does not contain."""


@connectors.command("install", examples=("tidemark connectors install kafka",))
@click.argument("name")
def install_connector(name: str) -> None:
    """Download the jars of a connector; NAME is kafka, avro, postgres or s3. Sessions that Tidemark starts have them from then on.

    The versions are pinned, and each file's SHA-256 is checked. $TIDEMARK_CONNECTORS names another folder, $TIDEMARK_MAVEN_REPOSITORY
    another repository than Maven Central.
    """
    files = install(name, on_file=_say)
    click.echo(f"{name}: {len(files)} jars in {files[0].parent}")


def _say(jar: Jar, there: bool) -> None:  # noqa: FBT001 - as the caller gives it
    click.echo(f"{jar} is there" if there else f"downloading {jar}", err=True)


@connectors.command("list", examples=("tidemark connectors list",))
@json_option
def list_connectors(*, as_json: bool) -> None:
    """List the connectors, and which of them are installed."""
    for name, jars in CONNECTORS.items():
        is_there = bool(installed(name))
        if as_json:
            echo_json(
                {"connector": name, "installed": is_there, "jars": [str(jar) for jar in jars], "folder": str(connectors_folder() / name)}
            )
        else:
            click.echo(f"{name}: {'installed' if is_there else f'not installed; `tidemark connectors install {name}`'}")
