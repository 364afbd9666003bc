"""The page on joins with versions and tables does what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import CHECKOUT, elsewhere, execute, snippets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["elsewhere"]


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_the_page_does_what_it_says(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(CHECKOUT / "docs/how-to/temporal-joins.md"), {}, capsys) == 3
