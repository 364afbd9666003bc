"""The tasks of windows that keep elements do what the element-by-element reference does, however batches are cut; without Spark."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.engine.task_runs import RETURNED, compare, report_call
from tests.semantics.process_runs import TAKEN
from tests.semantics.window_settings import ASSIGNERS, COUNTS, TRIGGERS, epochs, jobs

EXAMPLES = max(1, settings.default.max_examples // 125) if settings.default is not None else 1
"""With three functions each, 12 cases in continuous integration for each assigner with each trigger."""

PAIRS = [(assigner, trigger) for assigner in ASSIGNERS for trigger in TRIGGERS if not (assigner.endswith("session") and trigger == "delta")]
FUNCTIONS = {"aggregate": (TAKEN, None), "process": (None, report_call), "aggregate, then process": (TAKEN, report_call)}


@pytest.fixture(autouse=True)
def columns_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.operators.process.layout.struct_of", lambda _returns: RETURNED)
    monkeypatch.setattr("tidemark.spark.operators.keyed.rows.FEW_CALLS", 2)


def mergeable(job: Any) -> bool:
    return not job.assigner.merging or job.trigger is None or job.trigger.can_merge


def see_agreement(job: Any, cut: Any, random: Random) -> None:
    """Hold the tasks against the reference, with each function."""
    for fold, function in FUNCTIONS.values():
        same = replace(job, fold=fold, function=function, evictor=job.evictor if fold is None else None)
        hoards, narrow, batches = (random.random() < 0.5 for _ in range(3))
        results = list(compare(same, cut, random=random, hoards=hoards, narrow=narrow, batches=batches))
        event(f"panes: {', '.join(sorted({pane.timing for result in results for pane in result.panes})) or 'none'}")


@pytest.mark.parametrize(("assigner", "trigger"), PAIRS, ids=[", ".join(pair) for pair in PAIRS])
def test_tasks_do_what_the_reference_does(assigner: str, trigger: str) -> None:
    @settings(deadline=None, max_examples=EXAMPLES)
    @given(jobs(ASSIGNERS[assigner], TRIGGERS[trigger]).filter(mergeable), epochs(), st.integers(0, 2**32 - 1))
    def check(job: Any, cut: Any, seed: int) -> None:
        see_agreement(job, cut, Random(seed))

    check()


@settings(deadline=None, max_examples=5 * EXAMPLES)
@given(jobs(COUNTS, st.none()), epochs(), st.integers(0, 2**32 - 1))
def test_tasks_of_count_windows_do_what_the_reference_does(job: Any, cut: Any, seed: int) -> None:
    see_agreement(job, cut, Random(seed))
