"""What status, top and a restore say of process functions."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.savepoints.stored_jobs import StoredJob, store_in_memory
from tidemark.cli.show.tables import progress_lines
from tidemark.cli.top.job_page import job_page
from tidemark.control.model.view import JobView
from tidemark.graph.operators.keyed_process.kind import KeyedProcessKind
from tidemark.graph.operators.registry import kinds
from tidemark.savepoints.model.restore import Restore, restored_record
from tidemark.state.log.progress import PROCESS_FUNCTIONS, EpochProgress, OperatorProgress, decode_progress, encode_progress
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.status import JobStatus

WATCH = OperatorProgress(
    rows_in=10,
    rows_accepted=9,
    rows_late=0,
    watermark=5,
    panes_on_time=0,
    panes_late=0,
    state_rows=7,
    state_bytes=900,
    state_files=1,
    counters={"failed": 1},
    kind="keyed_process",
    keys=1_204,
    timers=37,
    timers_fired=3,
    state_expired=2,
    keys_emptied=1,
    keys_expired=4,
)
HOURLY = OperatorProgress(9, 8, 1, 5, 2, 1, 10, 4096, 1)
ONCE = OperatorProgress(9, 6, 1, 5, 0, 0, 10, 4096, 1, counters={"duplicates": 2}, kind="deduplicate")
EPOCH = EpochProgress("machines", "a1", 3, 0, 20, rows_in=10, rows_out=4, operators={"watch": WATCH, "hourly": HOURLY, "once": ONCE})


def test_the_kinds_that_are_process_functions() -> None:
    assert {name for name, kind in kinds().items() if isinstance(kind, KeyedProcessKind)} == PROCESS_FUNCTIONS


def test_status_balances_and_says_what_is_kept() -> None:
    status = JobStatus("machines", "a1", "running", 0, 0, last=EPOCH, totals=add_epoch(empty_totals(), EPOCH))
    lines = [line.strip() for line in progress_lines(status)]
    assert "process function watch: in 10 = accepted 9 + failed 1; 1,204 keys, 37 timers" in lines
    assert "window hourly: in 9 = accepted 8 + late 1" in lines
    assert "deduplicate once: in 9 = accepted 6 + late 1 + duplicates 2" in lines


def test_an_operator_that_the_job_no_longer_has_is_still_balanced() -> None:
    totals = add_epoch(empty_totals(), EPOCH)
    lines = progress_lines(JobStatus("machines", "a1", "running", 0, 0, last=None, totals=totals))
    assert "  window watch: in 10 = accepted 9 + late 0 + failed 1" in lines


def test_top_has_a_table_of_process_functions() -> None:
    screen = io.StringIO()
    Console(width=140, file=screen).print(job_page(JobView("machines", 0, "running", "ok"), [EPOCH], title="top"))
    lines = screen.getvalue().splitlines()
    (head,) = (line for line in lines if line.startswith("process function"))
    (row,) = (line for line in lines if line.startswith("watch"))
    assert head.split()[2:] == ["accepted", "failed", "keys", "timers", "fired", "expired", "state", "rows", "bytes", "files"]
    assert row.split() == ["watch", "9", "1", "1,204", "37", "3", "2", "7", "900", "1"]
    assert any(line.startswith("hourly") for line in lines)


def test_a_window_has_the_same_form_as_before() -> None:
    plain = encode_progress(EPOCH)
    operators = plain["operators"]
    assert isinstance(operators, dict)
    assert "kind" not in operators["hourly"]
    assert operators["watch"]["kind"] == "keyed_process"
    assert decode_progress(plain, path="x") == EPOCH


def test_the_first_record_of_a_restored_job_counts_nothing_again() -> None:
    job = StoredJob(store_in_memory(), uids=("watch", "once"))
    job.commit()
    job.savepoints.take("a")
    found = job.savepoints.get("a")
    progress = replace(found.record.progress, operators={"watch": WATCH, "once": ONCE})
    restored = restored_record(
        replace(found, record=replace(found.record, progress=progress)), Restore("a"), job="taxi", term=2, lineage="b2"
    ).progress
    for operator in restored.operators.values():
        assert operator.rows_in == operator.rows_accepted + operator.rows_late + sum(operator.counters.values()) == 0
    watch = restored.operators["watch"]
    assert (watch.timers_fired, watch.state_expired, watch.keys_emptied, watch.keys_expired) == (0, 0, 0, 0)
    assert (watch.kind, watch.keys, watch.timers) == ("keyed_process", 1_204, 37)
