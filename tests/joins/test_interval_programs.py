"""Interval joins by the engine against the element-by-element reference: random programs, all kinds of joins, any cut, any parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.joins.programs import Program, expected, random_program, run_program
from tests.seeds import PROFILE, only_long, some
from tidemark.semantics.joins.interval import HOWS, IntervalJoin
from tidemark.spark.operators.interval_join.frames import IntervalJoinFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 5 if PROFILE == "long" else 3
ROWS = 60 if PROFILE == "long" else 90
"""As many elements in fewer epochs."""

INTERVALS = [(-20, 35), (0, 0), (-40, -15), (5, 30), (-1, 0), (-60, 60)]


def rules_of(random: Random) -> list[IntervalJoin]:
    """Return a join of each kind, each with its own interval."""
    chosen = random.sample(INTERVALS, len(HOWS))
    return [IntervalJoin(lower, upper, how) for how, (lower, upper) in zip(HOWS, chosen, strict=True)]


@pytest.mark.parametrize(("seed", "parallelism"), [pytest.param(1, 2, marks=only_long), pytest.param(2, 1, marks=only_long), (3, 7)])
def test_random_programs(spark: SparkSession, tmp_path: Path, seed: int, parallelism: int | None) -> None:
    random = Random(seed)
    program = random_program(random, epochs=EPOCHS, rows=ROWS)
    rules = some(rules_of(random), 2, first=1)
    found = run_program(spark, tmp_path, program, rules, parallelism=parallelism)
    assert found == [expected(program, rule) for rule in rules]
    results = sum((each for outcome in found for each in outcome.results), Counter())
    assert results.total() > 200, "the program shows little"


def test_any_cut_and_many_rows(spark: SparkSession, tmp_path: Path) -> None:
    """As above, with other epochs, and the plans of many rows: joined by intervals of time, and merged files."""
    random = Random(6)
    program, rules = random_program(random, epochs=EPOCHS, rows=ROWS).recut(random), some(rules_of(random), 2)
    with (
        mock.patch("tidemark.spark.operators.base.tables.FEW_ROWS", -1),
        mock.patch("tidemark.spark.operators.interval_join.frames.MANY_BUCKETS", 2),
        mock.patch("tidemark.spark.operators.interval_join.state.plan_compaction", _merge_all),
    ):
        found = run_program(spark, tmp_path, program, rules, parallelism=2)
    assert found == [expected(program, rule) for rule in rules]


def test_many_rows_are_joined_once(spark: SparkSession, tmp_path: Path) -> None:
    """Pairs and elements without a partner by one join of both sides, where epochs have about as many elements as state."""
    random, joined = Random(7), Counter[str]()
    program, rules = random_program(random), [IntervalJoin(-20, 35, how) for how in ("inner", "right", "full")]
    rules.append(IntervalJoin(-40, -15, "left"))
    if PROFILE == "long":
        rules += [IntervalJoin(-20, 35, "left"), IntervalJoin(5, 30, "full")]
    of_epoch = IntervalJoinFrames.of_epoch

    def noted(frame: DataFrame, numbers: Sequence[int]) -> DataFrame:
        joined[f"epoch {numbers[0]}"] += 1
        return of_epoch(frame, numbers)

    with (
        mock.patch("tidemark.spark.operators.base.tables.FEW_ROWS", -1),
        mock.patch.object(IntervalJoinFrames, "of_epoch", staticmethod(noted)),
    ):
        found = run_program(spark, tmp_path, program, rules, parallelism=2)
    assert found == [expected(program, rule) for rule in rules]
    assert max(joined.values()) == len(rules)
    assert joined.total() >= 3 * len(rules), "half of the epochs have as many new elements as there are in state"


def _merge_all(files: object, **_: object) -> object:
    from tidemark.state.gc.compaction import plan_compaction

    return plan_compaction(files, min_files=1)  # type: ignore[arg-type]


def test_each_accepted_element_is_in_a_result_or_in_its_outer_row_once() -> None:
    """Of the reference itself: conservation, whatever the cut."""
    for seed in range(40):
        random = Random(seed)
        program = random_program(random, rows=30, keys=6).recut(random)
        for lower, upper in INTERVALS:
            outcome = expected(program, IntervalJoin(lower, upper, "full"))
            pairs, alone = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
            for (left, right, _), times in sum(outcome.results, Counter()).items():
                for side, value in enumerate((left, right)):
                    if value is not None:
                        (alone if None in (left, right) else pairs)[side, value] += times
            assert set(alone.values()) <= {1}
            assert not set(alone) & set(pairs)
            assert len({*alone, *pairs}) == sum(outcome.accepted)


def test_on_time_elements_give_what_a_batch_join_gives() -> None:
    for seed in range(40):
        random = Random(seed)
        program = _without_late(random_program(random, rows=30, keys=6, disorder=0))
        every = [[element for epoch in side for element in epoch] for side in (program.left, program.right)]
        for lower, upper in INTERVALS:
            pairs = Counter(
                (left[2], right[2], max(left[0], right[0]))
                for left in every[0]
                for right in every[1]
                if left[1] is not None and left[1] == right[1] and lower <= right[0] - left[0] <= upper
            )
            outcome = expected(program, IntervalJoin(lower, upper))
            assert sum(outcome.results, Counter()) == pairs


def _without_late(program: Program) -> Program:
    """Return a program whose elements are all on time: sorted, so that none is behind."""
    sides = [sorted(element for epoch in side for element in epoch if element[1] is not None) for side in (program.left, program.right)]
    return Program(*(tuple(tuple(side[at : at + 7]) for at in range(0, len(side), 7)) for side in sides))
