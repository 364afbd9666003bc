from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import make_job
from tidemark.assets import streaming_assets
from tidemark.errors import SinkError, StoreError
from tidemark.resources.run_events import StreamingEvent

pytestmark = pytest.mark.dagster

FOR_GOOD = SinkError("the table has other columns", fix="rename it")
MAY_PASS = StoreError("the store does not answer", fix="wait")


def tried(job: tm.Job, error: Exception, policy: dg.RetryPolicy, *, yields: bool) -> int:
    """Return how often a run was tried that fails, in a body that yields or in one that returns."""
    tries: list[Exception] = []

    def yielding() -> Iterator[StreamingEvent]:
        tries.append(error)
        if tries:
            raise error
        yield dg.MaterializeResult()

    def returning() -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster knows it by itself only
        tries.append(error)
        raise error

    assets = streaming_assets(job=job, name="cabs", retry_policy=policy)(yielding if yields else returning)
    assert not dg.materialize([assets], raise_on_error=False).success
    return len(tries)


@pytest.mark.parametrize("yields", [True, False])
def test_only_errors_that_may_pass_are_retried(tmp_path: Path, *, yields: bool) -> None:
    job, twice = make_job(tmp_path), dg.RetryPolicy(max_retries=2)
    assert tried(job, FOR_GOOD, twice, yields=yields) == 1
    assert tried(job, MAY_PASS, twice, yields=yields) == 3
    assert tried(job, ValueError("a mistake"), twice, yields=yields) == 3


def test_without_a_policy_an_error_is_what_it_is(tmp_path: Path) -> None:
    @streaming_assets(job=make_job(tmp_path))
    def cabs() -> Iterator[StreamingEvent]:
        if not tmp_path.is_dir():
            yield dg.MaterializeResult()
        raise FOR_GOOD

    with pytest.raises(SinkError, match="the table has other columns"):
        dg.materialize([cabs])
