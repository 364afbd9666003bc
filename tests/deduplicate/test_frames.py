"""The frames of a deduplication, by themselves: which elements of a key are kept, however many there are and whatever state holds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.engine.lab import elements
from tidemark.clock import SYSTEM_CLOCK
from tidemark.graph.operators.deduplicate.node import DeduplicateNode
from tidemark.semantics.deduplicate.deduplicate import Deduplication
from tidemark.semantics.watermarks.event_time import MAX_EVENT_TIME, MIN_EVENT_TIME
from tidemark.spark.columns.expressions import POSITION, START, TIME
from tidemark.spark.operators.deduplicate.frames import DeduplicateFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = f"k STRING, at TIMESTAMP, m MAP<STRING, INT>, {TIME} BIGINT, {POSITION} STRUCT<origin: STRING, block: BIGINT, row: BIGINT>"
NEVER_LATE = MIN_EVENT_TIME - 1


def frames_of(within: str) -> DeduplicateFrames:
    node = elements(schema="k STRING, t BIGINT").key_by("k").deduplicate(within=within).uid("once").node
    assert isinstance(node, DeduplicateNode)
    return DeduplicateFrames(node)


def kept_times(frames: DeduplicateFrames, rows: DataFrame, state: DataFrame | None = None) -> list[int]:
    kept = frames.kept(frames.classified(rows, state, NEVER_LATE))
    return sorted(found[START] for found in kept.select(START).collect())


def elements_at(spark: SparkSession, times: Mapping[str, Sequence[int]]) -> DataFrame:
    rows: list[tuple[Any, ...]] = [(key, None, None, time, ("e", 0, row)) for key, given in times.items() for row, time in enumerate(given)]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize("within", [1, 3, 40])
def test_kept_are_those_of_the_rule(spark: SparkSession, within: int) -> None:
    """Each seed is a key of one frame."""
    frames, rule = frames_of(f"{within} ms"), Deduplication(within_ms=within)
    times: dict[str, list[int]] = {}
    held: dict[str, list[int]] = {}
    for seed in range(4):
        drawn = random.Random(f"{seed} {within}")
        # More than are folded together, and few.
        times[f"a{seed}"] = [drawn.randrange(-600, 600) for _ in range(drawn.choice([3, 128, 129, 700]))]
        # A shorter time than before, or a longer one, makes their ranges touch or overlap.
        held[f"a{seed}"] = drawn.sample(range(-650, 650), drawn.choice([1, 7, 150]))
    of_state = [*((key, time) for key, earlier in held.items() for time in earlier), ("b", 0)]
    state = spark.createDataFrame(of_state, f"{frames.keys[0]} STRING, {START} BIGINT")
    for before, stored in (({}, None), (held, state)):
        kept: dict[str, list[int]] = {key: [] for key in times}
        for key, given in times.items():
            for time in sorted(given):
                if rule.outcome_of(time, [*before.get(key, []), *kept[key]], NEVER_LATE) == "kept":
                    kept[key].append(time)
        classified = frames.classified(elements_at(spark, times), stored, NEVER_LATE)
        found = sorted(map(tuple, frames.state_rows(frames.kept(classified)).collect()))
        assert found == [(key, time) for key, expected in kept.items() for time in expected]
        others = Counter(row["k"] for row in frames.duplicates(classified).select("k").collect())
        assert others == Counter({key: len(given) - len(kept[key]) for key, given in times.items()})


def test_the_longest_time_and_both_ends_of_the_calendar(spark: SparkSession) -> None:
    frames = frames_of(f"{2**53} ms")
    state = spark.createDataFrame([("a", MIN_EVENT_TIME)], f"{frames.keys[0]} STRING, {START} BIGINT")
    rows = elements_at(spark, {"a": [MIN_EVENT_TIME, 0, MAX_EVENT_TIME]})
    assert kept_times(frames, rows) == [MIN_EVENT_TIME]
    assert kept_times(frames, rows, state) == []


def test_of_elements_of_equal_time_and_position_the_same_one_is_kept_at_each_reading(spark: SparkSession) -> None:
    """A transform that makes several rows of one leaves them its time and position."""
    frames, position = frames_of("1 hour"), ("e", 0, 1)
    made = [("a", f"2024-01-01 00:00:00.00000{micros}", {"n": n}, 5, position) for micros, n in ((1, 1), (2, 1), (2, 2), (3, 1))]
    found = set()
    for rows in (made, made[::-1], made[2:] + made[:2]):
        given = spark.createDataFrame([tuple(row) for row in rows], SCHEMA.replace("TIMESTAMP", "STRING"))
        given = given.coalesce(1).withColumn("at", F.col("at").cast("timestamp"))
        kept = frames.elements(frames.kept(frames.classified(given, None, NEVER_LATE))).collect()
        assert len(kept) == 1
        found.add((kept[0]["at"], tuple(kept[0]["m"].items())))
    assert len(found) == 1


def test_a_key_of_many_elements_takes_time_in_proportion(spark: SparkSession) -> None:
    frames = frames_of("1 ms")

    def seconds(count: int) -> float:
        rows = spark.range(count).select(
            F.lit("a").alias("k"),
            F.col("id").alias(TIME),
            F.struct(F.lit("e").alias("origin"), F.lit(0).cast("bigint").alias("block"), F.col("id").alias("row")).alias(POSITION),
        )
        state = rows.select(F.col("k").alias(frames.keys[0]), (F.col(TIME) - count).alias(START))
        begun = SYSTEM_CLOCK.monotonic()
        kept = frames.kept(frames.classified(rows, state, NEVER_LATE)).agg(F.count("*")).first()
        assert kept is not None
        assert kept[0] == count
        return SYSTEM_CLOCK.monotonic() - begun

    seconds(1_000)
    # Eight times the elements took fifty times as long when each was compared with all, and copied all that were kept.
    assert min(seconds(64_000) for _ in range(2)) < 8 * max(seconds(8_000) for _ in range(2))
