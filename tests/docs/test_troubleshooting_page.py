"""The page on troubleshooting names commands, states and codes that there are."""

from __future__ import annotations

import re

import pytest

from tests.command_tree import subcommands
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_error_codes_page import classes_with_code
from tests.docs.test_snippets import CHECKOUT, PAGES
from tidemark.assets import StateFits
from tidemark.assets.definitions.broken_code import CODE_CHECK
from tidemark.assets.definitions.job_health import HEALTH_CHECK
from tidemark.cli.program.main import main

PAGE = (CHECKOUT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
OPERATIONS = (CHECKOUT / "docs/how-to/operations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", [*commands_of(PAGE), *re.findall(r"`tidemark ([\w-]+ (?:\w+ )?rides[^`]*)`", PAGE)])
def test_each_command_is_understood(line: str) -> None:
    require_understood(line)


def test_each_command_that_is_named_exists() -> None:
    named = set(re.findall(r"`tidemark ([\w-]+)", PAGE))
    assert len(named) > 8
    assert named <= set(subcommands(main))


def test_codes_and_states_are_those_of_the_other_pages() -> None:
    assert set(re.findall(r"TM\d{3}", PAGE)) <= {error.code for error in classes_with_code()}
    states = re.findall(r"^\| `([a-z]+)`(?:, or `([a-z]+)`)? \|", PAGE, re.MULTILINE)
    assert len(states) >= 4
    assert [state for pair in states for state in pair if state and f"`{state}`" not in OPERATIONS] == []


def test_checks_that_pages_name_exist() -> None:
    """Those that a code location has without being asked; a page says "the check" before such a name."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES if page.name != "CHANGELOG.md"]
    assert {name for text in texts for name in re.findall(r"\bcheck `([a-z_]+)`", text)} == {HEALTH_CHECK, CODE_CHECK, StateFits().name}
