"""Late rows of every kind of operator, in progress and in totals: also those that a join counts by input."""

from __future__ import annotations

from dataclasses import replace

import tidemark as tm
from tidemark.graph import kind_of
from tidemark.semantics.watermarks.shortfalls import Shortfalls
from tidemark.state import EpochProgress, OperatorProgress, Totals, add_epoch, empty_totals, late_and_judged, late_by_operator
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.log.progress import JUDGES_OF_LATENESS, LateWindow, decode_progress, encode_progress

WINDOW = OperatorProgress(
    rows_in=10, rows_accepted=8, rows_late=2, watermark=0, panes_on_time=0, panes_late=0, state_rows=0, state_bytes=0, state_files=0
)
JOIN = replace(
    WINDOW,
    rows_accepted=5,
    rows_late=0,
    kind="interval_join",
    counters={"late_left": 3, "late_right": 1, "others": 1},
    late_counters=("late_left", "late_right"),
)
EPOCH = EpochProgress("job", "a1", 1, 0, 5, rows_in=20, rows_out=0, operators={"hours": WINDOW, "pairs": JOIN})


def read(name: str) -> tm.Stream:
    given = tm.from_elements(epochs=[], schema=f"at TIMESTAMP, k STRING, {name} INT")
    return tm.source(name, given, watermarks=tm.ascending(timestamp="at")).select("k", name)


def test_kinds_say_which_rows_are_late() -> None:
    one, other = read("a"), read("b")
    found = {
        "window": one.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()),
        "interval join": one.join(other, on="k", within=("0 seconds", "1 hour")),
        "window join": one.window_join(other, on="k", window=tm.tumbling("1 hour")),
        "as-of join": one.join_asof(other, on="k"),
        "first": one.key_by("k").deduplicate(within="1 hour"),
        "newest": one.latest(by=["k"], sequence="a"),
        "regular join": one.latest(by=["k"]).join(other.latest(by=["k"]), on="k"),
    }
    late = {name: kind_of(stream.node).late_counters(stream.node) for name, stream in found.items()}  # type: ignore[arg-type]
    assert late == {
        "window": ("late",),
        "interval join": ("late_left", "late_right"),
        "window join": ("late_left", "late_right"),
        "as-of join": ("late_left", "late_right"),
        "first": ("late",),
        "newest": (),
        "regular join": (),
    }
    judges = {name for name, stream in found.items() if kind_of(stream.node).name in JUDGES_OF_LATENESS}  # type: ignore[arg-type]
    assert judges == {name for name, counters in late.items() if counters}


def test_late_rows_are_a_share_of_what_operators_read_to_which_rows_may_be_late() -> None:
    best = replace(WINDOW, rows_in=8, rows_accepted=8, rows_late=0, kind="top_n")
    epoch = replace(EPOCH, operators={**EPOCH.operators, "best": best})
    assert epoch.judges_of_lateness == ("hours", "pairs")
    assert late_and_judged(add_epoch(empty_totals(), epoch), epoch.judges_of_lateness) == (epoch.rows_late, epoch.rows_judged) == (6, 20)


def test_late_rows_by_input_count_as_late() -> None:
    assert (WINDOW.late, JOIN.late, EPOCH.rows_late) == (2, 4, 6)
    assert decode_progress(encode_progress(EPOCH), path="epoch") == EPOCH
    totals = add_epoch(add_epoch(empty_totals(), EPOCH), EPOCH)
    assert late_by_operator(totals) == {"hours": 4, "pairs": 8}
    # What an operator counts still adds up to its rows.
    assert all(counts["in"] == sum(counts.values()) - counts["in"] for counts in totals["operators"].values())
    # Totals of jobs without such operators stay as they were.
    assert "late" not in add_epoch(empty_totals(), replace(EPOCH, operators={"hours": WINDOW}))


def test_shortfalls_add_up_in_totals_until_the_lateness_is_changed() -> None:
    window = replace(WINDOW, shortfalls={"late": Shortfalls.of([1_000, 90_000])}, most_late=(LateWindow(0, 3_600_000, 2),))
    left, right = Shortfalls.of([5, 6], None), Shortfalls.of([7], None)
    epochs = [
        replace(EPOCH, operators={"hours": window, "pairs": replace(JOIN, shortfalls={"late_left": left})}),
        replace(EPOCH, operators={"hours": window, "pairs": replace(JOIN, shortfalls={"late_left": left, "late_right": right})}),
        replace(EPOCH, operators={"hours": WINDOW}),
    ]
    totals = empty_totals()
    for epoch in epochs:
        assert decode_progress(encode_progress(epoch), path="epoch") == epoch
        totals = add_epoch(totals, epoch)
    assert totals["shortfalls"] == {
        "hours": {"late": Shortfalls.of([1_000, 90_000] * 2)},
        "pairs": {"late_left": left + left, "late_right": right},
    }
    assert from_jsonable(Totals, to_jsonable(totals), path="totals") == totals
    changed = Shortfalls.of([2_000], 60_000)
    after = add_epoch(totals, replace(EPOCH, operators={"hours": replace(WINDOW, shortfalls={"late": changed})}))
    assert after["shortfalls"]["hours"] == {"late": changed}
    # Those of earlier releases, and of jobs without late rows, have none: what there is of them is unknown, not zero.
    assert "shortfalls" not in add_epoch(empty_totals(), EPOCH)
    assert not {"shortfalls", "most_late"} & set(encode_progress(EPOCH)["operators"]["hours"])  # type: ignore[index]
