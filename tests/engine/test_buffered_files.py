"""Windows that keep their elements, over many small epochs: files stay few, and elements that no window holds go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, elements, require_conservation
from tests.seeds import only_long
from tidemark.spark.operators.keyed import key_table
from tidemark.spark.operators.process import buffered
from tidemark.state.gc.compaction import plan_compaction
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EPOCHS, ROWS, KEYS, GROUP = 12, 6, 7, 5
MERGED = 3
"""So many files make a merge; twice as many in the smallest size."""


def listed(rows: Sequence[Mapping[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, object]]:
    context.key_state["panes"] = context.index + 1
    yield {"values": [row["v"] for row in rows]}


@only_long
def test_files_stay_few_over_many_epochs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (buffered, key_table):
        monkeypatch.setattr(module, "plan_compaction", partial(plan_compaction, min_files=MERGED))
    epochs = [[(f"k{(number + place) % KEYS}", number * 4 + place, place) for place in range(ROWS)] for number in range(EPOCHS)]
    stream = elements(*epochs, schema="k STRING, t BIGINT, v INT").key_by("k")
    whole = stream.window(tm.tumbling("10000 ms")).process(listed, returns="values ARRAY<INT>").uid("whole")
    fives = stream.window(tm.count_window(GROUP)).process(listed, returns="values ARRAY<INT>").uid("fives")
    outputs = {"whole": tm.memory(whole, f"{tmp_path}/whole"), "fives": tm.memory(fives, f"{tmp_path}/fives")}
    job = tm.Job("job", outputs=outputs, store=str(tmp_path / "store"), parallelism=1)
    ran = tm.run(job, spark=spark, clock=ManualClock(NOW), end_of_input=True, handle_signals=False)
    for epoch in ran.epochs:
        require_conservation(epoch)
        # Two tables, each with fewer files than make a merge.
        assert max(epoch.operators[uid].state_files for uid in ("whole", "fives")) <= 2 * 2 * (MERGED + 1)
    table = tm.memory_table(f"{tmp_path}/whole")
    assert table is not None
    assert sum(map(len, table.column("values").to_pylist())) == EPOCHS * ROWS
    of_key = [sum(row[0] == f"k{key}" for batch in epochs for row in batch) for key in range(KEYS)]
    assert sum(epoch.operators["fives"].panes_on_time for epoch in ran.epochs) == sum(count // GROUP for count in of_key)
    head = JobLog(JobStore.open(str(tmp_path / "store")).at("job"), "job").load().epoch
    assert head is not None
    # What the function keeps of a key stays for ever; elements are gone.
    assert {uid: {file.part for file in operator.files} for uid, operator in head.operators.items()} == {
        "whole": {"keys"},
        "fives": {"keys"},
    }
