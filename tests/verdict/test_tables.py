"""What becomes of result tables when a job's rows have other columns: told before anything is written."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import CommitProperties, DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

import tidemark as tm
from tests.verdict.stored import record_of, trips
from tidemark.cli.program.main import main
from tidemark.control.model.spec import JobSpec
from tidemark.control.upgrade.code_check import Maps, judge_code
from tidemark.errors import SinkError, StateMismatchError
from tidemark.savepoints.compatibility.checking import check
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.delta.result_tables import check_outputs
from tidemark.savepoints.model.table_columns import Stored, column_findings
from tidemark.savepoints.model.verdict import OutputVerdict, Verdict
from tidemark.state.delta.delta_tags import EPOCH, LINEAGE
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import EpochRecord, OutputRecord, RestoreRef
from tidemark.state.log.totals import Totals, empty_totals
from tidemark.state.store.store import JobStore

TABLE = {"zone": "integer", "n": "long", "f": "double"}

CASES: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "the same in another order": ({"f": "double", "zone": "integer", "n": "long"}, {}),
    "types that only Spark knows": ({"zone": None, "n": None, "f": None}, {}),
    "a new column": ({**TABLE, "top": "double"}, {"the table gets column 'top' (DOUBLE)": "migrates"}),
    "a new column of a type that only Spark knows": ({**TABLE, "top": None}, {"the table gets column 'top'": "migrates"}),
    "a column that is gone": ({"zone": "integer", "n": "long"}, {"column 'f' is null from now on": "compatible"}),
    "a renamed column": (
        {"zone": "integer", "n": "long", "total": "double"},
        {"the table gets column 'total' (DOUBLE)": "migrates", "column 'f' is null from now on": "compatible"},
    ),
    "a wider type": (
        {**TABLE, "zone": "long"},
        {"column 'zone' is BIGINT in the output and INT in the table, whose types stay": "incompatible"},
    ),
    "a narrower type": (
        {**TABLE, "n": "integer"},
        {"column 'n' is INT in the output and BIGINT in the table, whose types stay": "incompatible"},
    ),
    "another spelling": ({"Zone": "integer", "n": "long", "f": "double"}, {"column 'Zone' is spelled 'zone' in the table": "incompatible"}),
    "a required column that is gone": (
        {"n": "long", "f": "double"},
        {"the output lacks column 'zone' (INT), which is NOT NULL in the table": "incompatible"},
    ),
    "a new key": (
        {**TABLE, "day": "date"},
        {"column 'day' (DATE) is a key and new to the table, so no existing row could be replaced": "incompatible"},
    ),
    "all at once": (
        {"zone": "string", "N": "long", "more": "long"},
        {
            "column 'zone' is STRING in the output and INT in the table, whose types stay": "incompatible",
            "column 'N' is spelled 'n' in the table": "incompatible",
            "the table gets column 'more' (BIGINT)": "migrates",
            "column 'f' is null from now on": "compatible",
        },
    ),
}


@pytest.mark.parametrize(("wanted", "says"), CASES.values(), ids=CASES.keys())
def test_a_table_that_follows(wanted: dict[str, object], says: dict[str, str]) -> None:
    found = column_findings(wanted, Stored("table", TABLE, follows=True, fix="-", required={"zone"}, keys=("zone", "day")))
    assert {finding.what: finding.fit for finding in found} == says
    assert all(finding.fix for finding in found if finding.fit == "incompatible")


def test_a_rename_is_guessed_where_only_one_column_can_be_meant() -> None:
    def gone(**new: str) -> str:
        found = column_findings({"zone": "integer", "n": "long", **new}, Stored("table", TABLE, follows=True, fix="-"))
        return next(finding.text() for finding in found if "'f'" in finding.what)

    old = "column 'f' is null from now on; older rows keep their values"
    assert gone(total="double") == f"{old}; if it is called 'total' now, rename it back in a select to keep writing to it"
    assert gone(total="double", tips="double") == gone(total="string") == old


def test_what_does_not_follow_must_have_the_same_columns() -> None:
    found = column_findings({"zone": "integer", "n": "long", "top": "double"}, Stored("folder", TABLE, follows=False, fix="elsewhere"))
    assert [(finding.what, finding.fit, finding.fix) for finding in found] == [
        ("the folder lacks column 'top' (DOUBLE)", "incompatible", "elsewhere"),
        ("the output lacks column 'f' (DOUBLE)", "incompatible", "elsewhere"),
    ]


# -------------------------------------------------------------------------------------------------- jobs and their tables


def counted(**aggregates: tm.Aggregate) -> tm.Stream:
    return trips().key_by("zone").window(tm.tumbling("1 hour")).aggregate(**aggregates).uid("w")


def job(folder: Path, kind: str = "delta", name: str = "taxi", **aggregates: tm.Aggregate) -> tm.Job:
    stream, path = counted(**aggregates), str(folder / "out")
    outputs = {
        "delta": lambda: tm.delta(stream, path),
        "upsert": lambda: tm.delta(stream, path, mode="upsert"),
        "keys": lambda: tm.delta(stream, path, mode="upsert", keys=["zone", "top"]),
        "parquet": lambda: tm.parquet(stream, path),
    }
    return tm.Job(name, outputs={"out": outputs[kind](), "shown": tm.memory(stream, "shown")}, store=str(folder / "store"))


def record(folder: Path, sink: str = "delta", **aggregates: tm.Aggregate) -> EpochRecord:
    """Return an epoch of the job, whose output has had a row by then."""
    totals = Totals(sources={}, filters={}, operators={}, outputs={"out": 1})
    return replace(record_of(counted(**aggregates)), outputs={"out": OutputRecord(sink, str(folder / "out"))}, totals=totals)


UTC = pa.timestamp("us", "UTC")
ROW = pa.table(
    {
        "zone": pa.array([1], pa.int32()),
        "window_start": pa.array([0], UTC),
        "window_end": pa.array([1], UTC),
        "n": pa.array([1], pa.int64()),
        "pane_timing": ["ON_TIME"],
        "pane_index": pa.array([0], pa.int32()),
    }
)
COUNT, TOP = tm.count(), tm.max("fare")


def write(folder: Path, rows: pa.Table = ROW, *, tags: Mapping[str, str] | None = None) -> None:
    """Make the output's table, as an epoch of the job has left it; with no tags, as somebody else has."""
    made = {LINEAGE: "a1", EPOCH: "3"} if tags is None else dict(tags)
    write_deltalake(str(folder / "out"), rows, commit_properties=CommitProperties(custom_metadata=made))


