"""The part of the job with every operator that joins streams."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import tidemark as tm


def of_changelogs(rides: tm.Stream, taps: tm.Stream) -> dict[str, tm.Stream]:
    """Return what is made of tables that change."""
    last = rides.select("k", "s", at="t", ride="v").filter("ride > 0").as_changelog(key=["k", "s", "at", "ride"])
    other = taps.select("k", tapped="t", tap="v").filter("tap IS NOT NULL").as_changelog(key=["k", "tapped", "tap"])
    return {
        "met": last.join(other, on="k", how="full").uid("met"),
        "met_lately": last.join(other, on="k", how="left", ttl=(None, tm.state_ttl("900 ms", domain="event"))).uid("met_lately"),
        "unmet": last.join(other, on={"ride + 1": "tap"}, how="anti").uid("unmet"),
    }


def joined(rides: tm.Stream, taps: tm.Stream) -> dict[str, tm.Stream]:
    """Return what joins make of two streams."""
    late = tm.OutputTag("late-rides")
    right = taps.select("k", tapped="t", w="v")
    near = rides.select("k", "t", "v").join(right, on="k", how="full", within=("-200 ms", "300 ms"), late_left_to=late).uid("near")
    keyed = {"k": "k", "s": "IF(w, 'x', 'y')"}
    alike = rides.select("k", "s", "v").join(right.select("tapped", k="k", w="w % 2 = 0"), on=keyed, within=("0 ms", "1 second"))
    missed = tm.OutputTag("missed-rides")
    window = tm.sliding("400 ms", "200 ms")
    rides = rides.select("k", "t", "v")
    together = rides.window_join(right, on="k", window=window, how="full", allowed_lateness="250 ms", late_left_to=missed).uid("together")
    return {
        "near": near,
        "late_rides": near.side_output(late),
        "alike": alike.uid("alike"),
        "together": together,
        "missed_rides": together.side_output(missed),
    }


def versions(rides: tm.Stream, taps: tm.Stream) -> dict[str, tm.Stream]:
    """Return elements with the versions that are valid at their times."""
    late = tm.OutputTag("unanswered")
    valid = rides.join_asof(taps.select("k", tap="v", tap_s="s"), on="k", how="left", late_left_to=late).uid("valid")
    return {"valid": valid, "unanswered": valid.side_output(late)}


def looked_up(rides: tm.Stream, names: Path) -> dict[str, tm.Stream]:
    """Return elements with the rows of a table, which is copied into their job's store."""
    table = tm.parquet_table(str(names), schema="key STRING, name STRING")
    return {"titled": rides.select("k", "v").lookup(table, on={"k": "key"}).uid("titled")}


def write_names(folder: Path) -> None:
    """Write the table, if it is not there: several rows of one key, none of another."""
    if not folder.exists():
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"key": ["a", "b", "b", "c", None], "name": ["ann", "bob", "bea", "cy", "none"]}), folder / "names.parquet")
