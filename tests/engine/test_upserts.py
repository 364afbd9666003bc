"""Upserts and the upkeep of a table, without Spark: every row of a key is the newest, whoever else writes and wherever it stops."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import write_deltalake
from deltalake.transaction import AddAction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError

from tests.engine.delta_rig import LINEAGE, SESSIONS, WINDOWS, Rig, Row, as_table, row, write
from tests.engine.test_delta_tables import ROWS, features, make_table
from tidemark.errors import ConservationError, PublishError, SinkError
from tidemark.spark.sinks.delta.delta_files import UNKNOWN, Bounds, bounds_of_staged, live_files
from tidemark.spark.sinks.delta.delta_maintenance import Maintenance
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.sinks import BoundSink, require_not_ahead, sink_of_record
from tidemark.state.log.records import StagedFile


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "table")


def test_a_newer_pane_replaces_the_older_one(rig: Rig) -> None:
    rig.run(row("a", 0, 1), row("b", 0, 2), row("a", 10, 3))
    rig.run(row("a", 0, 5, pane=1))
    assert rig.rows == rig.expected
    assert len(rig.rows) == 3
    rig.run(row("a", 0, 6, pane=2), row("b", 0, 7, pane=1), row("a", 10, 8, pane=1))
    assert rig.rows == rig.expected
    # Nothing was left of the older files, so nothing was rewritten.
    assert len(rig.live) == 1


def test_nulls_equal_nulls(rig: Rig) -> None:
    """A null key is a key like any other, and count windows have no bounds."""
    rig.run(row(None, 0, 1), row("a", None, 2), row(None, None, 3))
    rig.run(row(None, 0, 4), row("a", None, 5), row(None, None, 6))
    assert sorted(found["n"] for found in rig.rows) == [4, 5, 6]
    assert rig.rows == rig.expected


def test_merged_sessions_remove_those_they_replace(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "table", SESSIONS)
    rig.run(row("a", 0, 1, end=10), row("a", 20, 2, end=30), row("a", 40, 3, end=50), row("b", 20, 4, end=30))
    rig.run(row("a", 0, 6, end=50, pane=1, replaces=[0, 20, 40]))
    assert rig.rows == rig.expected
    assert [(found["k"], found["window_start"], found["n"]) for found in rig.rows] == [("a", 0, 6), ("b", 20, 4)]
    # Its start moves to before all that it absorbed.
    rig.run(row("a", -5, 7, end=50, pane=2, replaces=[0]))
    assert rig.rows == rig.expected
    assert [found["window_start"] for found in rig.rows] == [-5, 20]


def test_only_the_files_concerned_are_read_and_rewritten(rig: Rig) -> None:
    for start in range(0, 200, 10):
        rig.run(row("a", start), row("b", start))
    live = rig.live
    assert rig.rewriter.keys_read == [], "windows that are new touch nothing"
    rig.run(row("a", 50, 1, pane=1))
    assert len(rig.rewriter.keys_read) == 1
    assert rig.rewriter.rewritten == rig.rewriter.keys_read
    assert len(set(live) & set(rig.live)) == len(live) - 1
    # All that lies between an early window and a late one is within their bounds.
    rig.rewriter.keys_read.clear()
    rig.run(row("b", 0, 1, pane=1), row("b", 190, 1, pane=1))
    assert len(rig.rewriter.keys_read) == 2
    assert rig.rows == rig.expected


def test_published_again_it_changes_nothing(rig: Rig) -> None:
    rig.run(row("a", 0, 1))
    record = rig.stage(row("a", 0, 2), row("a", 10, 3))
    rig.publish(record)
    version = rig.table.version()
    rig.publish(record)
    rig.restart()
    rig.publish(record)
    assert rig.table.version() == version
    assert rig.rows == rig.expected


def test_an_older_epoch_is_not_published_over_a_newer_one(rig: Rig) -> None:
    first = rig.stage(row("a", 0, 1))
    rig.run(row("a", 0, 2))
    rig.sink.publish(first, LINEAGE, 0)
    assert rig.rows == [row("a", 0, 2)]


def test_the_record_says_how_it_is_published_whatever_the_job_says(rig: Rig) -> None:
    rig.run(row("a", 0, 1))
    record = rig.stage(row("a", 0, 2))
    former = sink_of_record("rows", record, "upserts")
    assert former is not None
    assert isinstance(former.sink, DeltaSink)
    assert former.sink.upsert is None
    DeltaSink("rows", str(rig.folder), None, rig.rewriter).publish(record, LINEAGE, rig.epoch)
    assert rig.rows == rig.expected


def test_a_table_with_several_rows_of_a_key_comes_right(tmp_path: Path) -> None:
    """What was appended before keeps only the newest of each key that comes again."""
    appending = Rig(tmp_path / "table", None)
    appending.run(row("a", 0, 1), row("b", 0, 1))
    appending.run(row("a", 0, 2, pane=1))
    rig = Rig(tmp_path / "table", WINDOWS, epoch=appending.epoch)
    rig.run(row("a", 0, 3, pane=2))
    assert [(found["k"], found["n"]) for found in rig.rows] == [("a", 3), ("b", 1)]


def test_what_others_add_and_remove_meanwhile_is_kept(rig: Rig) -> None:
    rig.run(row("a", 0, 1), row("b", 0, 2))
    record = rig.stage(row("a", 0, 3))
    write_deltalake(str(rig.folder), as_table([row("a", 0, 7), row("c", 0, 8)]), mode="append")
    rig.table.delete("k = 'b'")
    rig.publish(record)
    assert rig.rows == [row("a", 0, 3), row("c", 0, 8)]


BOUNDS = [
    (Bounds(1, 3, 0), Bounds(3, 5, 0), True),
    (Bounds(1, 3, 0), Bounds(4, 5, 0), False),
    (Bounds(1, 3, 1), Bounds(4, 5, 2), True),
    (Bounds(1, 3, None), Bounds(4, 5, 2), True),
    (Bounds(1, 3, None), Bounds(4, 5, 0), False),
    (Bounds(nulls=2, only_nulls=True), Bounds(4, 5, 0), False),
    (Bounds(nulls=2, only_nulls=True), Bounds(4, 5, None), True),
    (Bounds(nulls=2, only_nulls=True), Bounds(nulls=7, only_nulls=True), True),
    (Bounds("a", "b", 0), Bounds("bb", "c", 0), False),
    (Bounds(1, 3, 0), UNKNOWN, True),
    (Bounds(low=1, nulls=0), Bounds(4, 5, 0), True),
]


@pytest.mark.parametrize(("one", "other", "meet"), BOUNDS)
def test_bounds_that_meet(one: Bounds, other: Bounds, *, meet: bool) -> None:
    assert one.meets(other) is other.meets(one) is meet


def test_bounds_are_read_from_the_log_and_from_the_record_alike(rig: Rig) -> None:
    record = rig.stage(row("a", 5, end=70), row(None, 9), row("zebra", 7))
    rig.publish(record)
    types = {
        "k": "string",
        "window_start": "timestamp",
        "window_end": "timestamp",
        "n": "long",
        "replaces": "nested",
        "pane_index": "integer",
    }
    (live,) = live_files(rig.table, types)
    staged = bounds_of_staged(record.files[0], types)
    assert staged["k"] == live.columns["k"] == Bounds("a", "zebra", 1)
    assert staged["window_start"] == Bounds(5000, 9000, 0)
    # Another writer may have cut the greatest one to milliseconds.
    assert live.columns["window_start"] == Bounds(5000, 9999, 0)
    assert staged["n"] == live.columns["n"] == Bounds(0, 0, 0)
    assert staged["replaces"].meets(Bounds(1, 1, 0))
    assert live.columns["replaces"].meets(Bounds(1, 1, 0))


@pytest.mark.parametrize("other", ["adds", "removes", "compacts"])
def test_a_commit_between_the_reading_and_the_commit_has_all_worked_out_anew(rig: Rig, other: str) -> None:
    rig.run(row("a", 0, 1), row("b", 0, 2))
    rig.run(row("a", 10, 1), row("b", 10, 2))
    record = rig.stage(row("a", 0, 3), row("a", 10, 3))
    survivors = rig.rewriter.survivors
    times: list[str] = []

    def meanwhile(*arguments: object) -> list[StagedFile]:
        found = survivors(*arguments)  # type: ignore[arg-type]
        if not times:
            if other == "adds":
                write_deltalake(str(rig.folder), as_table([row("a", 0, 9)]), mode="append")
            elif other == "removes":
                rig.table.delete("k = 'b' AND n = 2 AND window_start < '1970-01-01T00:00:00.005Z'")
                rig.model.pop(("b", 0, 10))
            else:
                rig.table.optimize.compact()
        times.append(other)
        return found

    with mock.patch.object(rig.rewriter, "survivors", meanwhile):
        rig.publish(record)
    assert len(times) == 2
    assert rig.rows == rig.expected
    # Of the attempt that came too late nothing is left.
    staged = [path for path in rig.files_there() if path.startswith(f"tidemark-{LINEAGE}-{rig.epoch:012d}")]
    assert set(staged) <= set(rig.live)


def test_somebody_who_is_always_faster(rig: Rig) -> None:
    rig.run(row("a", 0, 1), row("b", 0, 2))
    record = rig.stage(row("a", 0, 3))
    survivors = rig.rewriter.survivors

    def meanwhile(*arguments: object) -> list[StagedFile]:
        write_deltalake(str(rig.folder), as_table([row("c", 500, 9)]), mode="append")
        return survivors(*arguments)  # type: ignore[arg-type]

    with mock.patch.object(rig.rewriter, "survivors", meanwhile), pytest.raises(PublishError, match="came first") as raised:
        rig.publish(record)
    assert raised.value.transient
    rig.publish(record)
    assert [found["n"] for found in rig.rows if found["k"] != "c"] == [3, 2]


DEMANDS = {
    "append only": ({"settings": {"delta.appendOnly": "true"}}, "its rows may only be added to"),
    "change feed": ({"settings": {"delta.enableChangeDataFeed": "true"}}, "it keeps a change feed"),
    "deletion vectors": ({"protocol": features(reader=("deletionVectors",))}, "deletionVectors, and rows that they hide would come back"),
}


@pytest.mark.parametrize(("made", "says"), DEMANDS.values(), ids=DEMANDS.keys())
def test_tables_whose_files_must_stay_are_refused_for_upserts_only(made: dict[str, Any], says: str, tmp_path: Path) -> None:
    make_table(tmp_path, **made)
    DeltaSink("rows", str(tmp_path)).check(ROWS)
    with pytest.raises(SinkError) as raised:
        DeltaSink("rows", str(tmp_path), Upsert(("k",))).check(ROWS)
    for text in (says, "'rows' does not fit the table", str(tmp_path), "another path"):
        assert text in str(raised.value)


def test_a_file_with_an_odd_name_is_not_taken_for_another(rig: Rig) -> None:
    rig.run(row("a", 0, 1))
    (file,) = write(rig.store, [row("z", 0, 2)], "odd name.parquet")
    table = rig.table
    added = AddAction(file.path, file.bytes, {}, 1, data_change=True, stats='{"numRecords": 1}')
    table.create_write_transaction([added], "append", table.schema())
    with pytest.raises(SinkError, match="may replace rows of odd%20name"):
        rig.run(row("a", 0, 3))
    assert [found["n"] for found in rig.rows] == [1, 2]


class Killed(BaseException):
    """The process ends here."""


STEPS = {
    "before anything": "tidemark.spark.sinks.delta.delta_merge.live_files",
    "the keys are read": "tidemark.spark.sinks.delta.delta_merge.new_attempt",
    "the files are rewritten": "tidemark.spark.sinks.delta.delta_merge.crash_point",
    "just before the commit": "tidemark.spark.sinks.delta.delta_commits.CommitProperties",
    "the commit is done": "tidemark.spark.sinks.delta.delta_maintenance.Maintenance.after_publication",
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("foreign", [False, True], ids=["alone", "another writes meanwhile"])
def test_killed_between_any_two_steps(rig: Rig, step: str, *, foreign: bool) -> None:
    rig.run(row("a", 0, 1), row("b", 0, 2))
    record = rig.stage(row("a", 0, 3), row("c", 0, 4))
    for _ in range(2):
        with mock.patch(STEPS[step], side_effect=Killed), pytest.raises(Killed):
            rig.publish(record)
        rig.restart()
        assert rig.rows in ([row("a", 0, 1), row("b", 0, 2)], rig.expected), "a reader sees half an epoch"
        if foreign:
            write_deltalake(str(rig.folder), as_table([row("b", 0, 9)]), mode="append")
            rig.table.delete("n = 9")
    rig.publish(record)
    assert rig.rows == rig.expected
    staged = {path for path in rig.files_there() if path.startswith(f"tidemark-{LINEAGE}-{rig.epoch:012d}")}
    assert staged <= set(rig.live), "an attempt that came to nothing is left"
    require_not_ahead({"rows": BoundSink("rows", rig.sink)}, LINEAGE, rig.epoch)


def test_the_attempt_of_a_driver_that_still_lives_is_left_alone(rig: Rig) -> None:
    """Its commit could still be the next version."""
    rig.run(row("a", 0, 1), row("b", 0, 2))
    record = rig.stage(row("a", 0, 3))
    with mock.patch(STEPS["just before the commit"], side_effect=Killed), pytest.raises(Killed):
        rig.publish(record)
    (attempt,) = [path for path in rig.files_there() if "/merged-" in path]
    Maintenance("rows", rig.store, rig.rewriter).after_publication(rig.table, attempt.partition("/")[0])
    assert attempt in rig.files_there()
    rig.restart()
    rig.publish(record)
    assert attempt not in rig.files_there()


def test_survivors_are_counted(rig: Rig) -> None:
    rig.run(row("a", 0, 1), row("b", 0, 2))
    record = rig.stage(row("a", 0, 3))
    with (
        mock.patch.object(rig.rewriter, "survivors", return_value=[]),
        pytest.raises(ConservationError, match=r"1 rows .* were to stay and 0"),
    ):
        rig.publish(record)
    assert len(rig.rows) == 2


def test_a_rewriting_that_fails_in_spark_is_a_publication_that_failed(rig: Rig) -> None:
    """PySpark raises what a task dies of as Java's exception."""
    rig.run(row("a", 0, 1), row("b", 0, 2))
    record = rig.stage(row("a", 0, 3))
    with mock.patch.object(rig.rewriter, "survivors", side_effect=Py4JError("task failed")), pytest.raises(PublishError) as raised:
        rig.publish(record)
    assert (raised.value.transient, raised.value.epoch) == (True, rig.epoch)
    rig.publish(record)
    assert rig.rows == rig.expected


