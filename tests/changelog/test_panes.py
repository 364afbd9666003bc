"""Panes of windows as a changelog: after each epoch the newest pane of each key and window, without sessions whose place others took."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, Row, contents_of, sorted_rows
from tests.seeds import PROFILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "at TIMESTAMP, k STRING, v INT"
EPOCHS = 5 if PROFILE == "long" else 3


def elements(seed: int) -> list[list[tuple[datetime, str | None, int]]]:
    """Return elements of few keys, many of them late."""
    random = Random(seed)
    found = []
    for epoch in range(EPOCHS):
        times = [1_000_000 + 3_000 * epoch + random.randint(-7_000, 2_000) for _ in range(25)]
        found.append([(datetime.fromtimestamp(time / 1000, UTC), random.choice(["a", "b", None]), random.randint(0, 9)) for time in times])
    return found


def folded(epochs: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """Return the panes that count after each epoch, from all panes so far, as an upserting sink applies them."""
    content: dict[tuple[Any, ...], Row] = {}
    found = []
    for rows in epochs:
        for row in sorted(rows, key=lambda row: row["pane_index"]):
            for replaced in row.get("replaces", []):
                content.pop((row["k"], replaced["window_start"], replaced["window_end"]), None)
            content[(row["k"], row["window_start"], row["window_end"])] = row
        found.append(sorted_rows(content.values()))
    return found


def test_sessions_are_replaced_also_where_only_rows_of_an_epochs_keys_are_read(spark: SparkSession, tmp_path: Path) -> None:
    given = tm.from_elements(epochs=elements(5), schema=SCHEMA)
    by_key = tm.source("e", given, watermarks=tm.bounded_out_of_orderness("1 second", timestamp="at")).key_by("k")
    sessions = by_key.window(tm.session("400 ms")).allowed_lateness("6 seconds").aggregate(n=tm.count()).uid("sessions")
    base = "tidemark.spark.operators.changelog"
    with mock.patch(f"{base}.pairs.MANY_ROWS", -1), mock.patch(f"{base}.contents.MANY_ROWS", -1):
        histories = Histories(spark, tmp_path).run({"all": sessions, "newest": sessions.latest_panes().uid("newest")}, end_of_input=True)
    assert contents_of(histories["newest"], ["k", "window_start", "window_end"]) == folded(histories["all"])
    gone = [row for rows in histories["newest"] for row in rows if row["operation"] == "delete"]
    assert gone, "the elements show no session whose place another takes"


def test_the_newest_pane_of_each_window_counts(spark: SparkSession, tmp_path: Path) -> None:
    given = tm.from_elements(epochs=elements(3), schema=SCHEMA)
    by_key = tm.source("e", given, watermarks=tm.bounded_out_of_orderness("1 second", timestamp="at")).key_by("k")
    windows = {
        "tumbling": by_key.window(tm.tumbling("2 seconds")).allowed_lateness("6 seconds").aggregate(n=tm.count(), v=tm.sum("v")),
        "sessions": by_key.window(tm.session("400 ms")).allowed_lateness("6 seconds").aggregate(n=tm.count(), v=tm.sum("v")),
        "whole": by_key.window(tm.global_window()).trigger(tm.count_trigger(4)).aggregate(n=tm.count()),
        "counted": by_key.window(tm.count_window(4)).aggregate(n=tm.count()),
    }
    if PROFILE == "long":
        # Panes of triggers, and those of windows that become final, are there without them.
        early = tm.event_time_trigger(early=tm.count_trigger(2))
        triggered = by_key.window(tm.tumbling("5 seconds")).allowed_lateness("3 seconds").trigger(early)
        windows["early"] = triggered.aggregate(n=tm.count())
    streams: dict[str, tm.Stream] = {}
    for name, stream in windows.items():
        streams[f"{name}-all"] = stream.uid(name)
        panes = streams[f"{name}-all"].latest_panes()
        streams[name] = panes if name == "counted" else panes.uid(f"{name}-panes")
    runs = Histories(spark, tmp_path)
    # Rows of windows that are final are dropped as soon as they may be.
    with mock.patch("tidemark.spark.operators.changelog.pairs.FINAL_ROWS", -1):
        histories = runs.run(streams, end_of_input=True)
    for name in windows.keys() - {"counted"}:
        assert contents_of(histories[name], ["k", "window_start", "window_end"]) == folded(histories[f"{name}-all"]), name
    groups = contents_of(histories["counted"], ["k", "pane_index"])[-1]
    assert groups == sorted_rows(row for rows in histories["counted-all"] for row in rows)
    replaced = [row["replaces"] for rows in histories["sessions-all"] for row in rows if row["replaces"]]
    assert any(len(sessions) > 1 for sessions in replaced), "the elements show no session that takes the place of two"
    assert any(row["operation"] == "delete" for rows in histories["sessions"] for row in rows)
    last = runs.result.epochs[-1].operators
    windows_of = contents_of(histories["tumbling"], ["k", "window_start", "window_end"])[-1]
    assert 0 < last["tumbling-panes"].keys < len(windows_of), "rows of windows that are final are dropped"
    assert last["whole-panes"].keys == 3
