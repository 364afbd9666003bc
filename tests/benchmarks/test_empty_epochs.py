"""The measurement of epochs without input: their number, and the windows that are due in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import EMPTY_EPOCHS, chosen
from benchmarks.harness.workloads import standard_workloads
from benchmarks.operation.empty_epochs import EmptyEpochs, measure_empty_epochs
from benchmarks.operation.latency import latency_workloads
from tests.seeds import only_long


def test_they_are_measured_only_when_asked_for() -> None:
    drained, live = standard_workloads(20_000), latency_workloads(5)
    assert chosen(drained, live, ["empty-epochs"]) == ((), EMPTY_EPOCHS)
    assert [workload.name for workload in EMPTY_EPOCHS] == ["empty-epochs", "empty-epochs-due"]


@pytest.mark.spark
@pytest.mark.parametrize("due", [True, pytest.param(False, marks=only_long)])
def test_each_has_an_idle_split_and_the_results_that_are_due(tmp_path: Path, *, due: bool) -> None:
    record = measure_empty_epochs(EmptyEpochs(due=due, splits=4), tmp_path, rounds=1, memory="1g")
    assert record.cells_checked == (300 if due else 0)
    assert record.epoch_ms is not None
    assert record.epoch_ms.median > 0
    assert list(tmp_path.iterdir()) == []
