"""The page on testing: its operator does what it says, and its test of a whole job passes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    execute,
    snippets,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/how-to/testing.md"


@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_the_page_does_what_it_says(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(PAGE), {}, capsys) == 1
    written = import_module("test_fares")
    (name,) = (name for name in vars(written) if name.startswith("test_"))
    (tmp_path / "store").mkdir()
    getattr(written, name)(tmp_path / "store")
