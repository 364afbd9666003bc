"""Lists with a lifetime in a savepoint whose values were changed: of another number they begin their lifetimes again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import tidemark as tm
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOW, HOUR = 1_700_000_000_000, 3_600_000
EPOCHS: list[list[tuple[str, int, int | None]]] = [
    [("a", 0, 1), ("b", 0, 1), ("c", 0, 1)],
    [("a", 1, 2), ("b", 1, 2), ("c", 1, 2)],
    [("a", 2, None), ("b", 2, None), ("c", 2, None)],
]


class Recent:
    """Emits the values of two hours before each that it keeps."""

    values = tm.list_state("BIGINT", ttl=tm.state_ttl("2 hours"))

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, Any]]:
        del ctx
        yield {"k": element["k"], "values": self.values.get()}
        if element["v"] is not None:
            self.values.add(element["v"])


def test_lists_of_another_length_are_restored(spark: SparkSession, tmp_path: Path) -> None:
    store, table = str(tmp_path / "store"), f"{tmp_path}/out"

    def run(epochs: int, hour: int, **settings: Any) -> dict[str, list[int]]:
        elements = tm.from_elements(epochs=EPOCHS[:epochs], schema="k STRING, t BIGINT, v BIGINT")
        read = tm.source("e", elements, watermarks=tm.ascending(timestamp="t"))
        recent = read.key_by("k").process(Recent, returns="k STRING, values ARRAY<BIGINT>").uid("recent")
        job = tm.Job("job", outputs={"out": tm.memory(recent, table)}, store=store)
        tm.run(job, spark=spark, clock=ManualClock(NOW + hour * HOUR), handle_signals=False, **settings)
        made = tm.memory_table(table)
        assert made is not None
        rows = {row["k"]: row["values"] for row in made.to_pylist()}
        tm.clear_memory(table)
        return rows

    run(1, 0)
    run(2, 1)
    changed = tm.changed_savepoint(str(tmp_path / "made"), tm.savepoint("job", store=store), spark=spark)
    more, fewer = "concat(values__value, array(3L))", "filter(values__value, each -> each > 1)"
    changed.map(
        "recent",
        lambda rows: rows.withColumn(
            "values__value", F.expr(f"CASE k WHEN 'a' THEN {more} WHEN 'b' THEN {fewer} ELSE transform(values__value, each -> -each) END")
        ),
    )
    changed.write("made")
    keys = tm.savepoint(f"{tmp_path}/made/").tables("recent", spark)["keys"]
    assert {row["k"]: row["values"] for row in keys.collect()} == {"a": [1, 2, 3], "b": [2], "c": [-1, -2]}
    tm.import_savepoint("job", str(tmp_path / "made"), store=store)
    # Two hours after the first values: of the list that has as many as before they expire.
    assert run(3, 2, restore=tm.Restore("made")) == {"a": [1, 2, 3], "b": [2], "c": [-2]}
