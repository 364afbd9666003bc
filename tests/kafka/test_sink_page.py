"""The page on publishing to Kafka: a reader who makes its topics and types its snippets sees what it shows."""

from __future__ import annotations

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
from tests.kafka.broker import NEEDS_JARS, Broker
from tests.kafka.topic_records import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/how-to/kafka-out.md"


@NEEDS_JARS
@pytest.mark.spark
@pytest.mark.slow
def test_the_page_does_what_it_says(
    broker: Broker, spark: SparkSession, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    request.getfixturevalue("elsewhere")
    # The page's topics, under names that no other test's have.
    text = {"127.0.0.1:9092": broker.address, **{f'topic="{name}"': f'topic="out-{name}"' for name in ("fares", "totals", "changes")}}
    for name in ("fares", "totals", "changes"):
        compacted = {"cleanup.policy": "compact"} if name == "totals" else None
        create_topic(broker.address, f"out-{name}", partitions=1, settings=compacted)
    shown = []
    for snippet in snippets(PAGE):
        code = snippet.code.replace("TopicPartition(topic, 0, 0)", 'TopicPartition(f"out-{topic}", 0, 0)')
        for old, new in text.items():
            code = code.replace(old, new)
        shown.append(replace(snippet, code=code))
    assert execute(shown, {}, capsys) == 1
    assert Path(".tidemark/jobs/totals/status.json").exists()
