"""The engine does in every epoch what the element-by-element reference does, whatever the elements, the windows and the cuts.

A case is one operator over the elements of one key. One run of the engine holds many: keys are independent of one another, and a
job may have several operators over one stream. In continuous integration the tests below see at least 500 distinct cases, others
each time; a failure prints how it can be seen again.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.engine.drive import Seen, run_engine
from tests.engine.expected import run_expected
from tests.engine.streams import LOCAL_CHANGES, Case, Scenario, assigners, local_assigners, scenarios, sliced_assigners, triggers_with_rules
from tests.few_rows import compiling
from tests.seeds import REPEATABLE, some, times
from tidemark.semantics.windows.assigners import GlobalWindows
from tidemark.spark.prepared.prepared_pass import PreparedPass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.spark.prepared.prepared_plan import PassRows

pytestmark = [pytest.mark.spark, pytest.mark.slow]


# A difference names the epoch, the operator and the key already, and each step of shrinking would be a run of the engine.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


def require_agreement(scenario: Scenario, spark: SparkSession, folder: Path, name: str) -> None:
    """Hold the engine's account of each epoch against the reference's, fact by fact."""
    expected = run_expected(scenario)
    found = run_engine(scenario, spark, folder, name=name)
    assert len(found) == len(expected)
    for number, (engine, reference) in enumerate(zip(found, expected, strict=True)):
        for fact in (field for field in fields(Seen) if field.compare):
            assert getattr(engine, fact.name) == getattr(reference, fact.name), f"{fact.name} of epoch {number}"
        for uid, oldest in reference.oldest.items():
            reported = engine.oldest[uid]
            assert (reported is None) == (oldest is None)
            assert reported is None or oldest is None or reported <= oldest


def see_agreement(drawn: st.SearchStrategy[Scenario], spark: SparkSession, folder: Path, *, examples: int) -> set[Case]:
    """Draw scenarios and hold the engine against the reference; returns the cases that were seen.

    The first that Hypothesis draws is the simplest of all: no bound, no drift of times, windows of one unit. It is left out.
    """
    runs, cases = count(), set[Case]()

    @settings(max_examples=examples + 1, phases=_PHASES, derandomize=REPEATABLE, print_blob=True)
    @given(drawn)
    def agrees(scenario: Scenario) -> None:
        if run := next(runs):
            require_agreement(scenario, spark, folder, f"job{run}")
            cases.update(scenario.cases)

    agrees()
    return cases


def require_variety(cases: set[Case], *, least: int, settings_least: int) -> None:
    """Check that there were so many distinct cases, and so many distinct settings of bounds, window and lateness in them."""
    assert len(cases) >= least, f"{len(cases)} distinct cases"
    found = {case.setting for case in cases}
    assert len(found) >= settings_least, f"{len(found)} distinct settings of bounds, size, offset and lateness"


def test_one_source_and_several_operators(spark: SparkSession, tmp_path: Path) -> None:
    examples = times(1)
    drawn = scenarios(sources=1, operator_count=4, keys=40, rows=400)
    # Compiling takes most of a small job's time, so only here plans are compiled as a job's are.
    cases = see_agreement(drawn, compiling(spark), tmp_path, examples=examples)
    require_variety(cases, least=120 * examples, settings_least=4 * examples)


def test_one_operator_whose_plans_are_kept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreparedPass, "PREPARED_AFTER", 0)
    ran: list[bool] = []
    run = PreparedPass.run

    def noted(prepared: PreparedPass, *args: Any) -> PassRows | None:
        rows = run(prepared, *args)
        ran.append(rows is not None)
        return rows

    monkeypatch.setattr(PreparedPass, "run", noted)
    examples = times(2)
    drawn = scenarios(sources=1, operator_count=1, keys=60, rows=600)
    cases = see_agreement(drawn, spark, tmp_path, examples=examples)
    require_variety(cases, least=40 * examples, settings_least=examples)
    assert ran.count(True) >= 2 * examples


def test_two_sources_with_splits_that_fall_silent(spark: SparkSession, tmp_path: Path) -> None:
    examples = times(1)
    drawn = scenarios(sources=2, operator_count=3, keys=30, rows=160, idle=True)
    cases = see_agreement(drawn, spark, tmp_path, examples=examples)
    require_variety(cases, least=60 * examples, settings_least=3 * examples)


@pytest.mark.parametrize("stacks", [False, True])
def test_windows_of_slices(stacks: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    if stacks:
        monkeypatch.setattr("tidemark.spark.operators.aligned.sliced.MANY_ROWS", 0)
    examples = times(1)
    drawn = scenarios(sources=1, operator_count=4, keys=30, rows=200, kinds=sliced_assigners)
    cases = see_agreement(drawn, spark, tmp_path, examples=examples)
    require_variety(cases, least=90 * examples, settings_least=4 * examples)


def test_windows_with_triggers_that_have_rules(spark: SparkSession, tmp_path: Path) -> None:
    examples = times(1)
    drawn = scenarios(
        sources=1,
        operator_count=4,
        keys=30,
        rows=200,
        kinds=lambda unit: assigners(unit) | sliced_assigners(unit) | st.just(GlobalWindows()),
        triggers=triggers_with_rules,
    )
    cases = see_agreement(drawn, spark, tmp_path, examples=examples)
    require_variety(cases, least=90 * examples, settings_least=4 * examples)


@pytest.mark.parametrize("zone", some(LOCAL_CHANGES, len(LOCAL_CHANGES)))
def test_windows_of_local_days_where_clocks_change(zone: str, spark: SparkSession, tmp_path: Path) -> None:
    examples = times(1)
    drawn = scenarios(
        sources=1,
        operator_count=3,
        keys=20,
        rows=150,
        kinds=lambda _: local_assigners([zone]),
        triggers=lambda unit: st.none() | triggers_with_rules(unit),
        begins=[LOCAL_CHANGES[zone], LOCAL_CHANGES[zone] - 40 * 3_600_000],
    )
    cases = see_agreement(drawn, spark, tmp_path, examples=examples)
    require_variety(cases, least=40 * examples, settings_least=3 * examples)
