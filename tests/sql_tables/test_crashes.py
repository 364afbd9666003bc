"""A job that is killed around its publications, rewound, and restored: its tables are those that its files say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.crash.fares import clock_of, run
from tests.killed import kill_at
from tests.postgres.jobs import COLUMNS, WHOLE
from tests.seeds import only_long
from tests.sql_tables import jobs
from tests.sql_tables.place import ON_MARIADB, ON_SQLITE, Place, has_table
from tidemark.errors import RewindError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]


def tables(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(place.query(f"SELECT {columns} FROM {name}"), key=repr) for name, columns in COLUMNS.items() if has_table(place, name)
    }


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("outputs-staged:2", marks=only_long),
        pytest.param("before-commit:2", marks=only_long),
        pytest.param("after-commit:2", marks=only_long),
        pytest.param("database-loaded:5", marks=only_long),
        "database-applied:5",
        pytest.param("database-committed:5", marks=only_long),
        pytest.param("outputs-published:2", marks=only_long),
    ],
)
@pytest.mark.parametrize("place", ON_MARIADB, indirect=True)
def test_killed_around_a_publication(point: str, jvm: Mapping[str, str], spark: SparkSession, *, place: Place, tmp_path: Path) -> None:
    jobs.write_landing(tmp_path)
    kill_at("tests.sql_tables.jobs:drive", point, [str(tmp_path), place.database], environment=jvm)
    # Each table shows whole epochs.
    shown = tables(place)
    assert {epoch for *_, epoch in shown["added"]} in ({0}, {0, 1})
    assert shown["added"] == [row for row in WHOLE["added"] if row[2] in {epoch for *_, epoch in shown["added"]}]
    run(jobs.make_job(tmp_path, place.database), spark, clock_of(1))
    assert tables(place) == WHOLE


@pytest.mark.parametrize("place", ON_SQLITE, indirect=True)
def test_a_rewind_a_rescale_and_a_refusal(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    whole = jobs.make_job(jobs.write_landing(tmp_path), place.database)
    kept = {name: whole.outputs[name] for name in ("added", "history")}
    job = tm.Job("shop", kept, store=whole.store, parallelism=1)
    run(job, spark, clock_of(0), max_epochs=2)
    before = tables(place)
    tm.savepoints_of(job).take("good")
    run(job, spark, clock_of(1))
    assert tables(place) == {name: WHOLE[name] for name in kept}
    tm.rewind(job, "good")
    assert tables(place) == before
    wider = tm.Job("shop", kept, store=whole.store, parallelism=3)
    run(wider, spark, clock_of(2), max_epochs=1)
    # With an upsert, whose values before are not kept.
    all_three = tm.Job("shop", dict(whole.outputs), store=whole.store, parallelism=3)
    tm.savepoints_of(all_three).take("later")
    run(all_three, spark, clock_of(3))
    assert tables(place)["added"] == WHOLE["added"]
    assert tables(place)["history"] == WHOLE["history"]
    shown = tables(place)
    with pytest.raises(RewindError, match=r"output 'newest'.*does not keep apart \(upsert\)"):
        tm.rewind(all_three, "later")
    assert tables(place) == shown
