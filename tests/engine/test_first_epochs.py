"""The first epochs of a run interpret their expressions where they have few rows; other epochs compile them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import NOW
from tidemark.spark.columns.few_rows import FEW_ROWS
from tidemark.spark.env.session import engine_settings
from tidemark.spark.epoch.epoch_plan import Checkpoint, EpochPlan
from tidemark.spark.epoch.first_epochs import FirstEpochs
from tidemark.state.log.epoch_intent import TableVersion
from tidemark.state.log.records import OperatorState, StateFile
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SETTINGS = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
COMPILED = ("true", "FALLBACK")
INTERPRETED = ("false", "NO_CODEGEN")
NOTHING = EpochPlan(0, "lineage", 0, Checkpoint(), batches={}, ends={})


def settings(spark: SparkSession) -> tuple[str | None, ...]:
    return tuple(spark.conf.get(name) for name in SETTINGS)


@pytest.fixture(autouse=True)
def spark_s_own_settings(spark: SparkSession) -> Iterator[None]:
    """Those of Spark, which the session of these tests does not have."""
    before = {name: str(spark.conf.get(name)) for name in SETTINGS}
    for name, value in zip(SETTINGS, COMPILED, strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> list[tuple[str | None, ...]]:
    """The settings that each epoch is run with."""
    found: list[tuple[str | None, ...]] = []
    passes = FirstEpochs.passes

    @contextmanager
    def noted(epochs: FirstEpochs, session: SparkSession, plan: EpochPlan) -> Iterator[None]:
        with passes(epochs, session, plan):
            found.append(settings(spark))
            yield

    monkeypatch.setattr(FirstEpochs, "passes", noted)
    return found


def run(spark: SparkSession, folder: Path, *, epochs: int = 4) -> list[tuple[object, ...]]:
    """Run a job of so many epochs to the end of its input, and return its results."""
    batches = [[(key, 1_000 * (10 * epoch + key)) for key in range(3)] for epoch in range(epochs)]
    rows = tm.source("rows", tm.from_elements(epochs=batches, schema="k BIGINT, at BIGINT"), watermarks=tm.ascending(timestamp="at"))
    sums = (
        rows.with_columns(half="k / 2").key_by("k").window(tm.tumbling("20 seconds")).aggregate(n=tm.count(), s=tm.sum("half")).uid("sums")
    )
    job = tm.Job("first", {"sums": tm.parquet(sums, str(folder / "sums"))}, store=str(folder / "store"))
    tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True)
    return sorted(tuple(row) for row in spark.read.parquet(str(folder / "sums")).select("k", "n", "s").collect())


def results(epochs: int) -> list[tuple[object, ...]]:
    """Return what has to come of so many epochs: a window is of two."""
    return sorted((key, 2, float(key)) for key in range(3) for _ in range(epochs // 2))


def test_epochs_before_any_plan_is_kept_are_interpreted(spark: SparkSession, tmp_path: Path, seen: list[tuple[str | None, ...]]) -> None:
    assert run(spark, tmp_path) == results(4)
    assert seen == [INTERPRETED] * 2 + [COMPILED] * (len(seen) - 2)
    assert len(seen) >= 4
    assert settings(spark) == COMPILED


def test_epochs_of_many_rows_are_compiled(
    spark: SparkSession, tmp_path: Path, seen: list[tuple[str | None, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.spark.columns.few_rows.FEW_ROWS", 2)
    assert run(spark, tmp_path, epochs=2) == results(2)
    assert set(seen) == {COMPILED}


def test_settings_of_the_user_stay(spark: SparkSession, tmp_path: Path, seen: list[tuple[str | None, ...]]) -> None:
    spark.conf.set(SETTINGS[0], "false")
    assert run(spark, tmp_path, epochs=2) == results(2)
    assert set(seen) == {("false", "FALLBACK")}
    assert settings(spark) == ("false", "FALLBACK")


def test_an_epoch_with_much_state_or_another_table_is_compiled(spark: SparkSession) -> None:
    stored = StateFile("state", FEW_ROWS + 1, 1, None, None, 0)
    much = Checkpoint(operators={"sums": OperatorState({}, (stored,))})
    for plan in (
        EpochPlan(0, "lineage", 0, much, batches={}, ends={}),
        EpochPlan(0, "lineage", 0, Checkpoint(), batches={}, ends={}, tables={"joined": TableVersion("1")}),
    ):
        with FirstEpochs().passes(spark, plan):
            assert settings(spark) == COMPILED


def test_an_epoch_beside_another_job_of_the_session_is_compiled(spark: SparkSession) -> None:
    """The other may keep a plan meanwhile, which would be interpreted for good."""
    with engine_settings(spark):
        with FirstEpochs().passes(spark, NOTHING):
            assert settings(spark) == INTERPRETED
        with engine_settings(spark), FirstEpochs().passes(spark, NOTHING):
            assert settings(spark) == COMPILED


def test_the_last_of_the_jobs_that_share_a_session_ends_it(spark: SparkSession) -> None:
    one, other = FirstEpochs().passes(spark, NOTHING), FirstEpochs().passes(spark, NOTHING)
    with other:
        with one:
            assert settings(spark) == INTERPRETED
        assert settings(spark) == INTERPRETED
    assert settings(spark) == COMPILED
    with pytest.raises(ValueError, match="wrong"), FirstEpochs().passes(spark, NOTHING):
        raise ValueError("wrong")
    assert settings(spark) == COMPILED
