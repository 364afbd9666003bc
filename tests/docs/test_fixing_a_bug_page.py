"""The walk-through of a bug and its fix: its files make the results that it shows, and it shows commands that there are."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import tidemark as tm
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    snippets,
)
from tidemark.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/fixing-a-bug.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = commands_of(TEXT)
FILES = ("tips", "land", "show", "tips_mean", "tips_v2", "tips_nought")
WRONG = {"Airport": 20.0, "Harbour": 16.7, "Old Town": 9.1}
RIGHT = {"Airport": 25.0, "Harbour": 20.0, "Old Town": 10.0}


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_what_was_wrong_is_put_right(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    tips, land, mean, fixed = saved("tips", "land", "tips_mean", "tips_v2")
    for number in range(13):
        land.land(number)
        if number % 4 == 0:
            tm.run(tips.job)
    assert shown(capsys) == in_hours(WRONG, 3)
    typed("savepoint", "trigger", "tips", "--name", "clean", "--epoch", "0")

    refused = typed("check", "tips_mean:job", code=1)
    assert without_lineage(refused.output) in without_lineage(TEXT)
    assert without_lineage(typed("check", "tips_v2:job", "--against", "clean").output) in without_lineage(TEXT)
    with pytest.raises(tm.TidemarkError, match="was sql_aggregate"):
        tm.run(mean.job)

    for number in range(13, 17):
        land.land(number)
    tm.run(fixed.job)
    assert shown(capsys) == in_hours(WRONG, 3) | in_hours(RIGHT, 1), "an hour that was open at the change is right"

    typed("rewind", "tips", "--to", "clean", "--dry-run")
    typed("rewind", "tips", "--to", "clean")
    tm.run(fixed.job)
    assert shown(capsys) == in_hours(RIGHT, 4)


def in_hours(percentages: dict[str, float], hours: int) -> set[tuple[str, float, int]]:
    return {(zone, percent, hours) for zone, percent in percentages.items()}


def saved(*names: str) -> tuple[ModuleType, ...]:
    """Save the page's files as it says, and import some of them."""
    found = {snippet.module: snippet.code for snippet in snippets(PAGE)}
    assert tuple(found) == FILES
    # Spark looks from the folder that its JVM was started in, which for the session of all tests is not this one.
    assert found["tips"].count('tm.files("landing"') == 1
    found["tips"] = found["tips"].replace('tm.files("landing"', f'tm.files("{Path.cwd()}/landing"')
    for name, code in found.items():
        Path(f"{name}.py").write_text(code, encoding="utf-8")
    return tuple(importlib.import_module(name) for name in names)


def typed(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == code, result.output
    return result


def shown(capsys: pytest.CaptureFixture[str]) -> set[tuple[str, float, int]]:
    """What ``show.py`` prints: zones, percentages, and in how many hours."""
    capsys.readouterr()
    runpy.run_path("show.py")
    lines = re.findall(r"^(.+?) +([\d.]+) % +in (\d+) hours$", capsys.readouterr().out, re.MULTILINE)
    return {(zone, float(percent), int(hours)) for zone, percent, hours in lines}


def without_lineage(text: str) -> str:
    """Leave out what differs from run to run."""
    return re.sub(r"against epoch \d+ of lineage \w+|[\d,]+ rows of state", "…", text)
