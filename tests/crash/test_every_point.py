"""Killed at any named point, also again and again, a job leaves what an undisturbed one leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.crash import fares
from tests.crash.child import call
from tests.crash.outcomes import Outcome, check_complete, check_swept, check_visible, head_of, outcome_of
from tests.killed import kill_at
from tests.seeds import PROFILE, only_long
from tidemark.crashpoints import RUN_POINTS, reached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]

RECOVERY_POINTS = ("term-taken", "checkpoint-seeded", "output-published", "sweep-marked", "output-sweep-done", "after-commit", "epoch-done")
"""Reached by every restart that has input left."""

ONCE_PER_EPOCH = ("before-commit", "after-commit", "outputs-published", "history-written", "epoch-done")


@dataclass(frozen=True)
class Undisturbed:
    """The run that the others are compared with: before the end of input, after it, and how often each point was reached."""

    lines: int
    before_end: Outcome
    after_end: Outcome
    reached: Mapping[str, int]


@pytest.fixture(scope="module")
def undisturbed(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    lines = fares.write_landing(folder)
    job, clock = fares.make_job(folder), fares.clock_of(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMARK_CRASH_AT", "-")
        before = reached()
        fares.run(job, session, clock, max_epochs=2)
        fares.run(job, session, clock)
        before_end = outcome_of(folder)
        fares.run(job, session, clock, end_of_input=True)
        counts = {point: count - before.get(point, 0) for point, count in reached().items()}
    found = Undisturbed(lines, before_end, outcome_of(folder), counts)
    check_complete(folder, lines)
    return found


def kill(folder: Path, point: str, jvm: Mapping[str, str], attempt: int = 0) -> None:
    """Drive the job in a process of its own until it dies, and look at what readers see then."""
    kill_at("tests.crash.fares:drive", point, [str(folder), str(attempt)], environment=jvm)
    check_visible(folder)


def recover(folder: Path, session: SparkSession, undisturbed: Undisturbed, attempt: int = 1) -> None:
    """Run the job to its end and compare everything with the undisturbed run."""
    job, clock = fares.make_job(folder), fares.clock_of(attempt)
    fares.run(job, session, clock)
    check_visible(folder)
    head = head_of(folder)
    assert head is not None
    if not head.end_of_input:
        assert outcome_of(folder) == undisturbed.before_end
        fares.run(job, session, clock, end_of_input=True)
    assert outcome_of(folder) == undisturbed.after_end
    check_complete(folder, undisturbed.lines)


def sweep_up(folder: Path, session: SparkSession, attempt: int) -> None:
    """Start the job twice more with nothing to do: what nobody needs is marked, and is gone more than a lease later."""
    for later in range(2):
        assert fares.run(fares.make_job(folder), session, fares.clock_of(attempt + later)).epochs == ()
    check_swept(folder)


def landing(folder: Path) -> Path:
    fares.write_landing(folder)
    return folder


def test_the_job_reaches_every_point(undisturbed: Undisturbed) -> None:
    assert [point for point in RUN_POINTS if not undisturbed.reached.get(point)] == []
    assert all(undisturbed.after_end.tables.values()), "an output without rows proves nothing"
    assert all(undisturbed.before_end.state.values())
    epochs = undisturbed.after_end.epoch + 1
    assert {point: undisturbed.reached[point] for point in ONCE_PER_EPOCH} == dict.fromkeys(ONCE_PER_EPOCH, epochs)
    assert undisturbed.reached["output-file-moved"] > 2 * epochs, "only between two moves is a Parquet folder half published"
    timings = {dict(zip(("timing", "index"), row[-2:], strict=True))["timing"] for row in undisturbed.after_end.tables["hourly"]}
    assert timings == {"ON_TIME", "LATE"}


# Those that any successor reaches come last, and first the one that is reached once: tables are created at the first start.
_ONCE = "table-created"
_ORDER = (_ONCE, *(point for point in (*RUN_POINTS[2:], *RUN_POINTS[:2]) if point != _ONCE))
# There are five epochs, and those of retention need several each.
_FIRST = [_ORDER.index(point) for point in (_ONCE, "segment-written", "retention-begun", "retention-done", "output-sweep-done")]
AFTER_THE_JVM = _ORDER[_FIRST[2] : _FIRST[3]]
"""Where the successors of a driver whose JVM was killed are killed."""

TURNS: list[tuple[str, ...]] = (
    [(point, point) for point in RUN_POINTS]
    if PROFILE == "long"
    else [turn for first, end in pairwise([*_FIRST, len(_ORDER)]) if (turn := _ORDER[first:end]) != AFTER_THE_JVM]
)
"""Where a job is killed at first, and where each of its successors is: every point is one of them, or of those after the JVM."""


@pytest.mark.parametrize("points", TURNS, ids=" then ".join)
def test_killed_at_a_point_and_its_successors_at_others(
    points: tuple[str, ...], undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    landing(tmp_path)
    kill_one_after_the_other(tmp_path, points, undisturbed, jvm)
    recover(tmp_path, session, undisturbed, len(points))
    sweep_up(tmp_path, session, len(points) + 1)


def kill_one_after_the_other(
    folder: Path, points: tuple[str, ...], undisturbed: Undisturbed, jvm: Mapping[str, str], first: int = 0
) -> None:
    """Kill a driver at each of these points, each the successor of the one before it; ``first`` is the attempt of the first."""
    times = [undisturbed.reached.get(point, 0) for point in points]
    assert min(times) >= 2, f"{points} are reached {times} times; give the job settings that reach them"
    for turn, (point, reached_times) in enumerate(zip(points, times, strict=True)):
        # What is left for a successor reaches a point less often.
        at = max(1, (reached_times - 1) // 3) if turn == len(points) - 1 else 1
        kill(folder, f"{point}:{at}", jvm, first + turn)


@only_long
@pytest.mark.parametrize("seed", range(2))
def test_killed_again_while_it_recovers(
    seed: int, undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    dice = Random(seed)
    first = dice.choice([point for point in RUN_POINTS if undisturbed.reached[point] >= 3])
    kill(landing(tmp_path), f"{first}:1", jvm)
    kill(tmp_path, dice.choice(RECOVERY_POINTS), jvm, 1)
    recover(tmp_path, session, undisturbed, 2)
    sweep_up(tmp_path, session, 3)


@only_long
def test_killed_five_times_in_a_row(undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path) -> None:
    points: Sequence[str] = ("state-staged", "before-commit", "after-commit", "output-published:2", "before-commit:2")
    landing(tmp_path)
    for attempt, point in enumerate(points):
        kill(tmp_path, point, jvm, attempt)
    recover(tmp_path, session, undisturbed, len(points))
    sweep_up(tmp_path, session, len(points) + 1)


def test_a_jvm_that_is_killed_under_a_living_driver_and_its_successors_at_points(
    undisturbed: Undisturbed, jvm: Mapping[str, str], session: SparkSession, tmp_path: Path
) -> None:
    """The long profile kills drivers together with their JVMs, too; ``tests/dagster/test_stream_driver.py`` kills one that has its own."""
    printed = call("tests.crash.fares", "drive_until_the_jvm_dies", str(landing(tmp_path)))
    assert printed == "TM502, again may help: True\n"
    check_visible(tmp_path)
    kill_one_after_the_other(tmp_path, AFTER_THE_JVM, undisturbed, jvm, 1)
    recover(tmp_path, session, undisturbed, 1 + len(AFTER_THE_JVM))
    sweep_up(tmp_path, session, 2 + len(AFTER_THE_JVM))


@only_long
@pytest.mark.parametrize("point", ["after-commit:2", "state-staged:2"])
def test_killed_together_with_its_jvm(point: str, undisturbed: Undisturbed, session: SparkSession, tmp_path: Path) -> None:
    kill(landing(tmp_path), point, {})
    recover(tmp_path, session, undisturbed)
    sweep_up(tmp_path, session, 2)