ALL_CASES = settings().max_examples
"""As many as the profile has."""

RESULTS = st.builds(
    row,
    st.sampled_from(["a", "b", None]),
    st.sampled_from([0, 10, 20, 30]),
    st.integers(0, 99),
    replaces=st.lists(st.sampled_from([0, 10, 20, 30]), max_size=2, unique=True),
)


@st.composite
def epochs(draw: st.DrawFn) -> list[list[Row]]:
    """Epochs as they are staged: of each key one row, none that another one of the epoch replaces."""
    found = []
    for rows in draw(st.lists(st.lists(RESULTS, min_size=1, max_size=5), min_size=1, max_size=6)):
        newest = {(item["k"], item["window_start"]): item for item in rows}
        gone = {(item["k"], start) for item in newest.values() for start in item["replaces"] if start != item["window_start"]}
        found.append([item for key, item in newest.items() if key not in gone])
    return found


CASES_OF_A_TABLE = 8
"""Keys are independent of one another, and every epoch costs what a table does."""


def of_case(number: int, item: Row) -> Row:
    """Return the row of a case of its own in a table of several: no other one has its keys; that of all nulls is the first one's."""
    return item if number == 0 else {**item, "k": f"{number}{item['k']}"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=ALL_CASES // CASES_OF_A_TABLE)
@given(
    cases=st.lists(epochs(), min_size=CASES_OF_A_TABLE, max_size=CASES_OF_A_TABLE),
    sessions=st.booleans(),
    restarts=st.sets(st.integers(0, 5)),
    compacts=st.sets(st.integers(0, 5)),
)
def test_any_epochs(
    tmp_path_factory: pytest.TempPathFactory, *, cases: list[list[list[Row]]], sessions: bool, restarts: set[int], compacts: set[int]
) -> None:
    rig = Rig(tmp_path_factory.mktemp("any") / "table", SESSIONS if sessions else WINDOWS)
    for number, parts in enumerate(zip_longest(*cases, fillvalue=[])):
        rows = [of_case(case, item) for case, part in enumerate(parts) for item in part]
        if rows:
            rig.run(*rows, files=1 + number % 2)
        if number in restarts:
            rig.restart()
        if number in compacts and rows:
            rig.table.optimize.compact()
        if rig.epoch >= 0:
            assert rig.rows == rig.expected
