"""A job that is changed goes on from what the old one left, in every kind of operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.state_processor.operators import AFTER, Lab, columns
from tidemark.errors import StateMismatchError
from tidemark.savepoints.checking import check
from tidemark.savepoints.restore import Restore
from tidemark.savepoints.savepoint_store import SavepointStore
from tidemark.state.joblog import JobLog
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_changed_job_goes_on_with_all_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """Columns are added, widened, renamed and left out; the results are those of the new code over all input."""
    lab = Lab(spark, tmp_path)
    first, changed = lab.job("job", changed=False), lab.job("job", changed=True)
    lab.land(0)
    lab.land(1)
    before = lab.run(first)
    root = JobStore.open(str(tmp_path / "store"))
    SavepointStore(root, "job").take("first")
    head = JobLog(root.at("job"), "job").load().epoch
    assert head is not None

    lab.land(2)
    with pytest.raises(StateMismatchError, match=r"'gone' is gone.*'low' is gone"):
        lab.run(changed)
    found = check(changed, "first", columns=columns())
    assert {each.status for each in found.operators} == {"migrates"}
    after = lab.run(changed, restore=Restore("first", columns=columns()), end_of_input=True)
    with pytest.raises(StateMismatchError, match="'least' is gone"):
        lab.run(first)

    whole = lab.run(lab.job("whole", changed=True), end_of_input=True)
    for uid, rows in whole.items():
        # The first job's panes lack what is new; they are the same in what it had.
        early = [shared(row) for row in before[uid]]
        assert sorted(early + [shared(row) for row in after[uid]], key=repr) == sorted(map(shared, rows), key=repr), uid
        assert all(row in rows for row in after[uid]), (uid, [row for row in after[uid] if row not in rows])
    assert any(len(rows) for rows in before.values())

    # What the old epoch needs is still there.
    kept = SavepointStore(root, "job").get("first").record
    assert kept.operators == head.operators


def test_an_aggregate_that_is_added_needs_no_restore(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)
    lab.land(0)

    def job(**more: tm.Aggregate) -> tm.Job:
        rides = lab.rides(AFTER)
        hours = rides.key_by("k").window(tm.tumbling("4 hours")).aggregate(n=tm.count(), **more).uid("hours")
        return tm.Job("job", outputs={"hours": tm.memory(hours, f"{tmp_path}/job/hours")}, store=str(tmp_path / "store"))

    lab.run(job())
    # Without input the changed job has nothing to commit, and finds the old state again.
    lab.run(job(more=tm.count("c"), top=tm.max("v")))
    lab.land(2)
    rows = lab.run(job(more=tm.count("c"), top=tm.max("v")), end_of_input=True)["hours"]
    assert [(row["k"], row["n"], row["more"], row["top"]) for row in sorted(rows, key=lambda row: str(row["k"]))] == [
        (None, 1, 0, None),
        ("a", 4, 1, 5_000_000_000),
        ("b", 3, 2, 8),
    ]
    with pytest.raises(StateMismatchError, match="'more' is gone"):
        lab.run(job())


def shared(row: dict[str, object]) -> dict[str, object]:
    """Return what a row of either job has, under the new names."""
    named = {"least" if name == "low" else name: value for name, value in row.items()}
    return {name: value for name, value in named.items() if not name.startswith("c_") and name not in {"gone", "c"}}
