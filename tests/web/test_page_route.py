"""The route of the page: for whom it answers, its entity tag, and the files that a browser loads."""

from __future__ import annotations

import pytest

from tests.web.served import FARES, OTHER, TAXI, Served
from tidemark.clock import format_ms
from tidemark.control.model.autoscaler_records import AutoscalerRecord, ScalingDecision, create_record


@pytest.fixture
def served() -> Served:
    return Served()


def test_an_unchanged_page_is_not_sent_again(served: Served) -> None:
    client = served.client("viewer")
    first = client.get(f"/api/v1/jobs/{FARES}/page")
    assert (first.status_code, first.json()["job"], first.json()["state"]) == (200, FARES, "running")
    tag = first.headers["etag"]
    again = client.get(f"/api/v1/jobs/{FARES}/page", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    served.world.tick()
    changed = client.get(f"/api/v1/jobs/{FARES}/page", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.json()["epoch"]["number"] == first.json()["epoch"]["number"] + 1
    assert changed.headers["etag"] != tag


def test_new_advice_of_the_autoscaler_is_among_the_changes(served: Served) -> None:
    client = served.client("viewer")
    assert "advised" not in {change["kind"] for change in client.get(f"/api/v1/jobs/{FARES}/page").json()["changes"]}
    decision = ScalingDecision(served.world.clock.now_ms(), "advised", 2, 4, 1.0, 1.0, "the load has doubled")
    assert create_record(served.world.store, AutoscalerRecord(FARES, decisions=(decision,)), 1)
    newest = client.get(f"/api/v1/jobs/{FARES}/page").json()["changes"]
    assert [change["what"] for change in newest if change["kind"] == "advised"] == ["parallelism 2 -> 4: the load has doubled"]


def test_a_page_is_for_those_who_may_see_the_job(served: Served) -> None:
    assert served.client(None).get(f"/api/v1/jobs/{FARES}/page").status_code == 401
    assert served.client("a-viewer").get(f"/api/v1/jobs/{FARES}/page").status_code == 200
    for job in (OTHER, "team-b-nothing"):
        refused = served.client("a-viewer").get(f"/api/v1/jobs/{job}/page")
        assert (refused.status_code, refused.json()["code"]) == (403, "TM700")
    unknown = served.client("viewer").get("/api/v1/jobs/nothing/page")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "TM414")


def test_the_page_of_a_job_that_was_never_submitted_has_its_savepoint(served: Served) -> None:
    page = served.client("viewer").get(f"/api/v1/jobs/{TAXI}/page").json()
    assert [(each["name"], each["epoch"], each["by"]) for each in page["savepoints"]] == [("before", 2, "ada")]
    assert format_ms(page["savepoints"][0]["taken_at"]).startswith("2023-11-14")
    assert page["problems"] == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/static/page.js", "text/javascript"), ("/static/style.css", "text/css"), ("/static/icon.svg", "image/svg+xml")],
)
def test_the_files_are_served_to_everybody_under_a_strict_policy(served: Served, path: str, kind: str) -> None:
    """They hold nothing of any job; what they show needs a token."""
    found = served.client(None).get(path)
    assert found.status_code == 200
    assert found.headers["content-type"].startswith(kind)
    policy = found.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert not any("unsafe" in part or "*" in part or "data:" in part for part in policy)


@pytest.mark.parametrize(
    "path", ["/static/../reader.py", "/static/%2e%2e/reader.py", "/static/..%2freader.py", "/static/", "/static/__init__.py"]
)
def test_nothing_else_is_served(served: Served, path: str) -> None:
    assert served.client(None).get(path).status_code == 404
