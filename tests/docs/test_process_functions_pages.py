"""The pages on process functions do what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import CHECKOUT, elsewhere, execute, snippets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["elsewhere"]


@pytest.mark.spark
def test_the_page_does_what_it_says(spark: SparkSession, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(CHECKOUT / "docs/concepts/process-functions.md"), {}, capsys) == 8
    assert (elsewhere / ".tidemark").is_dir()
