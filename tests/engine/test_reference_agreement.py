"""The engine does in every epoch what the element-by-element reference does, whatever the elements, the windows and the cuts.

A case is one operator over the elements of one key. One run of the engine holds many: keys are independent of one another, and a
job may have several operators over one stream.
"""

from __future__ import annotations

import os
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings

from tests.engine.drive import Seen, run_engine
from tests.engine.expected import run_expected
from tests.engine.streams import Scenario, scenarios

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "ci"

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


def test_one_source_and_several_operators(spark: SparkSession, tmp_path: Path) -> None:
    runs, cases = count(), 0

    @settings(max_examples=5 if THOROUGH else 2, phases=_PHASES)
    @given(scenarios(sources=1, operator_count=3, keys=40, rows=400))
    def agrees(scenario: Scenario) -> None:
        nonlocal cases
        require_agreement(scenario, spark, tmp_path, f"job{next(runs)}")
        cases += scenario.cases

    agrees()
    assert cases >= (350 if THOROUGH else 120), f"{cases} cases of an operator and a key"


def test_two_sources_with_splits_that_fall_silent(spark: SparkSession, tmp_path: Path) -> None:
    runs, cases = count(), 0

    @settings(max_examples=5 if THOROUGH else 2, phases=_PHASES)
    @given(scenarios(sources=2, operator_count=2, keys=30, rows=160, idle=True))
    def agrees(scenario: Scenario) -> None:
        nonlocal cases
        require_agreement(scenario, spark, tmp_path, f"job{next(runs)}")
        cases += scenario.cases

    agrees()
    assert cases >= (150 if THOROUGH else 50), f"{cases} cases of an operator and a key"
