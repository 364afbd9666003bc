"""The page of the autoscaler shows settings, commands and a job that there are."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tests.command_tree import subcommands
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_snippets import CHECKOUT
from tidemark.cli.program.main import main
from tidemark.control.autoscaler.autoscaler_config import parse_autoscaler_config
from tidemark.control.model.autoscaler_settings import AutoscalerSettings

TEXT = (CHECKOUT / "docs/how-to/autoscaler.md").read_text(encoding="utf-8")
TABLE = TEXT[TEXT.index("| setting | option |") :].split("\n\n", 1)[0]


@pytest.mark.parametrize("line", commands_of(TEXT))
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


def test_the_file_is_read() -> None:
    [shown] = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    expected = AutoscalerSettings(
        catch_up_ms=60_000,
        window_ms=60_000,
        stabilization_ms=30_000,
        scale_down_interval_ms=1_200_000,
        quiet_times=("Mon-Fri 01:00-05:00",),
        zone="Europe/Berlin",
    )
    assert parse_autoscaler_config(shown, place="the page") == expected


def test_every_setting_is_in_the_table_and_every_option_there_is() -> None:
    named = set(re.findall(r"`([a-z_]+)`", "\n".join(line.split("|")[1] for line in TABLE.splitlines())))
    assert named == {field.name.removesuffix("_ms") for field in fields(AutoscalerSettings)}
    command = subcommands(main)["autoscale"]
    options = {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)`", TABLE)) <= options


def test_defaults_are_those_of_the_settings() -> None:
    default = AutoscalerSettings()
    rows = {cells[1].strip(): cells[3].strip() for cells in (line.split("|") for line in TABLE.splitlines()[2:])}
    assert rows["`utilization_target`"] == str(default.utilization_target)
    assert rows["`utilization_min`, `utilization_max`"] == f"{default.utilization_min}, {default.utilization_max}"
    assert rows["`max_changes_per_day`"] == str(default.max_changes_per_day)
    assert rows["`scale_up_max_factor`"] == f"{default.scale_up_max_factor:g}"
    assert rows["`scale_down_max_factor`"] == str(default.scale_down_max_factor)
    assert rows["`effectiveness_threshold`"] == str(default.effectiveness_threshold)
    assert (default.catch_up_ms, default.window_ms, default.stabilization_ms) == (1_800_000, 900_000, 300_000)
    assert [rows[name] for name in ("`catch_up`", "`window`", "`stabilization`")] == ["30 minutes", "15 minutes", "5 minutes"]
