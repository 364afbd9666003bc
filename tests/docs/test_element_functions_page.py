"""The page on functions over single elements shows what its jobs do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import CHECKOUT, elsewhere, execute, snippets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["elsewhere"]

PAGE = CHECKOUT / "docs/concepts/element-functions.md"


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_the_jobs_of_the_page_do_what_it_says(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert tmp_path.exists()
    assert execute(snippets(PAGE), {}, capsys) == 4
