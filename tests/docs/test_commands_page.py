"""The page of all commands has what their help says, and the variables of the environment that the code reads."""

from __future__ import annotations

import re

import pytest

from docs.reference import commands
from tests.architecture.sources import package_places
from tests.docs.page_commands import commands_of, require_understood
from tests.docs.test_snippets import CHECKOUT, PAGES

PAGE = commands.PLACE.read_text(encoding="utf-8")
INTERNAL = {"TIDEMARK_DRIVER", "TIDEMARK_SCRATCH", "TIDEMARK_SESSION"}
"""Set by launchers for the processes that they start."""


def test_the_page_is_as_the_commands_are() -> None:
    assert commands.page() == PAGE, "run python -m docs.reference.commands"


def test_every_variable_that_the_code_reads_is_listed() -> None:
    files = (path for folder in package_places().values() for path in folder.rglob("*.py"))
    read = {name for path in files for name in re.findall(r"\bTIDEMARK_[A-Z_]+\b", path.read_text(encoding="utf-8"))}
    assert len(read) > 5
    assert set(re.findall(r"^\| `(TIDEMARK_[A-Z_]+)`", PAGE, re.MULTILINE)) == read - INTERNAL


def typed() -> dict[str, str]:
    """Return the commands that all pages type, with one of their pages."""
    found = {}
    for page in PAGES:
        if "adr" not in page.parts:
            for line in commands_of(page.read_text(encoding="utf-8")):
                found[re.split(r" \| | >> |  +#", line)[0]] = str(page.relative_to(CHECKOUT))
    return found


TYPED = typed()


@pytest.mark.parametrize("line", sorted(TYPED))
def test_each_command_of_each_page_is_understood(line: str) -> None:
    try:
        require_understood(line)
    except Exception as error:
        raise AssertionError(f"{TYPED[line]}: {line}") from error
