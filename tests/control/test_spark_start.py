"""A driver's session is built in a thread, and is the active one of the thread that runs the job."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession as Sessions

from tidemark.control.driver.spark_start import SparkStart
from tidemark.control.model.spec import JobSpec
from tidemark.spark.env import jvm, session
from tidemark.spark.env.jvm import in_parallel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_session_is_active_in_the_thread_that_waits_for_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "build_session", lambda *_, **__: spark)
    monkeypatch.setattr(jvm, "start_jvm", lambda *_, **__: None)

    def started() -> tuple[SparkSession | None, SparkSession | None]:
        start = SparkStart(JobSpec("fares", "fares:job"), lambda _: nullcontext(), log=None)
        before = Sessions.getActiveSession()
        start.session()
        return before, Sessions.getActiveSession()

    before, after = in_parallel("of a driver", started).result()
    assert before is None, "in Java each thread of Python's is another"
    assert after is not None
