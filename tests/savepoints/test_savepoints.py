from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tests.savepoints.stored_jobs import StoredJob, store_in_memory
from tidemark.errors import CorruptStoreError, InvalidNameError, UnknownSavepointError
from tidemark.graph.model.nodes import DeltaSpec
from tidemark.savepoints.core.retention import DAY_MS, SavepointRetention, plan_disposal
from tidemark.savepoints.model.isolation import redirect_outputs
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.savepoint import AUTOMATIC, Kind, Savepoint, SavepointInfo
from tidemark.spark.sinks.delta.delta_maintenance import Maintenance
from tidemark.spark.sinks.delta.delta_rewrite import SparkRewriter
from tidemark.state.gc import pins
from tidemark.state.gc.pins import Pins
from tidemark.state.gc.retention import retire
from tidemark.state.store.store import JobStore


@pytest.fixture
def job() -> StoredJob:
    return StoredJob(store_in_memory())


def test_a_savepoint_outlives_the_log_and_says_what_it_holds(job: StoredJob) -> None:
    record = job.commit(3)
    taken = job.savepoints.take("a", by="me", note="why", labels={"k": "v"})
    for _ in range(3):
        job.commit(1, dropped=3)
        retire(job.driver, retained_epochs=1)
    job.sweep_thoroughly(retained=1)
    found = job.savepoints.get("a")
    assert found == taken
    assert (found.record, found.info.state_rows, found.info.state_bytes, found.info.state_files) == (record, 30, 3, 3)
    assert (found.info.kind, found.info.by, found.info.note, found.info.labels) == ("manual", "me", "why", {"k": "v"})
    assert all(job.folder.exists(file.path) for file in record.operators["hourly"].files)


def test_names_that_nobody_gave_differ_and_names_are_taken_once(job: StoredJob) -> None:
    with pytest.raises(UnknownSavepointError, match=r"the job has no epoch yet.*Fix: start it.*`tidemark status "):
        job.savepoints.take()
    job.commit()
    job.clock.set(1_800_000_000_000)
    names = [job.savepoints.take().name for _ in range(3)]
    assert names == ["sp-0-20270115T080000Z", "sp-0-20270115T080000Z-2", "sp-0-20270115T080000Z-3"]
    job.savepoints.take("a")
    with pytest.raises(InvalidNameError, match="there is a savepoint 'a' already"):
        job.savepoints.take("a")
    with pytest.raises(CorruptStoreError, match="epoch 7 is not retained"):
        job.savepoints.take(epoch=7)
    with pytest.raises(UnknownSavepointError, match=r"name an existing one \(a, sp-0"):
        job.savepoints.get("b")


def test_a_pin_that_says_nothing_of_itself_is_a_savepoint_too(job: StoredJob) -> None:
    job.commit(2)
    Pins(job.log).put("by-hand", 0)
    found = job.savepoints.get("by-hand")
    assert (found.info.kind, found.info.state_rows, found.info.code_version) == ("manual", 20, "c0ffee")


def test_what_changed_between_two(job: StoredJob) -> None:
    job.commit(2)
    job.savepoints.take("a")
    job.commit(1, dropped=2)
    job.savepoints.take("b")
    found = job.savepoints.diff("a", "b")
    assert (found.epochs.before, found.epochs.after, found.same_lineage) == (0, 1, True)
    assert {uid: (count.before, count.after) for uid, count in found.state_rows.items()} == {"hourly": (20, 10)}
    assert {name: (count.before, count.after) for name, count in found.read.items()} == {"trips": (10, 20)}
    job.restore(Restore("a"))
    job.savepoints.take("c")
    assert not job.savepoints.diff("b", "c").same_lineage


def test_retention_lets_go_of_what_nobody_took_by_hand_and_nothing_needs(job: StoredJob) -> None:
    job.commit()
    for number in range(12):
        job.savepoints.take(f"p{number:02d}", kind="periodic")
        job.clock.advance(1000)
    job.savepoints.take("mine")
    fork = StoredJob(job.root, "fork", job.clock)
    fork.restore(Restore("p00", job="taxi"))
    assert [item.name for item in job.savepoints.retire()] == ["p01"]
    job.clock.advance(8 * DAY_MS)
    assert len(job.savepoints.retire()) == 10
    assert [item.name for item in job.savepoints.list()] == ["p00", "mine"]


