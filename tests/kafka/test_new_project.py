"""The project of ``tidemark new --template kafka`` over a real topic: every record that its generator makes is in a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.command_line.test_new_project import make
from tests.kafka.broker import NEEDS_JARS, Broker, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 400


@pytest.fixture
def project(tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose package can be imported, for the test's broker."""
    make(tmp_path, "rides", "--template", "kafka")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.address)
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)
    monkeypatch.chdir(tmp_path / "rides")
    monkeypatch.syspath_prepend(str(tmp_path / "rides"))
    yield tmp_path / "rides"
    for name in [name for name in sys.modules if name.partition(".")[0] == "rides"]:
        del sys.modules[name]


@NEEDS_JARS
@pytest.mark.spark
@pytest.mark.slow
def test_every_record_of_the_generator_is_in_a_table(topics: Topics, project: Path, spark: SparkSession) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    generator, job = import_module("rides.generator"), import_module("rides.job")
    topics.create(job.TOPIC, 3)
    made = generator.Generator(seed=1)
    records = [made.record(datetime(2026, 3, 1, 9, tzinfo=UTC)) for _ in range(RECORDS)]
    for number, (zone, value) in enumerate(records):
        topics.send(job.TOPIC, number % 3, value, key=zone)
    topics.flush()
    result = tm.run(job.job, end_of_input=True)
    assert result.rows_in == RECORDS
    tables = {name: DeltaTable(str(project / "data" / "warehouse" / name)).to_pyarrow_table().to_pylist() for name in job.job.outputs}
    newest = {(row["zone"], row["window_start"]): row["rides"] for row in sorted(tables["by_minute"], key=lambda row: row["pane_index"])}
    parsed = [json.loads(value) for _, value in records if value.endswith("}")]
    assert len(tables["malformed"]) == RECORDS - len(parsed) > 0
    assert len(tables["incomplete"]) == sum("fare" not in trip for trip in parsed) > 0
    assert sum(newest.values()) + len(tables["late"]) == sum("fare" in trip for trip in parsed)
