"""Operators that are new in a job, over changelogs that have rows already."""

from __future__ import annotations

from typing import Any

import pytest

import tidemark as tm
from tests.verdict.stored import job_of, record_of, trips
from tidemark.savepoints.compatibility.state_check import check_compatibility
from tidemark.savepoints.model.verdict import OperatorVerdict

TRIPS = trips()
NEWEST = TRIPS.latest(by=["zone"]).uid("newest")


def totals(rows: tm.Stream, by: str = "borough", **aggregates: Any) -> tm.Stream:
    return rows.key_by(by).aggregate(n=tm.count(), **aggregates).uid("totals")


def joined(rows: tm.Stream) -> tm.Stream:
    others = trips(name="others").select("zone", size="seats").latest(by=["zone"]).uid("others")
    return others.join(rows, on="zone").uid("joined")


def judged(added: tm.Stream, *stored: tm.Stream, **files: Any) -> OperatorVerdict:
    return check_compatibility(record_of(*stored, **files), job_of(added)).operator(str(added.node.uid))


@pytest.mark.parametrize(
    "added",
    [totals(NEWEST.filter("fare > 0")), NEWEST.top_n(1, by=["borough"], order="fare DESC").uid("dearest"), joined(NEWEST)],
    ids=["aggregate", "top_n", "join"],
)
def test_one_over_rows_that_are_there_is_refused(added: tm.Stream) -> None:
    found = judged(added, NEWEST)
    [finding] = found.findings
    assert "takes the changes of 'newest', which has rows" in finding.what
    assert f".bootstrap(job, '{added.node.uid}', " in finding.fix
    assert not found.fits


def test_one_over_rows_of_an_operator_that_is_renamed_is_refused() -> None:
    renamed = TRIPS.latest(by=["zone"]).uid("renamed")
    found = check_compatibility(record_of(NEWEST), job_of(totals(renamed)), uids={"newest": "renamed"}).operator("totals")
    assert "takes the changes of 'renamed', which has rows" in found.findings[0].what


def test_all_of_a_chain_are_refused_at_once() -> None:
    best = totals(NEWEST).top_n(1, order="n DESC").uid("best")
    verdict = check_compatibility(record_of(NEWEST), job_of(best))
    for uid in ("totals", "best"):
        assert "takes the changes of 'newest', which has rows" in verdict.operator(uid).findings[0].what


def test_rows_are_asked_for_by_input() -> None:
    rows = "{'left': ROWS, 'right': ROWS}"
    assert f".bootstrap(job, 'joined', {rows}, " in judged(joined(NEWEST), NEWEST).findings[0].fix


def test_one_over_a_feed_of_changes_that_was_read_is_refused() -> None:
    found = judged(totals(TRIPS.as_changelog(["zone"], operation="borough"), "seats"), NEWEST)
    assert "source 'trips', which was read before" in found.findings[0].what
    assert not found.fits
    assert judged(totals(trips(name="log").as_changelog(["zone"], operation="borough"), "seats"), NEWEST).status == "new"
    assert judged(totals(TRIPS.as_changelog(["zone"]), "seats"), NEWEST).status == "new"


def test_one_over_rows_that_begin_with_it_begins() -> None:
    assert judged(totals(NEWEST), NEWEST, main=0).status == "new"
    assert judged(totals(TRIPS.latest(by=["zone"]).uid("other")), NEWEST).status == "new"


def test_one_over_elements_begins() -> None:
    assert judged(totals(TRIPS), NEWEST).status == "new"
    assert judged(totals(NEWEST.as_elements()), NEWEST).status == "new"


def test_an_added_aggregate_is_not_to_be_added_beside_itself() -> None:
    found = judged(totals(NEWEST, most=tm.max("fare")), NEWEST, totals(NEWEST))
    [finding] = [finding for finding in found.findings if finding.fit == "incompatible"]
    assert finding.fix.startswith("leave the aggregate out, or have its state made of the rows again")
    assert ".remove('totals'), .bootstrap(job, 'totals', ROWS, " in finding.fix