def output(found: Verdict) -> OutputVerdict:
    (only,) = found.outputs
    return only


def judged(folder: Path, changed: tm.Job, stored: EpochRecord | None = None) -> Verdict:
    stored = stored or record(folder, n=COUNT)
    return check_compatibility(stored, changed, outputs=check_outputs(changed, stored))


@pytest.mark.parametrize("kind", ["delta", "upsert"])
def test_an_aggregate_more_gives_the_table_a_column(tmp_path: Path, kind: str) -> None:
    write(tmp_path)
    found = judged(tmp_path, job(tmp_path, kind, n=COUNT, top=TOP))
    assert (found.status, output(found).status) == ("migrates", "migrates")
    found.require()
    assert f"  output    out    migrates: the table at {tmp_path / 'out'}\n    the table gets column 'top' (DOUBLE)" in found.text()
    assert from_jsonable(Verdict, json.loads(json.dumps(to_jsonable(found))), path="-") == found
    assert DeltaTable(str(tmp_path / "out")).version() == 0
    keys = {"upsert": {"mode": "upsert", "keys": '["zone", "window_start", "window_end"]'}}.get(kind, {})
    stored = record(tmp_path, n=COUNT)
    stored = replace(stored, outputs={"out": replace(stored.outputs["out"], options=keys)})
    same = judged(tmp_path, job(tmp_path, kind, n=COUNT), stored)
    assert (same.status, output(same).findings, "output" in same.text()) == ("compatible", (), False)


