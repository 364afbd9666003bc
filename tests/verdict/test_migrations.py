"""A job that is changed goes on from what the old one left, in every kind of operator."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.seeds import PROFILE
from tests.state_processor.operators import AFTER, BEFORE, Lab, columns, listed
from tidemark.errors import StateMismatchError
from tidemark.graph.model.nodes import StatefulNode
from tidemark.savepoints.compatibility.checking import check
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.model.restore import Restore
from tidemark.spark.operators.registry.runtimes import runtime_of
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SHOWN = (
    ("tumbling", "late", "sliding", "session", "count", "triggered", "triggered-session", "purging-session", "listed")
    if PROFILE != "long"
    else ()
)
"""The operators that are changed: in the long profile all, otherwise one for each way in which state is kept, and one whose key widens."""

WITHOUT = AFTER.replace(", c INT", "")


@pytest.mark.slow
def test_a_changed_job_goes_on_with_all_its_state(spark: SparkSession, tmp_path: Path) -> None:
    """Columns are added, widened, renamed and left out; the results are those of the new code over all input."""
    lab = Lab(spark, tmp_path)
    first, changed = lab.job("job", changed=False, only=SHOWN), lab.job("job", changed=True, only=SHOWN)
    assert runtimes(changed) == runtimes(lab.job("job", changed=True)), "some state is kept in another way"
    renamed = {uid: names for uid, names in columns().items() if uid in changed.outputs}
    lab.land(0, 1)
    before = lab.run(first)
    root = JobStore.open(str(tmp_path / "store"))
    SavepointStore(root, "job").take("first")
    head = JobLog(root.at("job"), "job").load().epoch
    assert head is not None

    lab.land(2)
    with pytest.raises(StateMismatchError, match=r"'gone' was removed.*'low' was removed"):
        lab.run(changed)
    found = check(changed, "first", columns=renamed)
    assert {each.status for each in found.operators} == {"migrates"}
    after = lab.run(changed, restore=Restore("first", columns=renamed), end_of_input=True)
    with pytest.raises(StateMismatchError, match="'least' was removed"):
        lab.run(first)

    whole = lab.run(lab.job("whole", changed=True, only=SHOWN), end_of_input=True)
    for uid, rows in whole.items():
        # The first job's panes lack what is new; they are the same in what it had.
        early = [shared(row) for row in before[uid]]
        assert sorted(early + [shared(row) for row in after[uid]], key=repr) == sorted(map(shared, rows), key=repr), uid
        assert all(row in rows for row in after[uid]), (uid, [row for row in after[uid] if row not in rows])
    assert any(len(rows) for rows in before.values())

    # What the old epoch needs is still there.
    kept = SavepointStore(root, "job").get("first").record
    assert kept.operators == head.operators


def runtimes(job: tm.Job) -> set[type]:
    """Return what runs the operators of a job."""
    return {type(runtime_of(node)) for node in job.nodes if isinstance(node, StatefulNode)}


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
    with pytest.raises(StateMismatchError, match="'more' was removed"):
        lab.run(job())


def test_types_that_change_behind_the_jobs_back(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is read was widened, a module that a function uses is another: the job's own code is the same."""
    lab = Lab(spark, tmp_path)

    def typed(rows: DataFrame) -> DataFrame:
        return rows.withColumn("v", rows["v"].cast(os.environ["TYPE_OF_V"]))

    rides = lab.rides(BEFORE).transform(typed)
    hours = rides.key_by("k").window(tm.tumbling("4 hours")).aggregate(top=tm.max("v")).uid("hours")
    job = tm.Job("job", outputs={"hours": tm.memory(hours, f"{tmp_path}/job/hours")}, store=str(tmp_path / "store"))
    monkeypatch.setenv("TYPE_OF_V", "INT")
    lab.land(0)
    lab.run(job)

    lab.land(1)
    monkeypatch.setenv("TYPE_OF_V", "BIGINT")
    with pytest.raises(StateMismatchError, match=r"top__max was int and is now bigint.*start the job again"):
        lab.run(job)
    lab.run(job)
    lab.land(2)
    monkeypatch.setenv("TYPE_OF_V", "STRING")
    for says in ("top__max was bigint and is now string", "aggregate 'top' was BIGINT and is now STRING", "was BIGINT and is now STRING"):
        with pytest.raises(StateMismatchError, match=says):
            lab.run(job)
    monkeypatch.setenv("TYPE_OF_V", "BIGINT")
    assert {row["k"]: row["top"] for row in lab.run(job, end_of_input=True)["hours"]} == {None: 2, "a": 9, "b": 8}


