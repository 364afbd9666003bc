"""The pages on Debezium and on Delta tables as sources do what they say."""

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


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", ["debezium", "delta-source"])
def test_the_page_does_what_it_says(spark: SparkSession, capsys: pytest.CaptureFixture[str], page: str) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(CHECKOUT / f"docs/how-to/{page}.md"), {}, capsys) == 1
