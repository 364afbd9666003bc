"""The incremental windows against the element-by-element reference: every assigner with every trigger, with all else drawn.

With each function: aggregate, process, and both. What is drawn: the time that windows are of, evictor, lateness, out-of-orderness bound,
elements of two keys, epochs, the clock, the end of input, and whether an engine keeps stored elements that no window holds any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.semantics.process_runs import FUNCTIONS, compare
from tests.semantics.window_settings import ASSIGNERS, COUNTS, TRIGGERS, epochs, jobs
from tidemark.errors import DefinitionError
from tidemark.semantics.process.window_process import WindowProcess
from tidemark.semantics.triggers.element_triggers import DeltaTrigger
from tidemark.semantics.windows.assigners import Session

EXAMPLES = settings.default.max_examples // 5 if settings.default is not None else 10
"""With three functions each, 300 cases in continuous integration for each assigner with each trigger."""

PAIRS = [(assigner, trigger) for assigner in ASSIGNERS for trigger in TRIGGERS if not (assigner.endswith("session") and trigger == "delta")]


def with_function(job: Any, fold: Any, function: Any) -> Any:
    return replace(job, fold=fold, function=function)


def mergeable(job: Any) -> bool:
    return not job.assigner.merging or job.trigger is None or job.trigger.can_merge


@pytest.mark.parametrize(("assigner", "trigger"), PAIRS, ids=[", ".join(pair) for pair in PAIRS])
def test_process_does_what_the_reference_does(assigner: str, trigger: str) -> None:
    @settings(deadline=None, max_examples=EXAMPLES)
    @given(jobs(ASSIGNERS[assigner], TRIGGERS[trigger]).filter(mergeable), epochs(), st.booleans())
    def check(job: Any, cut: Any, hoards: Any) -> None:
        results = [
            result for fold, function in FUNCTIONS.values() for result in compare(with_function(job, fold, function), cut, hoards=hoards)
        ]
        timings = {pane.timing for result in results for pane in result.panes}
        event(f"panes: {', '.join(sorted(timings)) or 'none'}")

    check()


@settings(deadline=None)
@given(jobs(COUNTS, st.none()), epochs())
def test_count_windows_do_what_the_reference_does(job: Any, cut: Any) -> None:
    results = list(compare(job, cut))
    event(f"panes: {sum(len(result.panes) for result in results)}")


def test_delta_cannot_be_used_with_sessions() -> None:
    with pytest.raises(DefinitionError, match=r"delta_trigger\(.*\) cannot be used with session\('5ms'\).*Fix:"):
        WindowProcess(Session(5), trigger=DeltaTrigger(1, lambda _last, _row: 0.0))
