"""Savepoints of each format there was, as test data: read for ever, as a savepoint in a job's folder and as an export.

In ``golden/<format>``, ``store`` and ``export`` have every field of what is written down, and ``job`` is an export with the state of every
operator, the input that comes after it, and what must come of both. When what is stored changes, or operators of a new kind are stored, a
folder comes beside the old ones: ``store`` and ``export`` by hand, ``job`` by ``python -m tests.savepoints.write_golden``. What is there is
never written again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.savepoints.every_operator import streams_of
from tests.savepoints.golden_job import EXPORT, Expected, elements_of, land_rest, read_expected, rows_of, windows_of
from tests.savepoints.operator_runs import TABLES, OperatorRuns, Rows, covering, operators_of, require_rest
from tests.savepoints.stored_jobs import StoredJob, clock_ahead, live_files
from tests.seeds import PROFILE
from tidemark.graph.operators.registry import stored_state
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.export.importing import import_savepoint
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(path.parent.name for path in GOLDEN.glob("*/store"))
JOBS = sorted(path.parent.name for path in GOLDEN.glob("*/job"))


def test_there_is_one_of_the_current_format() -> None:
    assert FORMATS == ["1"]
    assert JOBS == ["1", "1-process-functions", "1-with-changelogs"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_savepoint_in_a_folder_is_read_and_restored(tmp_path: Path, form: str) -> None:
    shutil.copytree(GOLDEN / form / "store", tmp_path / "store")
    root = JobStore.open(str(tmp_path / "store"))
    found = SavepointStore(root, "taxi").get("golden")
    assert (found.info.kind, found.info.note, dict(found.info.labels)) == ("manual", "frozen", {"format": form})
    assert (found.record.epoch, found.info.state_files) == (1, 5)
    assert found.info.tables["hourly"].version == 4
    fork = StoredJob(root, "fork", clock_ahead())
    begun = fork.restore(Restore("golden", job="taxi"))
    assert len(live_files(begun)) == 5
    assert (begun.totals["sources"]["trips"]["read"], begun.sources["trips"].watermark) == (20, 5_000)


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_is_imported_and_restored(tmp_path: Path, form: str) -> None:
    moved = StoredJob(JobStore.open(str(tmp_path / "store")), "moved", clock_ahead())
    found = import_savepoint(moved.savepoints, str(GOLDEN / form / "export"))
    assert (found.name, found.info.note, found.record.epoch) == ("golden", "frozen", 1)
    begun = moved.restore(Restore("golden"))
    assert all(moved.folder.exists(path) for _, path in live_files(begun))


@pytest.mark.spark
@pytest.mark.parametrize("form", JOBS)
def test_a_job_goes_on_with_the_state_of_every_operator(spark: SparkSession, tmp_path: Path, form: str) -> None:
    # A copy: what is golden is not even opened by what could write.
    home = Path(shutil.copytree(GOLDEN / form / "job", tmp_path / "golden"))
    expected = read_expected(home)
    shown_by_it = outputs_shown_by(form)
    runs = OperatorRuns(spark, tmp_path, shown_by_it)
    land_rest(home, runs.landing)
    job, _ = OperatorRuns(spark, tmp_path).job("job")
    taken = tm.import_savepoint(job, str(home / EXPORT))
    keeping = {name for name, operator in taken.record.operators.items() if stored_state(operator.definition)}
    assert {operator_of(name) for name in expected.windows} == keeping
    stored = tm.savepoint(job, "golden")
    read_before = operators_of_older(form)
    assert windows_of(stored, spark, but=read_before) == without(expected.windows, read_before)
    tables_of = {uid: set(stored.tables(uid, spark)) for uid in keeping - read_before}
    assert tables_of == {uid: set(stored.operators[uid].tables) for uid in tables_of}, "as they are known without Spark"
    assert elements_of(stored, spark, but=read_before) == without(expected.elements, read_before)
    is_whole = shown_by_it == {*expected.rows, *expected.tables}
    restore = tm.Restore("golden", allow_non_restored_state=not is_whole)
    found = rows_of(runs.run(first=taken.record.epoch + 1, turns=(7, 1), restore=restore).epochs)
    shown = as_then if form == "1" else sorted
    assert {output: shown(rows) for output, rows in found.items()} == {name: expected.rows[name] for name in shown_by_it - set(TABLES)}
    if set(TABLES) <= shown_by_it:
        tables = {output: shown(rows) for output, rows in runs.rows_of_tables("job").items()}
        require_rest(tables, expected.before, expected.tables)


def older_than(form: str) -> list[Expected]:
    """Return what older golden savepoints hold, whose operators are not looked at again; in the long profile nothing."""
    older = JOBS[: JOBS.index(form)] if PROFILE != "long" else []
    return [read_expected(GOLDEN / name / "job") for name in older]


def operators_of_older(form: str) -> set[str]:
    """Return the operators whose state is read from an older golden savepoint."""
    return {operator_of(name) for older in older_than(form) for name in older.windows}


def without(rows: Rows, operators: set[str]) -> Rows:
    """Return rows by operator, or by operator and table, without those of some operators."""
    return {name: found for name, found in rows.items() if operator_of(name) not in operators}


def operator_of(name: str) -> str:
    """Return the operator of a name such as ``uid`` or ``uid.table``."""
    return name.partition(".")[0]


def outputs_shown_by(form: str) -> set[str]:
    """Return the outputs that are run from a golden savepoint, in the long profile all.

    Of those that no older one has: the tables, one for each kind of operator and way in which it is run, and what else these operators
    give. The state of the other operators is read.
    """
    found = read_expected(GOLDEN / form / "job")
    outputs = {*found.rows, *found.tables} - {output for older in older_than(form) for output in (*older.rows, *older.tables)}
    if PROFILE == "long":
        return outputs
    streams = streams_of(Path("landing"))
    shown = covering({output: streams[output] for output in sorted(outputs)}, [output for output in TABLES if output in outputs])
    run = {operator for output in shown for operator in operators_of(streams[output])}
    return {output for output in outputs if run.issuperset(operators_of(streams[output]))}


def as_then(texts: Sequence[str]) -> list[str]:
    """Return rows as the release of the first golden savepoint showed them.

    Which sessions a row replaces was told by their starts alone, malformed records were written again without their nulls, and the
    reason did not name the column.
    """
    rows = [json.loads(text) for text in texts]
    for row in rows:
        if "replaces" in row:
            row["replaces"] = [each["window_start"] for each in row["replaces"]]
        if "raw" in row:
            record = {name: value for name, value in json.loads(row["raw"]).items() if value is not None}
            row["raw"] = json.dumps(record, separators=(",", ":"))
            row["reason"] = row["reason"].replace("event time 't'", "event time")
    return sorted(json.dumps(row, sort_keys=True) for row in rows)
