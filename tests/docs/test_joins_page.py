"""The page on joins does what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    execute,
    snippets,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/how-to/joins.md"


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_the_page_does_what_it_says(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(PAGE), {}, capsys) == 5
