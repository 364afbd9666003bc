"""What the tests of killed jobs share: a session with the settings of these jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash import fares

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with the settings of the killed job; other tests' session keeps its own."""
    own = spark.newSession()
    for key, value in fares.SETTINGS.items():
        own.conf.set(key, value)
    return own
