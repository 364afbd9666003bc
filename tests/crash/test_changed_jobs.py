"""A crash right after the commit, and then a changed job: what is committed is published where it was staged for, once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.bad_inputs import HOUR, ROWS, Lab
from tidemark.errors import CorruptStoreError, PublishError, StateMismatchError
from tidemark.spark.sinks.sinks import BoundSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark]

LATER: list[tuple[object, ...]] = [("c", 6 * HOUR, 1)]
TOTALS = Counter({("a", 4): 1, ("b", 0): 1})


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return a lab with the two-output job stopped between the commit of its first epoch and its first publishing."""

    def crash(*_: object) -> None:
        raise PublishError("the process is gone", fix="start it again")

    lab = Lab(tmp_path, spark)
    with monkeypatch.context() as patch:
        patch.setattr(BoundSink, "publish", crash)
        with pytest.raises(PublishError, match="the process is gone"):
            lab.run(job(lab))
    assert delta_rows(lab, "rows") == parquet_totals(lab, "hours") == Counter()
    return lab


def job(lab: Lab, *, rows: str = "rows", hours: str = "hours", kind: str = "parquet", by: str = "zone") -> tm.Job:
    source = lab.source(ROWS, LATER)
    hourly = lab.hourly(source, by=by)
    sink = tm.parquet if kind == "parquet" else tm.delta
    return lab.job(rows=tm.delta(source, lab.path(rows)), hours=sink(hourly, lab.path(hours)))


def delta_rows(lab: Lab, name: str) -> Counter[tuple[object, ...]]:
    if not DeltaTable.is_deltatable(lab.path(name)):
        return Counter()
    return Counter(tuple(row.values()) for row in DeltaTable(lab.path(name)).to_pyarrow_table().to_pylist())


def parquet_totals(lab: Lab, name: str) -> Counter[tuple[object, ...]]:
    files = sorted((lab.folder / name).glob("*.parquet"))
    return Counter((row["zone"], row["total"]) for file in files for row in pq.ParquetFile(file).read().to_pylist())


def test_an_output_that_moved_has_only_what_comes_after(lab: Lab) -> None:
    moved = job(lab, rows="elsewhere", kind="delta")
    lab.run(moved, max_epochs=1)
    lab.run(moved, end_of_input=True)
    assert delta_rows(lab, "rows") == Counter(ROWS)
    assert delta_rows(lab, "elsewhere") == Counter(LATER)
    # The folder stayed, and became a table: the committed files are beside it, as they were promised.
    assert parquet_totals(lab, "hours") == TOTALS
    table = DeltaTable(lab.path("hours")).to_pyarrow_table().to_pylist()
    assert Counter((row["zone"], row["total"]) for row in table) == Counter({("a", 2): 1, ("c", 1): 1})


def test_an_operator_that_changed_too_much_is_refused_after_publishing(lab: Lab) -> None:
    with pytest.raises(StateMismatchError, match="'hourly'"):
        lab.run(job(lab, by="fare"))
    assert delta_rows(lab, "rows") == Counter(ROWS)
    assert parquet_totals(lab, "hours") == TOTALS
    lab.run(job(lab), end_of_input=True)
    assert delta_rows(lab, "rows") == Counter([*ROWS, *LATER])
    assert parquet_totals(lab, "hours") == TOTALS + Counter({("a", 2): 1, ("c", 1): 1})


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_an_old_copy_of_the_job_store_is_noticed_before_anything_is_lost(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Without the newest records, the epochs that come next would have the numbers of those that the output has."""
    lab = Lab(tmp_path, spark)
    source = lab.source(ROWS, LATER, [("d", 7 * HOUR, 9)])
    again = lab.job(rows=tm.delta(source, lab.path("rows")) if kind == "delta" else tm.parquet(source, lab.path("rows")))
    lab.run(again, max_epochs=1)
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    lab.run(again, max_epochs=1)
    shutil.move(tmp_path / "store", tmp_path / "newer")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    with pytest.raises(CorruptStoreError, match=r"'rows' .*holds epoch 1 .*log ends at epoch 0.*'fares'") as raised:
        lab.run(again)
    assert lab.path("rows") in str(raised.value)
    shutil.rmtree(tmp_path / "store")
    shutil.move(tmp_path / "newer", tmp_path / "store")
    assert [epoch.epoch for epoch in lab.run(again).epochs] == [2]
