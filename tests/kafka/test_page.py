"""The page on Kafka: a reader who sends its records and types its snippets sees what it shows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    execute,
    snippets,
)
from tests.kafka.broker import NEEDS_JARS, Broker, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/how-to/kafka.md"


@NEEDS_JARS
@pytest.mark.spark
@pytest.mark.slow
def test_the_page_on_kafka_does_what_it_says(
    topics: Topics, broker: Broker, spark: SparkSession, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    request.getfixturevalue("elsewhere")
    topics.create("fares", 3)
    found = re.search(r"^```jsonl\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    for line in found[1].splitlines():
        partition, _, value = line.partition(" ")
        topics.send("fares", int(partition), value or None)
    topics.flush()
    shown = [replace(snippet, code=snippet.code.replace("127.0.0.1:9092", broker.address)) for snippet in snippets(PAGE)]
    assert execute(shown, {}, capsys) == 2
    assert Path(".tidemark/jobs/fares/status.json").exists()
