"""Windows that keep their elements do in every epoch what the element-by-element reference does, whatever it is that fires them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.engine.buffered_cases import random_case, require_same, run_engine, run_expected
from tests.seeds import PROFILE, new_seeds, only_long, times
from tidemark.spark.operators.keyed import input as keyed_input
from tidemark.spark.operators.keyed import key_table
from tidemark.spark.operators.process import buffered
from tidemark.state.gc.compaction import plan_compaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SEED = 2
KINDS = ("tumbling", "sliding", "cumulative", "session", "dynamic session", "count", "global")


def read_what_is_needed(patch: pytest.MonkeyPatch) -> None:
    """Let every epoch look for the keys and elements that it needs."""
    for module in (buffered, keyed_input):
        patch.setattr(module, "FEW_ROWS", -1)


def merge_early(patch: pytest.MonkeyPatch) -> None:
    """Let every epoch merge its files, and rows that are out of date go."""
    patch.setattr(key_table, "MAX_GARBAGE", 0)
    for module in (buffered, key_table):
        patch.setattr(module, "plan_compaction", partial(plan_compaction, min_files=1))


WAYS: dict[str, tuple[Sequence[Callable[[pytest.MonkeyPatch], None]], Sequence[str]]] = {
    "all read": ((), KINDS[::3]),
    "what is needed": ((read_what_is_needed,), KINDS[::2]),
    "needed and merged": ((read_what_is_needed, merge_early), KINDS[1::2]),
}
"""What is changed, and the kinds of windows that are seen with it."""


def see_agreement(spark: SparkSession, folder: Path, seeds: Iterable[int], kinds: Sequence[str] = KINDS) -> set[tuple[object, ...]]:
    """Run the cases of these seeds through the engine and the reference; return what was seen."""
    cases: set[tuple[object, ...]] = set()
    for seed in seeds:
        case = random_case(seed, kinds=kinds, rows=400, epochs=(3, 4))
        try:
            require_same(run_engine(case, spark, folder / str(seed)), run_expected(case), case)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        cases |= case.distinct
    return cases


@pytest.mark.parametrize("way", ["all read", pytest.param("what is needed", marks=only_long), "needed and merged"])
def test_windows_agree_with_the_reference(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    changes, kinds = WAYS[way]
    for change in changes:
        change(monkeypatch)
    seen = KINDS if PROFILE == "long" else kinds
    cases: set[tuple[object, ...]] = set()
    for number, seed in enumerate(new_seeds(f"buffered {way}", 10 * times(1))):
        cases |= see_agreement(spark, tmp_path, [seed], seen)
        # Most operators have keys, and each key that has elements is a case; few jobs are so small that it takes another one.
        if number + 1 >= times(1) and len(cases) >= 14 * len(seen):
            break
    assert len(cases) >= 14 * len(seen)


@only_long
def test_a_run_that_stops_and_goes_on_elsewhere_does_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_what_is_needed(monkeypatch)
    case = random_case(SEED, kinds=("tumbling", "session", "count"), keys=8, rows=80)
    found = run_engine(case, spark, tmp_path, epochs=2, end_of_input=False)
    merge_early(monkeypatch)
    found += run_engine(case, spark, tmp_path, epochs=3, end_of_input=False, first=len(found), parallelism=3)
    monkeypatch.undo()
    found += run_engine(case, spark, tmp_path, first=len(found), parallelism=1)
    require_same(found, run_expected(case), case)
