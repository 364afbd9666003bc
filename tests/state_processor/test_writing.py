"""Savepoints that are made: from a history, and from others with operators changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements
from tests.engine.test_sessions import put_off
from tests.state_processor.operators import AFTER, BEFORE, Lab
from tidemark.errors import DefinitionError
from tidemark.spark.operators.session.session_deferral import DEFERRED
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_history_that_lacks_a_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = Lab(spark, tmp_path).job("job", changed=True)
    made = tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)
    with pytest.raises(DefinitionError, match="no column 'c'"):
        made.bootstrap(job, "tumbling", spark.createDataFrame([("a", 1, 2)], BEFORE), time="t")
    with pytest.raises(DefinitionError, match="no operator 'absent'"):
        made.bootstrap(job, "absent", spark.createDataFrame([("a", 1, 2, 3)], AFTER), time="t")
    (tmp_path / "made" / "other").write_text("not ours")
    with pytest.raises(DefinitionError, match="is not empty"):
        tm.new_savepoint(f"{tmp_path}/made", job, spark=spark)


def test_what_sessions_put_off_is_changed_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_off(monkeypatch)
    source = elements([("a", 0, 1), ("z", 1, 1)], [("a", 5, 2)], [("z", 6, 2)], schema="k STRING, t BIGINT, v BIGINT")
    sums = source.key_by("k").window(tm.session("10 ms")).aggregate(total=tm.sum("v")).uid("s")
    job = tm.Job("job", outputs={"s": tm.memory(sums, f"{tmp_path}/s")}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, clock=ManualClock(NOW), handle_signals=False)
    stored = tm.savepoint(job)
    assert any(file.part == DEFERRED for file in stored.record.operators["s"].files)
    writer = tm.changed_savepoint(f"{tmp_path}/changed", stored, spark=spark)
    folder = writer.map("s", lambda rows: rows.withColumn("total__sum", rows["total__sum"] * 2)).write()
    found = tm.savepoint(folder).read_window("s", spark).collect()
    assert {row["k"]: row["total"] for row in found} == {"a": 6, "z": 6}
