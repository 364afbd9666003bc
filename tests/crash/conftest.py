"""What the tests of killed jobs share: a JVM that is warm, and a session with the settings of these jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from tests.crash import fares
from tests.crash.warm_jvm import warm_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Another one takes twenty seconds until it is warm.
@pytest.fixture(scope="package")
def jvm() -> Iterator[Mapping[str, str]]:
    """The variables by which a killed process finds the JVM."""
    with warm_jvm() as variables:
        yield variables


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with the settings of the killed job; other tests' session keeps its own."""
    own = spark.newSession()
    for key, value in fares.SETTINGS.items():
        own.conf.set(key, value)
    return own
