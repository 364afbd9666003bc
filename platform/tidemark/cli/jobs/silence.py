"""``tidemark silence``: suppresses alerts for a time, such as during maintenance."""

from __future__ import annotations

import click

from tidemark.cli.program.command_groups import SuggestingGroup
from tidemark.cli.program.options import DURATION, echo_json, existing_store, json_option, open_store, request_options, store_option
from tidemark.clock import SYSTEM_CLOCK, format_ms
from tidemark.control.alerts.engine.alert_silences import Silence, add_silence, end_silence, read_silences
from tidemark.control.alerts.model.alert_settings import RULES
from tidemark.control.desired.spec_store import current_user
from tidemark.errors import DefinitionError


@click.group(cls=SuggestingGroup, examples=("tidemark silence add move --for '2 hours'", "tidemark silence list"))
def silence() -> None:
    """Silence alerts for a time. A condition that still holds when the silence ends is notified then."""


@silence.command("add", examples=("tidemark silence add move --for '2 hours' --jobs 'rides*' --why 'the lake moves'",))
@click.argument("name")
@store_option
@click.option("--for", "lasts", type=DURATION, required=True, help="How long, such as '2 hours'.")
@click.option("--jobs", default="*", show_default=True, help="Names of jobs, with * and ?.")
@click.option("--rule", type=click.Choice(RULES), default=None, help="One rule only.  [default: all]")
@request_options
def add(name: str, store: str | None, lasts: int, jobs: str, rule: str | None, *, by: str, why: str) -> None:
    """Begin a silence; NAME is a name of your choice, with which you can end it."""
    now = SYSTEM_CLOCK.now_ms()
    chosen = next((known for known in RULES if known == rule), None)
    made = Silence(name, until=now + lasts, jobs=jobs, rule=chosen, at=now, by=by or current_user(), why=why)
    add_silence(open_store(store), made)
    click.echo(_line(made))


@silence.command("end", examples=("tidemark silence end move",))
@click.argument("name")
@store_option
def end(name: str, store: str | None) -> None:
    """End a silence early."""
    if not end_silence(existing_store(store), name):
        raise DefinitionError(f"there is no silence {name!r}", fix="`tidemark silence list` shows the names")
    click.echo(f"{name}: ended")


@silence.command("list", examples=("tidemark silence list",))
@store_option
@json_option
def list_silences(store: str | None, *, as_json: bool) -> None:
    """Show the silences that have not ended."""
    for found in read_silences(existing_store(store), SYSTEM_CLOCK.now_ms()):
        if as_json:
            echo_json(found)
        else:
            click.echo(_line(found))


def _line(found: Silence) -> str:
    about = f"{found.rule or 'all rules'} of {found.jobs}"
    why = f": {found.why}" if found.why else ""
    return f"{found.name}: {about} until {format_ms(found.until)}, by {found.by}{why}"