def test_a_new_key_is_refused(tmp_path: Path) -> None:
    write(tmp_path)
    assert "is a key and new to the table" in output(judged(tmp_path, job(tmp_path, "keys", n=COUNT, top=TOP))).reasons


def test_only_a_table_that_the_job_wrote_to_follows(tmp_path: Path) -> None:
    changed = job(tmp_path, n=COUNT, top=TOP)
    write(tmp_path, tags={})
    assert output(judged(tmp_path, changed)).reasons == "the table lacks column 'top' (DOUBLE)"
    write_deltalake(
        str(tmp_path / "out"), ROW, mode="append", commit_properties=CommitProperties(custom_metadata={LINEAGE: "a1", EPOCH: "3"})
    )
    assert judged(tmp_path, changed).fits
    # Of another job's epoch, of an output that had no row yet, of one that was not there, and of one that was elsewhere.
    stored = record(tmp_path, n=COUNT)
    silent = replace(stored, totals=empty_totals())
    assert judged(tmp_path, changed, replace(silent, restored=RestoreRef("rewind-1", "taxi", "good"))).fits, "it was put back"
    for other in (
        replace(stored, job="other"),
        silent,
        replace(stored, outputs={}),
        replace(stored, outputs={"out": OutputRecord("delta", str(tmp_path / "elsewhere"))}),
    ):
        assert not judged(tmp_path, changed, other).fits
        assert all(each.fits for each in check_outputs(changed, other, stored)), "the newest epoch had it there"
        assert judged(tmp_path, job(tmp_path, n=COUNT), other).fits


def test_tables_that_ask_too_much_are_told(tmp_path: Path) -> None:
    fields = [
        Field("zone", PrimitiveType("integer")),
        Field("n", PrimitiveType("long")),
        Field("must", PrimitiveType("string"), nullable=False),
    ]
    DeltaTable.create(str(tmp_path / "out"), Schema(fields), partition_by=["zone"])
    write_tagged(tmp_path)
    with pytest.raises(SinkError) as raised:
        judged(tmp_path, job(tmp_path, n=COUNT)).require()
    for text in ("it is partitioned by zone", "'must' (STRING), which is NOT NULL", "remove these features", "'taxi'", "'out'"):
        assert text in str(raised.value)


def write_tagged(folder: Path) -> None:
    rows = pa.table({"zone": pa.array([1], pa.int32()), "n": pa.array([1], pa.int64()), "must": ["x"]})
    properties = CommitProperties(custom_metadata={LINEAGE: "a1", EPOCH: "3"})
    write_deltalake(str(folder / "out"), rows, mode="append", partition_by=["zone"], commit_properties=properties)


def test_state_and_tables_are_refused_together(tmp_path: Path) -> None:
    write(tmp_path, ROW.set_column(3, "n", pa.array(["1"])))
    with pytest.raises(StateMismatchError) as raised:
        judged(tmp_path, job(tmp_path, n=COUNT), record(tmp_path, n=COUNT, f=TOP)).require()
    for text in (
        "operator 'w': the aggregate 'f' was removed",
        "output 'out': column 'n' is BIGINT in the output and STRING",
        "cast it to STRING",
    ):
        assert text in str(raised.value)


def test_what_nobody_can_look_at_is_unknown_and_what_is_not_there_is_not_named(tmp_path: Path) -> None:
    changed = job(tmp_path, n=COUNT, top=TOP)
    assert judged(tmp_path, changed).outputs == ()
    assert judged(tmp_path, job(tmp_path, "parquet", n=COUNT)).outputs == ()
    assert not (tmp_path / "out").exists()
    write(tmp_path)
    (tmp_path / "out" / "_delta_log" / f"{0:020d}.json").write_text("{")
    broken = judged(tmp_path, changed)
    assert (broken.fits, output(broken).status) == (True, "unknown")
    assert "cannot be read" in broken.text()


