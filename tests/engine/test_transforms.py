"""What a transform leaves out: whatever it does with an epoch's rows, all that the source delivered is counted, and what came out too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.cli.show.tables import progress_lines
from tidemark.state.log.progress import TransformProgress, decode_progress, encode_progress
from tidemark.state.status.status import read_status
from tidemark.state.store.root_store import root_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = [(1, 5), (2, 5), (3, 6), (4, 7), (5, 7)]


def joined_with_nothing(rows: DataFrame) -> DataFrame:
    """Join with a table without rows, after which Spark does not read the other side."""
    return rows.join(rows.sparkSession.createDataFrame([], "v INT, name STRING"), "v").drop("name")


def looked_at(rows: DataFrame) -> DataFrame:
    """Return the rows after an action that reads only the first of them."""
    return rows.limit(0) if rows.isEmpty() else rows


TRANSFORMS: Mapping[str, tuple[Callable[[DataFrame], DataFrame], int]] = {
    "limit": (lambda rows: rows.limit(1), 1),
    "nothing": (lambda rows: rows.limit(0), 0),
    "filter": (lambda rows: rows.where("v > 5"), 3),
    "never": (lambda rows: rows.where("1 = 2"), 0),
    "sample": (lambda rows: rows.sample(fraction=0.0), 0),
    "distinct": (lambda rows: rows.dropDuplicates(["v"]), 3),
    "joined": (joined_with_nothing, 0),
    "looked_at": (looked_at, 5),
    "twice": (lambda rows: rows.unionAll(rows), 10),
}


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


def source(name: str) -> tm.Stream:
    return elements(ROWS, schema="t BIGINT, v INT", name=name)


def test_every_row_that_a_source_delivered_is_counted_whatever_a_transform_leaves_of_them(lab: Lab) -> None:
    streams = {name: source(name).transform(function).uid(f"{name}_uid") for name, (function, _) in TRANSFORMS.items()}
    ran = lab.run(streams, end_of_input=False)
    epoch = ran.epochs[0]
    assert {name: epoch.sources[name].rows_read for name in TRANSFORMS} == dict.fromkeys(TRANSFORMS, 5)
    assert {name: len(rows) for name, rows in ran.rows.items()} == {name: left for name, (_, left) in TRANSFORMS.items()}
    assert {name: epoch.sources[name].splits[""].max_event_time for name in TRANSFORMS} == dict.fromkeys(TRANSFORMS, 5)
    assert epoch.transforms == {f"{name}_uid": TransformProgress(5, left) for name, (_, left) in TRANSFORMS.items()}
    assert decode_progress(encode_progress(epoch), path="x") == epoch


def test_what_goes_into_a_transform_and_comes_out_of_it_is_shown_wherever_it_stands(lab: Lab) -> None:
    def first(rows: DataFrame) -> DataFrame:
        return rows.limit(1)

    plain = source("plain").filter("v > 5").transform(first).uid("after-filter").filter("v > 100")
    shared = source("shared").transform(first).uid("shared-one")
    united = source("one").union(source("two")).transform(first).uid("after-union")
    counted = source("counted").window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("w").transform(lambda rows: rows.limit(0))
    streams = {
        "plain": plain,
        "same": shared,
        "other": shared.with_columns(w="v"),
        "united": united,
        "window": source("windowed").transform(first).uid("in").window_all(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("x"),
        "results": counted.uid("of-results"),
        "mapped": source("mapped").transform(first).uid("m").flat_map(lambda _: [], returns="v INT"),
    }
    ran = lab.run(streams)
    epoch = ran.epochs[0]
    assert {name: found.rows_read for name, found in epoch.sources.items()} == dict.fromkeys(epoch.sources, 5)
    assert {name: (found.rows_in, found.rows_out) for name, found in epoch.transforms.items()} == {
        "after-filter": (3, 1),
        "shared-one": (5, 1),
        "after-union": (10, 1),
        "in": (5, 1),
        "m": (5, 1),
        "of-results": (0, 0),
    }
    closing = ran.epochs[-1].transforms["of-results"]
    assert (closing.rows_in, closing.rows_out) == (1, 0)
    status = read_status(root_store(str(lab.folder / "store"), None), "job")
    assert status is not None
    lines = progress_lines(status)
    assert "  transform after-filter: in 3, out 1" in lines
    assert "  transform of-results: in 1, out 0" in lines


def test_a_job_without_a_transform_stores_nothing_of_them(lab: Lab) -> None:
    epoch = lab.run({"rows": source("plain").filter("1 = 2")}, end_of_input=False).epochs[0]
    assert (epoch.rows_in, epoch.rows_out) == (5, 0)
    assert "transforms" not in encode_progress(epoch)
    status = read_status(root_store(str(lab.folder / "store"), None), "job")
    assert status is not None
    assert "transforms" not in status.totals
