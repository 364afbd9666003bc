"""``tidemark status``: whether a job that says that it runs does."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli.program.main import main
from tidemark.clock import SYSTEM_CLOCK
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.state.log.heartbeat import Heartbeat, write_heartbeat
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.totals import empty_totals
from tidemark.state.status.status import JobStatus, State, write_status
from tidemark.state.store.store import JobStore

LONG_AGO = 1_700_000_000_000
SHOWN = "2023-11-14T22:13:20.000Z"


def first_line(folder: Path, state: State, *, said_at: int, beat_at: int | None) -> str:
    """Return how the command describes a job that left this behind."""
    root = JobStore.open(str(folder))
    write_status(root, JobStatus("fares", "l1", state, heartbeat_at=said_at, started_at=said_at))
    if beat_at is not None:
        write_heartbeat(root.at("fares"), Heartbeat(1, current_owner(), beat_at, 3))
    done = CliRunner().invoke(main, ["status", "fares", "--store", str(folder)])
    assert done.exit_code == 0, done.output
    return done.output.splitlines()[0]


@pytest.mark.parametrize("beat_at", [None, LONG_AGO - 60_000, LONG_AGO])
def test_a_driver_that_is_silent_is_not_said_to_run(tmp_path: Path, beat_at: int | None) -> None:
    assert first_line(tmp_path, "running", said_at=LONG_AGO, beat_at=beat_at) == f"fares: dead, no heartbeat since {SHOWN}"


def test_a_driver_that_waits_for_input_is_alive(tmp_path: Path) -> None:
    line = first_line(tmp_path, "running", said_at=LONG_AGO, beat_at=SYSTEM_CLOCK.now_ms())
    assert line.startswith("fares: running, heartbeat 20")
    assert SHOWN not in line


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_a_job_that_has_ended_needs_no_heartbeat(tmp_path: Path, state: State) -> None:
    assert first_line(tmp_path, state, said_at=LONG_AGO, beat_at=LONG_AGO) == f"fares: {state}, heartbeat {SHOWN}"


def test_late_rows_say_what_would_have_kept_them(tmp_path: Path) -> None:
    totals = empty_totals()
    totals["operators"] = {"hourly": {"in": 9, "accepted": 5, "late": 4}, "pairs": {"in": 3, "accepted": 2, "late_left": 1}}
    totals["shortfalls"] = {
        "hourly": {"late": Shortfalls.of([500, 40_000, 50_000, 3_000_000], 600_000)},
        "pairs": {"late_left": Shortfalls.of([5], None)},
    }
    status = JobStatus("fares", "l1", "finished", heartbeat_at=LONG_AGO, started_at=LONG_AGO, totals=totals)
    write_status(JobStore.open(str(tmp_path)), status)
    shown = CliRunner().invoke(main, ["status", "fares", "--store", str(tmp_path)]).output.splitlines()
    assert shown[1:] == [
        "  window hourly: in 9 = accepted 5 + late 4",
        "    late: an allowed lateness of 11m would have kept 75% of 4 late rows, one of 1h 10m all",
        "  window pairs: in 3 = accepted 2 + late_left 1",
        "    late left: a bound of the watermark greater by 1s would have kept all of 1 late rows",
    ]


def test_an_unknown_job_has_a_code_of_its_own(tmp_path: Path) -> None:
    for command in ("status", "history"):
        done = CliRunner().invoke(main, [command, "nobody", "--store", str(tmp_path)])
        assert done.exit_code == 1
        assert done.stderr.startswith("tidemark: [TM414] there is no job 'nobody'")
