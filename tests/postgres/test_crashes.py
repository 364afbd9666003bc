"""A job that is killed around its publications, rewound, and restored: its tables are those of a job that nobody killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.crash.fares import clock_of, rescaled, run
from tests.killed import kill_at
from tests.postgres import jobs
from tests.postgres.jobs import COLUMNS, WHOLE
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.seeds import only_long
from tidemark.errors import RewindError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_POSTGRES, pytest.mark.crash, pytest.mark.spark, pytest.mark.slow]


def tables(server: Server, schema: str) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(server.query(f"SELECT {columns} FROM {schema}.{name}"), key=repr)
        for name, columns in COLUMNS.items()
        if server.query("SELECT to_regclass(%s) IS NOT NULL", f"{schema}.{name}")[0][0]
    }


@pytest.mark.parametrize(
    "points",
    [
        # The second epoch both times: in the next process the first one's three tables need nothing.
        ("outputs-staged:2", "database-committed:2"),
        pytest.param(("before-commit:2",), marks=only_long),
        pytest.param(("after-commit:2",), marks=only_long),
        pytest.param(("database-loaded:5",), marks=only_long),
        pytest.param(("database-applied:5",), marks=only_long),
        pytest.param(("database-committed:5",), marks=only_long),
        pytest.param(("outputs-published:2",), marks=only_long),
    ],
    ids=" then ".join,
)
def test_killed_around_a_publication(
    points: tuple[str, ...],
    jvm: Mapping[str, str],
    *,
    spark: SparkSession,
    server: Server,
    schema: str,
    tmp_path: Path,
) -> None:
    jobs.write_landing(tmp_path)
    left: set[Path] = set()
    for attempt, point in enumerate(points):
        kill_at("tests.postgres.jobs:drive", point, [str(tmp_path), schema, str(attempt)], environment=jvm)
        if point.startswith("outputs-staged"):
            left = staged(tmp_path)
        # Each table shows whole epochs.
        shown = tables(server, schema)
        assert {epoch for *_, epoch in shown["added"]} in ({0}, {0, 1})
        assert shown["added"] == [row for row in WHOLE["added"] if row[2] in {epoch for *_, epoch in shown["added"]}]
    run(jobs.make_job(tmp_path, schema), spark, clock_of(len(points)))
    assert tables(server, schema) == WHOLE
    assert staged(tmp_path) <= left, "only what no epoch was committed with stays"


def staged(folder: Path) -> set[Path]:
    """Return the files that are staged."""
    return set((folder / "store" / "shop" / "staging").rglob("*.parquet"))


def test_a_rewind_a_rescale_and_what_follows(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> None:
    whole = jobs.make_job(jobs.write_landing(tmp_path), schema)
    job = tm.Job("shop", {name: whole.outputs[name] for name in ("added", "history")}, store=whole.store, parallelism=1)
    run(job, spark, clock_of(0), max_epochs=2)
    before = tables(server, schema)
    tm.savepoints_of(job).take("good")
    run(job, spark, clock_of(1))
    assert tables(server, schema) == {name: WHOLE[name] for name in ("added", "history")}
    tm.rewind(job, "good")
    assert tables(server, schema) == before
    run(rescaled(job, 3), spark, clock_of(2))
    assert tables(server, schema) == {name: WHOLE[name] for name in ("added", "history")}


@only_long
def test_a_rewind_of_an_upsert_is_refused(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> None:
    job = jobs.make_job(jobs.write_landing(tmp_path), schema)
    run(job, spark, clock_of(0), max_epochs=1)
    tm.savepoints_of(job).take("good")
    run(job, spark, clock_of(1), max_epochs=1)
    shown = tables(server, schema)
    with pytest.raises(RewindError, match=r"output 'newest'.*does not keep apart \(upsert\)"):
        tm.rewind(job, "good")
    assert tables(server, schema) == shown
    run(job, spark, clock_of(2))
    assert tables(server, schema)["newest"] == WHOLE["newest"]


@only_long
def test_a_restore_without_a_rewind(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> None:
    job = jobs.make_job(jobs.write_landing(tmp_path), schema)
    run(job, spark, clock_of(0), max_epochs=2)
    tm.savepoints_of(job).take("good")
    run(job, spark, clock_of(1))
    tm.run(job, spark=spark, clock=clock_of(2), restore=tm.Restore("good"))
    again = [row for row in jobs.ADDED if row[2] >= 2]
    assert tables(server, schema)["added"] == sorted([*jobs.ADDED, *again], key=repr)
    assert tables(server, schema)["newest"] == WHOLE["newest"]
