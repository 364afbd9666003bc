"""The demo from its first wave to its report, with few trips: what it prints is what the generator counts.

It is a process with the JVM of the tests; that the JVM of such a run prints nothing is in ``tests/dagster/test_web_ui.py``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from examples.taxi.demo import WAVES_PER_EVENTS, events_plan, show
from examples.taxi.dispatch_events import count_dispatch
from examples.taxi.generator import LatenessRule, TripPlan, WaveCounts, count_late, count_wave
from examples.taxi.job import ALLOWED_LATENESS_MINUTES, BOUND_MINUTES, FILES_PER_EPOCH
from tests.crash.child import call
from tests.crash.warm_jvm import attach
from tidemark.spark.env.session import activate

pytestmark = [pytest.mark.spark, pytest.mark.dagster, pytest.mark.slow]

PLAN = TripPlan(trips_per_day=4_000)
WAVES = 2


def show_few() -> None:
    """Show the demo with few trips; what the child process does, in the folders that its environment names."""
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())  # a terminal shows both
    activate(attach({}))
    print("all is accounted for:", show(Console(width=140), PLAN, waves=WAVES))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, jvm: Mapping[str, str]) -> str:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "dagster").mkdir()
    environment = {"TIDEMARK_EXAMPLE_HOME": str(folder / "taxi"), "DAGSTER_HOME": str(folder / "dagster"), **jvm}
    return call("tests.examples.test_demo_run", "show_few", environment=environment)


def numbers(line: str) -> list[int]:
    """Return the numbers of a line that stand for themselves."""
    return [int(found.replace(",", "")) for found in re.findall(r"(?<![\w.:-])\d[\d,]*(?![\w.:-])", line)]


def line_with(said: str, text: str) -> str:
    """Return the only line that begins with a text."""
    (line,) = (line for line in said.splitlines() if line.strip().startswith(text))
    return line


def late_of(waves: int) -> int:
    return sum(count_late(waves, LatenessRule(FILES_PER_EPOCH, BOUND_MINUTES * 60, ALLOWED_LATENESS_MINUTES * 60), plan=PLAN))


@pytest.mark.parametrize("wave", range(WAVES))
def test_each_wave_has_a_line_with_the_generators_counts(said: str, wave: int) -> None:
    counts = count_wave(wave, plan=PLAN)
    line = line_with(said, f"wave {wave + 1}:").partition(":")[2]
    assert numbers(line.split("|")[0]) == [counts.total, counts.delayed, counts.rejected, counts.malformed]
    assert numbers(line.split("|")[1]) == [late_of(wave + 1)]
    passed, of = numbers(line.split("|")[2])
    assert passed == of > 8


def test_the_books_balance_and_agree_with_the_generator(said: str) -> None:
    total = sum((count_wave(wave, plan=PLAN) for wave in range(WAVES)), WaveCounts())
    paid = total.ordinary + total.delayed
    late = late_of(WAVES)
    assert min(total.delayed, total.rejected, total.malformed, late) > 0
    assert numbers(line_with(said, "source trips")) == [total.total, total.total - total.malformed, total.malformed]
    assert numbers(line_with(said, "filter paid-trips")) == [total.total - total.malformed, paid, total.rejected]
    assert numbers(line_with(said, "window hourly-tips")) == [paid, paid - late, late]
    wanted = {"records read": total.total, "rejected_trips": total.rejected, "malformed_trips": total.malformed, "late_trips": late}
    for name, count in wanted.items():
        (line,) = (line for line in said.splitlines() if line.strip().startswith(name) and "generated" in line)
        assert numbers(line) == [count, count]
    assert said.count("holds") == 3 + len(wanted) + 5
    assert "DOES NOT HOLD" not in said
    assert said.splitlines()[-1] == "all is accounted for: True"


def test_process_functions_make_what_the_generator_says(said: str) -> None:
    expected = dataclasses.asdict(count_dispatch(WAVES // WAVES_PER_EVENTS, plan=events_plan(PLAN)))
    assert min(expected.values()) > 0
    for name, count in expected.items():
        assert numbers(line_with(said, f"{name} ")) == [count, count]
    by_window, by_timer = numbers(line_with(said, "driver_tips "))
    assert by_window == by_timer > 100


EPOCH = r"epoch \d+, [\d,]+ rows/s, watermark \d{4}-\d\d-\d\d \d\d:\d\d"
OURS = (
    r"",
    r"Tidemark: \d waves of taxi trips, \d+ hours each, into /\S+",
    (
        r"wave \d: +[\d,]+ trips, of them +\d+ delayed, +\d+ refunds, +\d+ malformed "
        rf"\| late so far +\d+ \| checks \d+ of \d+ \| {EPOCH}"
    ),
    # Tables: their titles, heads and rows.
    r" *hourly_tips: [\d,]+ rows \(\w+ [\d,]+(, \w+ [\d,]+)*\); those with the most tips *",
    r" *late_trips: [\d,]+ rows, such as *",
    r" *malformed_trips: [\d,]+ rows *",
    r" *Asset checks *",
    r"[┏┡└][━┳┓╇┩─┴┘]+",
    r"┃( [a-z_ ]+ ┃)+",
    r"│ +\d+ │ \d{4}-\d\d-\d\d \d\d:00:00 │ +\d+ │ +[\d.]+ │ +[\d.]+ │ +[\d.]+ │ (ON_TIME|LATE) +│ +\d+ │",
    r"│ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d │ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d │( [\d.]+ +│)+",
    r"│ (event time 'pickup_datetime' is|record cannot be parsed) +│ +\d+ │ \{.* │",
    r"│ (more than max_future_skew ahead of|processing time|null) +│ +│ +│",
    r"│ (taxi|dispatch)/\w+ +│ \w+ +│ passed │",
    r"Watermark \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z after epoch \d+",
    # The books.
    r"Conservation, from what was committed:",
    (
        r"  (source trips|filter paid-trips|window hourly-tips) +(read|in) [\d,]+ = (passed|accepted) [\d,]+ "
        r"\+ (malformed|rejected|late) \d+ holds"
    ),
    r"Generated and found:",
    r"  (records read|rejected_trips|malformed_trips|late_trips) +[\d,]+ generated, +[\d,]+ found holds",
    # The other job.
    r"Process functions over the events of airport rides, generated and found:",
    r"  (rides_with_fares|unmatched|long_rides|high_fares) +[\d,]+ generated, +[\d,]+ found holds",
    r"  driver_tips +[\d,]+ by windows, +[\d,]+ by timers holds",
    r"  keys kept and timers set: [a-z-]+ [\d,]+ and [\d,]+(, [a-z-]+ [\d,]+ and [\d,]+){3}",
    r"The same in Dagster: make ui, then http://127\.0\.0\.1:3000/asset-groups",
    (
        r"It took [\dms ]+: loading Dagster [\dms ]+, the first wave, with Spark's start, [\dms ]+, the other waves [\dms ]+, "
        r"the report [\dms ]+"
    ),
    r"all is accounted for: True",
)
"""The shapes of all lines that the demo prints on a terminal, on standard output and standard error."""


def test_every_line_is_the_demos_own(said: str) -> None:
    own = re.compile("|".join(f"(?:{shape})" for shape in OURS))
    assert [line for line in said.splitlines() if not own.fullmatch(line)] == []


def test_the_tables_the_checks_and_the_next_step_are_shown(said: str) -> None:
    for title in ("hourly_tips:", "late_trips:", "malformed_trips:", "Asset checks", "make ui"):
        assert title in said, title
    assert re.search(r"^Watermark 2024-03-0[45]T\d\d:\d\d:\d\d", said, re.MULTILINE)
    assert Path(line_with(said, "Tidemark:").rpartition(" ")[2]).name == "taxi"
