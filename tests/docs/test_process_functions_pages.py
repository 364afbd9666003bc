"""The pages on process functions do what they say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import CHECKOUT, elsewhere, execute, pretend_to_run, snippets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["elsewhere"]

PAGE = CHECKOUT / "docs/concepts/process-functions.md"
FLINK = CHECKOUT / "docs/how-to/flink-users.md"


def cells_that_are_too_long(page: Path) -> list[str]:
    rows = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|"))
    return [cell for row in rows for cell in row.split("|") if len(cell.split()) > 40]


@pytest.mark.spark
def test_the_page_does_what_it_says(spark: SparkSession, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(PAGE), {}, capsys) == 10
    assert (elsewhere / ".tidemark").is_dir()


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_flinks_exercises_give_the_rows_that_the_page_shows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "as above"
    assert execute(snippets(FLINK), {}, capsys) == 2


def test_the_harness_runs_flinks_exercises_without_spark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pretend_to_run(monkeypatch)
    of_spark = 'print("rides in New York'
    found = [replace(snippet, code=snippet.code.partition(of_spark)[0], output=None) for snippet in snippets(FLINK)[:-1]]
    space: dict[str, object] = {}
    execute(found, space, capsys)
    assert execute(snippets(FLINK)[-1:], space, capsys) == 1
    assert len(calls) == 1


@pytest.mark.parametrize("page", [PAGE, FLINK], ids=lambda page: page.stem)
def test_tables_are_easy_to_read(page: Path) -> None:
    assert cells_that_are_too_long(page) == []
