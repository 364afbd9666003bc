"""Over a real broker the engine does what the reference does, epoch by epoch, with each partition's watermark its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.broker import NEEDS_JARS
from tests.kafka.fares import MINUTE, FareJob, Fares, require_agreement
from tests.seeds import only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]


def test_partitions_are_splits_at_any_parallelism(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    fares.send(0, *range(0, 20 * MINUTE, 15_000))
    fares.send(1, *range(0, 9 * MINUTE, 20_000), zone=8)
    # Hours ahead of the others, which hold the watermark back all the same.
    fares.send(2, *range(300 * MINUTE, 310 * MINUTE, 30_000))
    job.run(spark, parallelism=lambda: 1)
    splits = job.seen[-1].sources["fares"].splits
    assert set(splits) == {f"{fares.topic}-{partition}" for partition in range(3)}
    assert job.seen[-1].sources["fares"].held_by == f"{fares.topic}-1"
    assert job.panes() == []
    fares.send(1, 25 * MINUTE, 40 * MINUTE)
    fares.send(0, 41 * MINUTE)
    job.run(spark, parallelism=lambda: 5)
    fares.send(0, 11 * MINUTE, 39 * MINUTE)
    fares.send(1, 0)
    fares.send_raw(2, "{", "", '{"at": "soon"}', '{"zone": 7}', "[]", None)
    job.run(spark, parallelism=lambda: 2)
    fares.send(0, 52 * MINUTE)
    job.run(spark, end_of_input=True)
    assert len(job.panes()) > 6
    assert len(job.late()) == 2
    assert len(job.rows("malformed")) == 6
    require_agreement(job, fares.sent, ended=True)


@only_long
def test_another_parallelism_changes_nothing(fares: Fares, job: FareJob, spark: SparkSession) -> None:
    for number, parallelism in enumerate((1, 5, 2)):
        for partition in range(3):
            fares.send(partition, *range(number * 15 * MINUTE, (number * 15 + 20) * MINUTE, 45_000), zone=partition % 2)
        fares.send(0, 0)
        job.run(spark, parallelism=lambda wanted=parallelism: wanted, end_of_input=number == 2)
    assert len(job.panes()) >= 10
    assert len(job.late()) == 2
    require_agreement(job, fares.sent, ended=True)
