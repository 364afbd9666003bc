"""The page on connectors answers the same questions of each, and every answer names tests that are there."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.test_snippets import CHECKOUT

PAGE: Final = (CHECKOUT / "docs/reference/connectors.md").read_text(encoding="utf-8")
SECTIONS: Final = dict(section.split("\n", 1) for section in PAGE.split("\n## ")[1:])
QUESTIONS: Final = ["guarantee", "replay", "a crash", "a rewind", "a rescale", "a schema change"]
SECRETS: Final = "Secrets"
LOOKED_UP: Final = "Any database with JDBC, looked up"
NAMED: Final = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def answers(connector: str) -> dict[str, str]:
    """Return the tests that each answer of a section names, by its question."""
    rows = re.findall(r"^\| (\w.*?) \| (?:.+) \| (`.+) \|$", SECTIONS[connector], re.MULTILINE)
    return dict(rows)


def is_there(file: str, test: str) -> bool:
    path = CHECKOUT / "tests" / file
    return path.is_file() and re.search(rf"^def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def is_shown_always(file: str, test: str) -> bool:
    """Say whether a test has cases outside the long profile."""
    only_long = rf"^@only_long\n(?:[@ \])].*\n)*def {test}\("
    return re.search(only_long, (CHECKOUT / "tests" / file).read_text(encoding="utf-8"), re.MULTILINE) is None


def test_all_connectors_are_there() -> None:
    pages = {"kafka", "kafka-out", "debezium", "postgres", "postgres-changes", "sql-tables", "delta-source", "iceberg", "stores", "joins"}
    assert {page for page in pages if f"(../how-to/{page}.md)" not in PAGE} == set()
    assert len(SECTIONS) >= 13


@pytest.mark.parametrize("connector", [name for name in SECTIONS if name not in (LOOKED_UP, SECRETS)])
def test_each_question_is_answered(connector: str) -> None:
    assert list(answers(connector)) == QUESTIONS


@pytest.mark.parametrize("connector", SECTIONS)
def test_each_answer_names_tests_that_are_there(connector: str) -> None:
    found = answers(connector)
    assert found
    for question, cell in found.items():
        named = NAMED.findall(cell)
        assert ", ".join(f"`{file}::{test}`" for file, test in named) == cell, f"{question}: {cell}"
        assert [each for each in named if not is_there(*each)] == [], question
        assert any(is_shown_always(*each) for each in named), question


def test_a_test_that_is_not_there_is_found() -> None:
    assert is_there("docs/test_connectors_page.py", "test_all_connectors_are_there")
    assert not is_there("docs/test_connectors_page.py", "test_nothing")
    assert not is_there("docs/nothing.py", "test_all_connectors_are_there")


def test_a_test_that_only_the_long_profile_has_is_found() -> None:
    assert is_shown_always("kafka/test_agreement.py", "test_partitions_are_splits_at_any_parallelism")
    assert not is_shown_always("kafka/test_agreement.py", "test_another_parallelism_changes_nothing")
