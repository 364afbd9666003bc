"""Killed between any two steps, a job over Delta tables has each added row once, and the content of the changed table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import fares, table_changes
from tests.crash.table_changes import VERSIONS, rows_of
from tests.killed import kill_at
from tests.seeds import only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(
    "points",
    [
        ("epoch-planned:2", "before-commit:3", "after-commit:2", "output-published:2"),
        pytest.param(("state-staged:3",), marks=only_long),
        pytest.param(("epoch-done:4",), marks=only_long),
    ],
)
def test_each_row_once(session: SparkSession, jvm: Mapping[str, str], tmp_path: Path, points: tuple[str, ...]) -> None:
    folder = table_changes.write_tables(tmp_path)
    for attempt, point in enumerate(points):
        kill_at("tests.crash.table_changes:drive", point, [str(folder), str(attempt)], environment=jvm)
    job = table_changes.make_job(folder)
    # After several kills at another parallelism than the drivers before it.
    fares.run(fares.rescaled(job, 3) if len(points) > 1 else job, session, fares.clock_of(len(points)))
    assert rows_of(folder, "copied") == rows_of(folder, "added")
    assert len(rows_of(folder, "added")) == 10 * VERSIONS
    assert rows_of(folder, "rows") == rows_of(folder, "changed")
    totals: dict[object, list[int]] = {}
    for row in rows_of(folder, "changed"):
        totals.setdefault(row["zone"], []).append(int(str(row["fare"])))
    shown = {row["zone"]: (row["n"], row["total"]) for row in rows_of(folder, "totals")}
    assert shown == {zone: (len(found), sum(found)) for zone, found in totals.items()}
