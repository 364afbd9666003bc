"""The page on state shows what runs."""

from __future__ import annotations

from pathlib import Path
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
def test_state_is_as_its_page_says(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(CHECKOUT / "docs/how-to/state.md"), {}, capsys) == 5
    assert Path("exports/changed/index.json").exists()
