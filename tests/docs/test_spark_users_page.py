"""The page for users of Structured Streaming: its query and its job give what it says."""

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

PAGE = CHECKOUT / "docs/how-to/spark-users.md"


NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Tidemark's sessions demand names of sources; a session of the reader's, as any query without Tidemark has it, does not."""


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_the_query_and_the_job_do_what_the_page_says(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    before = str(spark.conf.get(NAMED_SOURCES))
    spark.conf.set(NAMED_SOURCES, "false")
    try:
        assert execute(snippets(PAGE), {}, capsys) == 2
    finally:
        spark.conf.set(NAMED_SOURCES, before)