def test_columns_that_only_the_running_job_knows_are_unknown(tmp_path: Path) -> None:
    write(tmp_path)
    stream = trips().transform(lambda rows: rows)
    changed = tm.Job("taxi", outputs={"out": tm.delta(stream, str(tmp_path / "out"))}, store=str(tmp_path / "store"))
    found = check_outputs(changed, record(tmp_path, n=COUNT))
    assert [each.status for each in found] == ["unknown"]
    told = check_outputs(changed, record(tmp_path, n=COUNT), known={"out": {**dict.fromkeys(ROW.column_names), "top": "double"}})
    assert [finding.what for finding in told[0].findings] == ["the table gets column 'top' (DOUBLE)"]


def test_files_of_a_folder_all_have_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    pq.write_table(ROW.select(["n", *[name for name in ROW.column_names if name != "n"]]), tmp_path / "out" / "part-0.parquet")
    stored = record(tmp_path, "parquet", n=COUNT)
    assert judged(tmp_path, job(tmp_path, "parquet", n=COUNT), stored).fits
    with pytest.raises(SinkError, match="the folder lacks column 'top'") as raised:
        judged(tmp_path, job(tmp_path, "parquet", n=COUNT, top=TOP), stored).require()
    assert "Delta table" in raised.value.fix


def test_the_command_tells_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = JobLog(JobStore.open(str(tmp_path / "store")).at("taxi"), "taxi").acquire(current_owner(""))
    driver.append(record(tmp_path, n=COUNT))
    driver.release()
    write(tmp_path)
    module = ModuleType("taxi_tables")
    monkeypatch.setitem(sys.modules, "taxi_tables", module)

    def run(changed: tm.Job) -> tuple[int, str]:
        module.job = changed  # type: ignore[attr-defined]
        done = CliRunner().invoke(main, ["check", "taxi_tables:job"])
        return done.exit_code, done.output

    code, shown = run(job(tmp_path, n=COUNT, top=TOP))
    assert (code, "the table gets column 'top' (DOUBLE)" in shown) == (0, True)
    changed = job(tmp_path, n=COUNT, pane=tm.count())
    assert output(check(changed)).findings[0].what == "the table gets column 'pane' (BIGINT)"
    wrong = tm.Job("taxi", outputs={"out": tm.delta(counted(n=COUNT).with_columns(n="'x'"), str(tmp_path / "out"))}, store=changed.store)
    code, shown = run(wrong)
    assert (code, "column 'n' is STRING in the output and BIGINT in the table" in shown) == (1, True)


CODE = """
import tidemark as tm

rows = tm.from_elements([], schema="zone INT, fare DOUBLE, at TIMESTAMP")
trips = tm.source("trips", rows, watermarks=tm.ascending(timestamp="at"))
hours = trips.key_by("zone").window(tm.tumbling("1 hour")).aggregate(n=tm.count(), top=tm.max("fare")).uid("w")
job = tm.Job("taxi", outputs={"out": tm.delta(hours.with_columns(pane_index="'x'"), "out")})
"""


def test_an_upgrade_looks_at_the_tables_where_the_driver_would_find_them(tmp_path: Path) -> None:
    root = JobStore.open(str(tmp_path / "store"))
    driver = JobLog(root.at("taxi"), "taxi").acquire(current_owner(""))
    driver.append(record(tmp_path, n=COUNT))
    driver.release()
    write(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "taxi_v2.py").write_text(CODE)
    spec = JobSpec("taxi", "taxi_v2:job", code_paths=(str(tmp_path / "code"),), folder=str(tmp_path))
    found = judge_code(root, spec, Maps())
    assert [finding.what for finding in output(found).findings] == [
        "the table gets column 'top' (DOUBLE)",
        "column 'pane_index' is STRING in the output and INT in the table, whose types stay",
    ]
    with pytest.raises(SinkError, match="'out' does not fit the table"):
        found.require()