kinds = st.sampled_from(["manual", *sorted(AUTOMATIC)])


@given(
    taken=st.lists(st.tuples(st.integers(0, 20), kinds, st.booleans()), max_size=30),
    count=st.integers(0, 5),
    age=st.integers(0, 10),
)
def test_retention_keeps_what_it_must_and_no_more(taken: list[tuple[int, Kind, bool]], count: int, age: int) -> None:
    job = StoredJob(store_in_memory())
    record = job.commit()
    savepoints = [
        Savepoint("taxi", f"s{number:02d}", at * DAY_MS, SavepointInfo(kind=kind), record) for number, (at, kind, _) in enumerate(taken)
    ]
    used = {savepoint.name for savepoint, (_, _, needed) in zip(savepoints, taken, strict=True) if needed}
    gone = plan_disposal(savepoints, SavepointRetention(count, age * DAY_MS), used=used, now_ms=20 * DAY_MS)
    left = [savepoint for savepoint in savepoints if savepoint not in gone]
    assert bool(left) == bool(savepoints)
    assert not used & {savepoint.name for savepoint in gone}
    assert all(savepoint.info.kind in AUTOMATIC for savepoint in gone)
    newest = max(savepoints, key=lambda savepoint: (savepoint.taken_at, savepoint.name), default=None)
    over = [item for item in left if item.info.kind in AUTOMATIC and item.name not in used and item is not newest]
    assert all(len([item for item in over if item.info.kind == kind]) <= count for kind in AUTOMATIC)
    # No kind is pushed out by another.
    young = [item for item in savepoints if item.info.kind in AUTOMATIC and item.taken_at >= (20 - age) * DAY_MS]
    for kind in AUTOMATIC:
        own = sorted((item for item in young if item.info.kind == kind), key=lambda item: (item.taken_at, item.name), reverse=True)
        assert not {item.name for item in own[:count]} & {item.name for item in gone}
    assert all(item.taken_at >= (20 - age) * DAY_MS for item in over)


@pytest.mark.parametrize(
    ("needed", "expected"),
    [(None, [True] * 4), (frozenset[int](), [False, False, False, True]), (frozenset({1}), [False, True, False, True])],
)
def test_a_vacuum_keeps_what_a_savepoint_needs(needed: frozenset[int] | None, expected: list[bool], tmp_path: Path) -> None:
    for number in range(4):
        write_deltalake(
            str(tmp_path),
            pa.table({"a": [number]}),
            mode="overwrite",
            configuration={"delta.deletedFileRetentionDuration": "interval 0 seconds"},
        )
    table = DeltaTable(str(tmp_path))
    store = JobStore.open(str(tmp_path))
    keeping = Maintenance("rows", store, SparkRewriter(store, 1), protected_versions=needed)
    keeping.after_publication(table, "tidemark-x")
    readable = []
    for version in range(4):
        old = DeltaTable(str(tmp_path), version=version)
        readable.append(all(Path(uri).exists() for uri in old.file_uris()))
    assert readable == expected


def test_a_fork_writes_elsewhere_under_its_own_name(tmp_path: Path) -> None:
    stream = tm.source("t", tm.from_elements([(1,)], schema="at BIGINT"), watermarks=tm.ingestion_time())
    job = tm.Job("taxi", outputs={"rows": tm.delta(stream, str(tmp_path / "rows")), "seen": tm.memory(stream, "seen")})
    fork = redirect_outputs(job, name="what-if", root=str(tmp_path / "fork"))
    assert (fork.name, fork.sources, job.name) == ("what-if", job.sources, "taxi")
    assert fork.outputs["rows"].sink == DeltaSpec(str(tmp_path / "fork" / "rows"))
    assert fork.outputs["seen"].sink == tm.memory(stream, "what-if_seen").sink


def test_an_epoch_that_was_retired_before_its_pin_is_put_is_never_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    job = StoredJob(store_in_memory())
    for _ in range(6):
        job.commit(dropped=0 if job.driver.last is None else 1)
    # Its tables may be looked up for longer than a lease.
    found = job.savepoints.pins.find(0)
    job.sweep_thoroughly(retained=2)
    put: list[str] = []
    monkeypatch.setattr(pins, "crash_point", put.append)
    with pytest.raises(CorruptStoreError, match="epoch 0 is not retained"):
        job.savepoints.pins.pin("b", found)
    assert put == []
