"""The shipped helper itself: it tells a death at the point from every other ending."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tidemark.crashpoints import POINTS, crash_point
from tidemark.errors import CrashTestError, DefinitionError
from tidemark.testing.crash import Ending, run_until_crash

CHECKOUT = Path(__file__).parents[2]
pytestmark = pytest.mark.crash


def reach(*points: str) -> None:
    for point in points:
        print(f"at {point}", flush=True)
        crash_point(point)


def fail() -> None:
    raise ValueError("no such luck")


def die_elsewhere() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def start_another(folder: str) -> None:
    """Start a child that outlives its parent, as a JVM may, and write down its process id."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    (Path(folder) / "pid").write_text(str(child.pid))
    crash_point("before-commit")


def end(function: str, point: str, *args: str) -> Ending:
    return run_until_crash(f"tests.crash.test_run_until_crash:{function}", point, args, cwd=CHECKOUT)


def test_the_process_dies_at_the_point() -> None:
    ending = end("reach", "before-commit", "term-taken", "before-commit", "epoch-done")
    assert ending.require_killed() is ending
    assert (ending.killed, ending.status) == (True, -signal.SIGKILL)
    assert "at before-commit" in ending.output
    assert "at epoch-done" not in ending.output


def test_the_count_is_kept() -> None:
    ending = end("reach", "epoch-done:3", *["epoch-done"] * 4)
    assert ending.killed
    assert ending.output.count("at epoch-done") == 3


def test_a_point_that_is_not_reached_is_told() -> None:
    ending = end("reach", "epoch-done:3", "epoch-done")
    assert (ending.killed, ending.status) == (False, 0)
    with pytest.raises(CrashTestError, match="'epoch-done:3' and came to its end without reaching it"):
        ending.require_killed()


def test_a_failure_before_the_point_is_told() -> None:
    ending = end("fail", "epoch-done")
    with pytest.raises(CrashTestError, match=r"(?s)ended with status 1 before it.*no such luck"):
        ending.require_killed()


def test_a_death_elsewhere_does_not_count() -> None:
    with pytest.raises(CrashTestError, match="signal 9 ended it elsewhere"):
        end("die_elsewhere", "epoch-done")


def test_processes_that_it_started_die_with_it(tmp_path: Path) -> None:
    end("start_another", "before-commit", str(tmp_path)).require_killed()
    pid = int((tmp_path / "pid").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("point", ["no-such-point", "", "epoch-done:0", "epoch-done:x"])
def test_a_point_that_does_not_exist_is_refused(point: str) -> None:
    with pytest.raises(DefinitionError, match="is not a crash point"):
        end("reach", point)


def test_points_have_one_name_each() -> None:
    assert len(set(POINTS)) == len(POINTS)