def test_a_column_of_elements_goes_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)

    def run(schema: str, **settings: bool) -> list[dict[str, object]]:
        windows = lab.rides(schema).key_by("k").window(tm.tumbling("4 hours"))
        rows = windows.process(listed, "n INT, v ARRAY<BIGINT>, c ARRAY<INT>, panes INT").uid("listed")
        job = tm.Job("job", outputs={"listed": tm.memory(rows, f"{tmp_path}/job/listed")}, store=str(tmp_path / "store"))
        return lab.run(job, **settings)["listed"]

    lab.land(2)
    run(AFTER)
    lab.land(1)
    run(WITHOUT)
    # What only the first epoch's files have is still known by its type.
    with pytest.raises(StateMismatchError, match="'c' of kept elements was INT and is now STRING"):
        run(AFTER.replace("c INT", "c STRING"))
    lab.land(0)
    run(AFTER.replace("c INT", "C INT"))
    found = {row["k"]: row["c"] for row in run(AFTER, end_of_input=True)}
    assert found == {None: [None], "a": [3, None, None, None, None, None], "b": [1, 3, None, None]}


def test_rows_have_the_columns_of_the_stream_also_where_an_epoch_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Of a stream that a column is gone from, and of one that it is back in, in other letters and wider."""
    lab = Lab(spark, tmp_path)

    def run(gone: str, back: str, **settings: bool) -> dict[str, list[dict[str, object]]]:
        outputs = {}
        for uid, schema in (("gone", gone), ("back", back)):
            windows = lab.rides(schema, name=uid).key_by("k").window(tm.tumbling("4 hours"))
            outputs[uid] = tm.memory(windows.process(named, "names STRING, c ARRAY<BIGINT>").uid(uid), f"{tmp_path}/job/{uid}")
        return lab.run(tm.Job("job", outputs=outputs, store=str(tmp_path / "store")), **settings)

    lab.land(2)
    run(AFTER, AFTER)
    lab.land(0)
    run(WITHOUT, WITHOUT)
    # The windows fire at the end of input, in an epoch that reads nothing.
    found = run(WITHOUT, AFTER.replace("c INT", "C BIGINT"), end_of_input=True)
    shown = {uid: {row["k"]: (row["names"], row["c"]) for row in rows} for uid, rows in found.items()}
    values = {None: [None], "a": [3, None, None, None], "b": [1, 3, None]}
    assert shown == {"gone": dict.fromkeys(values, ("k t v", None)), "back": {key: ("C k t v", value) for key, value in values.items()}}


def named(elements: Any, context: Any) -> list[dict[str, object]]:
    """Return the names of a window's columns, and what one of them has."""
    assert context.key
    rows = [dict(row) for row in elements]
    values = [row["C"] for row in rows] if "C" in rows[0] else None
    return [{"names": " ".join(sorted({name for row in rows for name in row})), "c": values}]


def shared(row: dict[str, object]) -> dict[str, object]:
    """Return what a row of either job has, under the new names."""
    named = {"least" if name == "low" else name: value for name, value in row.items()}
    return {name: value for name, value in named.items() if not name.startswith("c_") and name not in {"gone", "c"}}
