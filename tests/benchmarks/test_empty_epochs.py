"""The measurement of epochs without input: their number, and the windows that are due in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from benchmarks.__main__ import EMPTY_EPOCHS, chosen
from benchmarks.harness.records import Record
from benchmarks.harness.workloads import standard_workloads
from benchmarks.operation import empty_epochs
from benchmarks.operation.empty_epochs import EmptyEpochs, measure_empty_epochs
from benchmarks.operation.latency import latency_workloads
from tests.seeds import only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_they_are_measured_only_when_asked_for() -> None:
    drained, live = standard_workloads(20_000), latency_workloads(5)
    assert chosen(drained, live, ["empty-epochs"]) == ((), EMPTY_EPOCHS)
    assert [workload.name for workload in EMPTY_EPOCHS] == ["empty-epochs", "empty-epochs-due"]


def in_this_process(module: str, request: Mapping[str, object], folder: Path, *, engine: str) -> tuple[dict[str, Any], int]:
    """Measure as the module does in a process of its own; how one is run is in ``test_harness.py``."""
    assert (module, engine) == (empty_epochs.__name__, "tidemark")
    asked, answer = folder / "request.json", folder / "answer.json"
    asked.write_text(json.dumps(request), encoding="utf-8")
    assert empty_epochs.main([str(asked), str(answer)]) == 0
    return json.loads(answer.read_text(encoding="utf-8")), 1


@pytest.mark.spark
@pytest.mark.parametrize("due", [True, pytest.param(False, marks=only_long)])
def test_each_has_an_idle_split_and_the_results_that_are_due(spark: SparkSession, tmp_path: Path, *, due: bool) -> None:
    session = spark.newSession()
    with (
        mock.patch.object(empty_epochs, "run_module", in_this_process),
        mock.patch.object(empty_epochs, "start_session", return_value=session),
        mock.patch.object(session, "stop") as ended,
    ):
        record = measure_empty_epochs(EmptyEpochs(due=due, splits=4), tmp_path, rounds=1, memory="1g")
    ended.assert_called_once_with()
    check(record, tmp_path, due=due)


@only_long
@pytest.mark.spark
def test_they_are_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    check(measure_empty_epochs(EmptyEpochs(due=True, splits=4), tmp_path, rounds=1, memory="1g"), tmp_path, due=True)


def check(record: Record, tmp_path: Path, *, due: bool) -> None:
    assert record.cells_checked == (300 if due else 0)
    assert record.epoch_ms is not None
    assert record.epoch_ms.median > 0
    assert list(tmp_path.iterdir()) == []
