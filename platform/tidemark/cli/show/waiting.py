"""``tidemark wait``: returns when the results of an input are visible in a job's outputs. It reads small files and starts no JVM."""

from __future__ import annotations

from dataclasses import asdict

import click

from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import DURATION, echo_json, existing_store, json_option, store_option
from tidemark.control.client.completion import Completion, Input, InputWatch

FORMS = "epoch:N, file:PATH or kafka:TOPIC:PARTITION:OFFSET; may be given more than once."


@click.command(
    cls=DocumentedCommand,
    examples=("tidemark wait rides --for epoch:42", "tidemark wait fares --for file:landing/fares-7.json --timeout '1 minute'"),
)
@click.argument("job")
@click.option("--for", "wanted", required=True, multiple=True, metavar="INPUT", help=FORMS)
@click.option("--output", default="", help="An output that has to show it.  [default: all]")
@click.option("--source", default="", help="The source that has to read it.  [default: each that reads its topic or folder]")
@click.option("--timeout", type=DURATION, default="10 minutes", show_default=True, help="How long to wait for all of them.")
@store_option
@json_option
def wait(job: str, store: str | None, *, wanted: tuple[str, ...], output: str, source: str, timeout: int, as_json: bool) -> None:
    """Wait until the results of an input are visible in a job's outputs. JOB is a job's name.

    Results that the input will have only later, such as those of a window that the watermark has not passed, come with a later epoch.
    Exits with 75 if the time is over.
    """
    inputs = [Input.parse(each) for each in wanted]
    watch = InputWatch(existing_store(store), job, source=source, output=output)
    for found in watch.wait_for_all(inputs, timeout_ms=timeout, on_progress=lambda each: _say(each, as_json=as_json)):
        if as_json:
            echo_json({**asdict(found), "visible": True})
        else:
            click.echo(f"{found.input} is visible: epoch {found.epoch} of {job} is published")


def _say(found: Completion, *, as_json: bool) -> None:
    if not as_json:
        click.echo(f"waiting for {found.input}: {found.missing}", err=True)
