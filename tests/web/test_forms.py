"""The forms of the API have what the commands' options have, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import click
import pytest

from tests.command_tree import subcommands
from tidemark.cli.program.main import main
from tidemark.web.api.table import ROUTES

FORMS = {route.name: route.form for route in ROUTES}

OF_ALL = {"job": "", "store": "", "as_json": "", "by": ""}
"""The job is in the address, the store is the server's, and the token is the author."""

CODE = {"allow": "allow_non_restored_state"}
RESTART = dict.fromkeys(
    (
        "kind",
        "restart_delay",
        "restart_longest",
        "restart_multiplier",
        "restart_jitter",
        "restart_attempts",
        "restart_window",
        "restart_reset_after",
        "same_epoch_failures",
    ),
    "restart",
)

PAIRS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "start_job": ("start", {}),
    "stop_job": ("stop", {}),
    "cancel_job": ("cancel", {}),
    "restart_job": ("restart", {}),
    "rescale_job": ("rescale", {}),
    "submit_job": (
        "submit",
        {"name": "", "lag_warn": "alerts", "lag_error": "alerts", "late_warn": "alerts", "late_error": "alerts", **RESTART},
    ),
    "take_savepoint": ("savepoint trigger", {}),
    "export_savepoint": ("savepoint export", {"name": ""}),
    "import_savepoint": ("savepoint import", {}),
    # A dry run and an abort have addresses of their own.
    "rewind_job": ("rewind", {"name": "savepoint", "stop_first": "stop", "abort": "", "dry_run": ""}),
    # Reading has a route of its own.
    "autoscale_job": ("autoscale", {"config": "settings", "limit": ""}),
    "fork_job": ("fork", {**CODE, "suspended": "start"}),
    "upgrade_job": ("upgrade", {**CODE, "back_to": "savepoint", "within": "checks_within", "abort": "", "accept": ""}),
    "promote_fork": ("promote", {"fork": "", "within": "checks_within"}),
}
"""Route, command, and the fields of options that have another name; empty for an option that is no field."""


def options(path: str) -> set[str]:
    command: click.Command = main
    for word in path.split():
        command = subcommands(command)[word]
    return {str(each.name) for each in command.params if not getattr(each, "hidden", False)}


@pytest.mark.parametrize("name", PAIRS)
def test_every_option_has_a_field_and_every_field_an_option(name: str) -> None:
    command, renamed = PAIRS[name]
    names = {**OF_ALL, **renamed}
    meant = {names.get(option, option) for option in options(command)} - {""}
    assert {field.name for field in fields(FORMS[name])} == meant


def test_every_change_is_paired_or_has_a_form_of_its_own() -> None:
    own = {
        "dispose_of_savepoint", "retire_savepoints", "abort_rewind", "check_code", "abort_upgrade", "accept_upgrade", "report_check",
        "discard_fork", "restore_job", "begin_silence", "end_silence_early",
    }  # fmt: skip
    assert {route.name for route in ROUTES if route.method != "GET"} == {*PAIRS, *own}
