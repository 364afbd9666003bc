"""The page on upgrades shows commands, jobs and forms that there are."""

from __future__ import annotations

import re
from typing import get_args

import dagster as dg
import pytest

from tests.command_tree import subcommands
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_snippets import CHECKOUT, snippets
from tidemark.cli.program.main import main
from tidemark.control.model.upgrade_records import Step
from tidemark.operations import savepoint_jobs

PAGE = CHECKOUT / "docs/how-to/upgrade.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = commands_of(TEXT)


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


def test_every_option_that_is_named_is_there() -> None:
    command = subcommands(main)["upgrade"]
    there = {option for parameter in command.params for option in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", TEXT))
    assert named - there == set()


def test_every_step_is_explained() -> None:
    shown = {step.replace("-", " ") for step in get_args(Step)} - {"going back", "accepting"}
    assert [step for step in shown if f"`{step.replace(' ', '-')}`" not in TEXT] == []


@pytest.mark.dagster
def test_every_operation_is_there() -> None:
    defs = savepoint_jobs(store="jobs")
    there = {job.name.removeprefix("tidemark_") for job in defs.jobs or () if isinstance(job, dg.JobDefinition)}
    table = TEXT[TEXT.index("| `do` |") :].split("\n\n", 1)[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {"do", *there}


def test_the_function_can_be_defined() -> None:
    found = snippets(PAGE)
    space: dict[str, object] = {}
    exec(compile(found[0].code, found[0].place, "exec"), space)  # noqa: S102 - what the page shows
    assert callable(space["upgrade"])
