"""All errors with a code are in one module, and each is in the table of docs/reference/faults.md with what it says of trying again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.architecture.sources import CHECKOUT, package_sources
from tidemark import errors
from tidemark.errors import TidemarkError

ROW = re.compile(r"\| (TM\d{3}[^|]*) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
PAGE = (CHECKOUT / "docs/reference/faults.md").read_text(encoding="utf-8")


def classes_with_code() -> Iterator[type[TidemarkError]]:
    for found in vars(errors).values():
        if (
            isinstance(found, type)
            and issubclass(found, TidemarkError)
            and found.__bases__ != (Exception,)
            and {"code", "transient"} & set(vars(found))
        ):
            yield found


def codes_of(cell: str) -> list[str]:
    found = re.findall(r"TM(\d{3})", cell)
    return [f"TM{number}" for number in (range(int(found[0]), int(found[1]) + 1) if "\N{EN DASH}" in cell else found)]


def test_errors_with_a_code_are_in_one_module() -> None:
    found = {source.module: source.classes_with_code for source in package_sources()}
    assert found.pop("tidemark.errors"), "the search no longer finds what it looks for"
    assert {module: classes for module, classes in found.items() if classes} == {}


@pytest.mark.parametrize("error", list(classes_with_code()), ids=lambda error: error.__name__)
def test_each_error_is_in_the_table(error: type[TidemarkError]) -> None:
    (row,) = [row for row in ROW.findall(PAGE) if f"`{error.__name__}`" in row[1]]
    names = re.findall(r"`(\w+)`", row[1])
    assert error.code in codes_of(row[0])
    second = names.index(error.__name__) == 1 and "the second" in row[2]
    said = row[2].partition("the second ")[2] if second else row[2]
    assert said.startswith("yes" if error.transient else "no")


def test_the_table_has_no_other_code() -> None:
    assert {code for row in ROW.findall(PAGE) for code in codes_of(row[0])} == {error.code for error in classes_with_code()}
