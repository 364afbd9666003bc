"""Changes through the API: what the commands do, carried out in the background, in the history under the token's name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.upgrade.upgrade_worlds import NEW, OLD, UpgradeWorld
from tests.web.served import Server
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.upgrade.code_check import judge_code
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.savepoints.delta.row_diff import RowDiff, RowSample
from tidemark.web.api.operations import RUNNING_AT_MOST

JOB = "fares"


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(UpgradeWorld(tmp_path).started(epochs=6))


def world_of(server: Server) -> UpgradeWorld:
    assert isinstance(server.world, UpgradeWorld)
    return server.world


def state(server: Server) -> str:
    found: str = server.client("viewer").get(f"/api/v1/jobs/{JOB}").json()["state"]
    return found


def take(server: Server, name: str, epoch: int | None = None) -> dict[str, Any]:
    answer = server.post(f"{JOB}/savepoints", {"name": name, "epoch": epoch, "note": "for later"}, by="operator")
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_job_is_stopped_and_started(server: Server) -> None:
    accepted = server.post(f"{JOB}/stop", {"why": "new disks"}, by="operator")
    assert {name: accepted.json()[name] for name in ("job", "action", "generation")} == {"job": JOB, "action": "stop", "generation": 2}
    done = server.ended(accepted)
    assert (done["state"], done["by"], done["result"]["state"]) == ("succeeded", "operator (API)", "stopped")
    assert done["progress"], "what it waited for is shown"
    assert (state(server), world_of(server).alive(JOB)) == ("stopped", [])
    started = server.ended(server.post(f"{JOB}/start", by="admin"))
    assert (started["state"], state(server)) == ("succeeded", "running")
    changes = server.changes(JOB)
    assert ("asked", "operator (API)", "new disks: wanted running -> suspended") in changes
    assert ("asked", "admin (API)", "start: wanted suspended -> running") in changes
    listed = server.client("viewer").get(f"/api/v1/jobs/{JOB}/operations").json()["operations"]
    assert [operation["action"] for operation in listed] == ["stop", "start"]


def test_without_waiting_only_the_request_is_written(server: Server) -> None:
    accepted = server.post(f"{JOB}/stop", {"wait": False}, by="operator")
    assert accepted.status_code == 202
    assert accepted.json() == {
        "job": JOB,
        "action": "stop",
        "watch": f"/api/v1/jobs/{JOB}",
        "generation": 2,
        "operation": None,
    }
    assert len(world_of(server).alive(JOB)) == 1, "a supervisor has not seen it yet"
    assert require_spec(server.world.store, JOB).by == "operator (API)"


@pytest.mark.parametrize("action", ["restart", "cancel", "rescale"])
def test_other_changes_of_the_spec_are_carried_out(server: Server, action: str) -> None:
    body = {"parallelism": 8} if action == "rescale" else {}
    done = server.ended(server.post(f"{JOB}/{action}", body, by="operator"))
    assert done["state"] == "succeeded"
    made = require_spec(server.world.store, JOB)
    assert (made.by, made.spec.parallelism, made.spec.restarts) == (
        "operator (API)",
        8 if action == "rescale" else None,
        1 if action == "restart" else 0,
    )
    assert state(server) == ("stopped" if action == "cancel" else "running")


def test_a_savepoint_is_taken_after_a_drain(server: Server) -> None:
    done = server.ended(server.post(f"{JOB}/stop", {"drain": True, "savepoint": "last"}))
    assert done["result"]["state"] == "finished"
    assert (done["result"]["savepoint"]["name"], done["result"]["savepoint"]["kind"]) == ("last", "stop")
    again = server.post(f"{JOB}/stop", {"savepoint": "last"}, by="operator")
    assert (again.status_code, again.json()["code"]) == (409, "TM104")
    both = server.post(f"{JOB}/stop", {"savepoint": "", "wait": False}, by="operator")
    assert (both.status_code, both.json()["code"]) == (422, "TM710")


def test_savepoints_are_taken_and_disposed_of(server: Server) -> None:
    taken = take(server, "before", 2)
    assert (taken["name"], taken["epoch"], taken["by"], taken["note"]) == ("before", 2, "operator (API)", "for later")
    twice = server.post(f"{JOB}/savepoints", {"name": "before"}, by="operator")
    assert (twice.status_code, twice.json()["code"]) == (409, "TM104")
    lost = server.post(f"{JOB}/savepoints", {"epoch": 999}, by="operator")
    assert (lost.status_code, lost.json()["code"]) == (409, "TM401")
    gone = server.client("admin").delete(f"/api/v1/jobs/{JOB}/savepoints/before?why=old")
    assert gone.json() == {"job": JOB, "disposed": ["before"]}
    assert server.client("admin").delete(f"/api/v1/jobs/{JOB}/savepoints/before").status_code == 404
    assert server.post(f"{JOB}/retire-savepoints", {"keep": 0, "age": "1 day"}).json() == {"job": JOB, "disposed": []}
    requests = [(by, what) for kind, by, what in server.changes(JOB) if kind == "request"]
    assert requests == [
        ("operator (API)", "savepoint before of epoch 2 taken: for later"),
        ("admin (API)", "dispose of savepoint before: old"),
        ("admin (API)", "dispose of the savepoints that retention expires"),
    ]


def test_a_savepoint_is_exported_and_imported(server: Server, tmp_path: Path) -> None:
    take(server, "before")
    place = str(tmp_path / "export")
    exported = server.ended(server.post(f"{JOB}/savepoints/before/export", {"to": place}))
    assert exported["result"]["files"] > 0
    imported = server.ended(server.post("copy/import-savepoint", {"source": place, "name": "there"}))
    assert (imported["state"], imported["result"]["kind"], imported["result"]["by"]) == ("succeeded", "imported", "admin (API)")
    missing = server.ended(server.post("copy/import-savepoint", {"source": str(tmp_path / "nothing")}))
    assert (missing["state"], missing["error"]["code"]) == ("failed", "TM404")


def test_a_job_is_rewound_with_its_table(server: Server) -> None:
    take(server, "base", 1)
    running = server.ended(server.post(f"{JOB}/rewind", {"savepoint": "base"}))
    assert (running["state"], running["error"]["code"], running["error"]["status"]) == ("failed", "TM410", 409)
    done = server.ended(server.post(f"{JOB}/rewind", {"savepoint": "base", "stop": True, "why": "wrong tariff"}))
    assert (done["state"], done["result"]["epoch"], done["result"]["job"]["state"]) == ("succeeded", 1, "running")
    assert ("request", "admin (API)", "rewind to savepoint base: wrong tariff") in server.changes(JOB)
    assert server.post(f"{JOB}/rewind", {"savepoint": "nothing"}).status_code == 404
    nothing = server.post(f"{JOB}/rewind/abort")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "TM422")


def test_a_job_is_restored_and_its_table_stays(server: Server) -> None:
    take(server, "base", 1)
    head = server.client().get(f"/api/v1/jobs/{JOB}").json()["epoch"]
    refused = server.post(f"{JOB}/restore", {"savepoint": "base"}, by="operator")
    assert refused.status_code == 403, "rows of later epochs are written again"
    body = {"savepoint": "base", "key": "ticket-7", "why": "wrong fare", "parallelism": 3}
    done = server.ended(server.post(f"{JOB}/restore", body))
    assert (done["state"], done["result"]["state"]) == ("succeeded", "running")
    spec = require_spec(server.world.store, JOB).spec
    assert spec.restore is not None
    assert (spec.restore.savepoint, spec.restore.mode, spec.parallelism) == ("base", "no-claim", 3)
    assert ("asked", "admin (API)") in {(kind, by) for kind, by, what in server.changes(JOB) if "wrong fare" in what}
    assert head > 1
    again = server.ended(server.post(f"{JOB}/restore", body))
    assert (again["state"], require_spec(server.world.store, JOB).spec.restore) == ("succeeded", spec.restore), "one key restores once"
    server.ended(server.post(f"{JOB}/restore", {"savepoint": "base", "claim": True}))
    other = require_spec(server.world.store, JOB).spec.restore
    assert other is not None
    assert (other.identity != spec.restore.identity, other.mode) == (True, "claim")
    assert server.post(f"{JOB}/restore", {"savepoint": "nothing"}).status_code == 404
    unknown = server.post(f"{JOB}/restore", {"savepoint": "base", "uids": {"nothing": "hourly"}})
    assert (unknown.status_code, "has no such operator" in unknown.json()["detail"]) == (422, True)


def test_the_autoscaler_is_shown_and_changed(server: Server) -> None:
    address = f"/api/v1/jobs/{JOB}/autoscaler"
    shown = server.client("viewer").get(address).json()
    assert (shown["settings"]["mode"], shown["decisions"], shown["evaluation"]) == ("advise", [], None)
    assert server.post(f"{JOB}/autoscaler", {"mode": "act"}, by="viewer").status_code == 403
    body = {"mode": "act", "max_parallelism": 8, "utilization": 0.6, "catch_up": "5 minutes", "quiet": ["Mon 08:00-09:00"], "why": "peak"}
    made = server.post(f"{JOB}/autoscaler", body, by="operator").json()
    settings = require_spec(server.world.store, JOB).spec.autoscaler
    assert (made["generation"], made["settings"]["mode"], settings.max_parallelism) == (2, "act", 8)
    assert (settings.utilization_target, settings.catch_up_ms, settings.quiet_times) == (0.6, 300_000, ("Mon 08:00-09:00",))
    assert ("asked", "operator (API)") in {(kind, by) for kind, by, what in server.changes(JOB) if "peak" in what}
    assert server.post(f"{JOB}/autoscaler", {"quiet": []}, by="operator").json()["settings"]["quiet_times"] == []
    assert server.post(f"{JOB}/autoscaler", {"settings": {"mode": "off"}}, by="operator").json()["settings"]["max_parallelism"] is None
    for wrong in ({"utilization": 2.0}, {"settings": {"min_parallelism": 0}}, {"quiet": ["never"]}, {"zone": "Mars"}):
        refused = server.post(f"{JOB}/autoscaler", wrong, by="operator")
        assert refused.status_code == 422, refused.text
    assert require_spec(server.world.store, JOB).spec.autoscaler.mode == "off", "what is refused changes nothing"


@pytest.mark.parametrize(
    ("action", "body"), [("stop", {"drain": True}), ("start", {"missing_epochs": "accept"}), ("start", {"missing_epochs": "republish"})]
)
def test_what_can_lose_or_double_rows_needs_an_admin(server: Server, action: str, body: dict[str, object]) -> None:
    refused = server.post(f"{JOB}/{action}", body, by="operator")
    assert (refused.status_code, "requires admin" in refused.json()["detail"]) == (403, True)
    assert require_spec(server.world.store, JOB).generation == 1, "nothing was written"
    assert server.post(f"{JOB}/{action}", {**body, "wait": False}, by="admin").status_code == 202
    without = {"drain": False} if action == "stop" else {"missing_epochs": None}
    assert server.post(f"{JOB}/{action}", {**without, "wait": False}, by="operator").status_code == 202


def test_a_job_is_upgraded(server: Server) -> None:
    body = {"code": NEW, "version": "2", "good_epochs": 2, "checks_within": "1 minute", "why": "new tariff"}
    done = server.ended(server.post(f"{JOB}/upgrade", body))
    assert (done["state"], done["result"]["step"]) == ("succeeded", "done")
    assert require_spec(server.world.store, JOB).spec.code == NEW
    steps = [(by, what) for kind, by, what in server.changes(JOB) if kind == "upgrade"]
    assert {by for by, _ in steps} == {"admin (API)"}
    assert "is stopping" in steps[0][1]
    assert "is done" in steps[-1][1]
    assert server.client("viewer").get(f"/api/v1/jobs/{JOB}/upgrade").json()["step"] == "done"
    late = server.post(f"{JOB}/upgrade/checks/rows", {"passed": True}, by="operator")
    assert (late.status_code, late.json()["code"]) == (409, "TM423")
    same = server.post(f"{JOB}/upgrade", body)
    assert (same.status_code, same.json()["code"]) == (409, "TM423")


def test_an_upgrade_that_breaks_is_rolled_back(tmp_path: Path) -> None:
    server = Server(UpgradeWorld(tmp_path, breaks_at=8).started(epochs=6))
    done = server.ended(server.post(f"{JOB}/upgrade", {"code": NEW, "checks_within": "1 minute"}))
    assert (done["state"], done["error"]["code"]) == ("failed", "TM423")
    assert "is rolled back" in done["error"]["detail"]
    assert require_spec(server.world.store, JOB).spec.code == OLD


def test_an_upgrade_is_watched_checked_and_aborted(server: Server) -> None:
    world_of(server).begin(checks=("rows",))
    early = server.post(f"{JOB}/upgrade/checks/rows", {"passed": True}, by="operator")
    assert (early.status_code, early.json()["code"]) == (409, "TM423"), "it is of what the old code wrote"
    assert "the new code is not watched now" in early.json()["detail"]
    assert server.ended(server.post(f"{JOB}/upgrade/abort"))["state"] == "succeeded"
    world_of(server).watched()
    refused = server.post(f"{JOB}/upgrade", {"code": "other:job"})
    assert (refused.status_code, refused.json()["code"]) == (409, "TM423")
    assert "another upgrade is under way" in refused.json()["detail"]
    checked = server.post(f"{JOB}/upgrade/checks/rows", {"passed": False, "text": "2 rows differ"}, by="operator")
    assert (checked.json()["check"], checked.json()["passed"]) == ("rows", False)
    done = server.ended(server.post(f"{JOB}/upgrade/abort", {"why": "wrong rows"}))
    assert (done["state"], done["result"]["step"]) == ("succeeded", "rolled-back")
    changes = server.changes(JOB)
    assert any(by == "admin (API)" and "aborted by admin (API): wrong rows" in what for _, by, what in changes)
    assert any(by == "operator (API)" and what.startswith("check rows of upgrade-") for _, by, what in changes)


def test_an_upgrade_is_accepted(server: Server) -> None:
    world_of(server).watched()
    done = server.ended(server.post(f"{JOB}/upgrade/accept", {}))
    assert (done["state"], done["result"]["step"]) == ("succeeded", "done")


def test_a_fork_is_made_compared_and_discarded(server: Server) -> None:
    take(server, "base", 2)
    body = {"savepoint": "base", "name": "fares-new", "code": NEW, "start": False, "why": "a try"}
    made = server.post(f"{JOB}/forks", body)
    assert (made.status_code, made.json()["job"], made.json()["operation"]) == (202, "fares-new", None)
    spec = require_spec(server.world.store, "fares-new")
    assert (spec.by, spec.why, spec.spec.code, spec.spec.wanted) == ("admin (API)", "a try", NEW, "suspended")
    twice = server.post(f"{JOB}/forks", body)
    assert (twice.status_code, twice.json()["code"]) == (409, "TM104")
    assert "a try" in server.client("viewer").get("/api/v1/jobs/fares-new/page").json()["changes"][0]["what"]
    early = server.client("operator").get(f"/api/v1/jobs/{JOB}/diff/fares-new?output=hourly")
    assert (early.status_code, early.json()["code"]) == (409, "TM416")
    gone = server.post("fares-new/discard")
    assert (gone.status_code, gone.json()["job"]) == (200, "fares-new")
    assert server.client("viewer").get("/api/v1/jobs/fares-new").status_code == 404
    assert ("request", "admin (API)", "discard of its fork fares-new") in server.changes(JOB)
    assert server.post(f"{JOB}/forks", {**body, "why": "another try"}).status_code == 202
    assert "another try" in server.client("viewer").get("/api/v1/jobs/fares-new/page").json()["changes"][0]["what"]
    original = server.post(f"{JOB}/discard")
    assert (original.status_code, original.json()["code"]) == (422, "TM100")


def test_rows_with_values_that_json_does_not_have_are_compared(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    take(server, "base", 2)
    assert server.post(f"{JOB}/forks", {"savepoint": "base", "name": "fares-new", "code": NEW, "start": False}).status_code == 202
    sample = RowSample({"zone": "a"}, ({"zone": "a", "mean": float("nan")},), ())
    monkeypatch.setattr("tidemark.web.api.result_reads.diff_output", lambda *_, **__: RowDiff(("zone",), 0, 0, 1, 0, (sample,)))
    found = server.client("operator").get(f"/api/v1/jobs/{JOB}/diff/fares-new?output=hourly")
    assert (found.status_code, found.json()["samples"][0]["before"]) == (200, [{"zone": "a", "mean": "NaN"}]), found.text


def test_a_fork_is_promoted(server: Server) -> None:
    take(server, "base", 2)
    assert server.post(f"{JOB}/forks", {"savepoint": "base", "name": "fares-new", "code": NEW, "start": False}).status_code == 202
    done = server.ended(server.post("fares-new/promote", {"good_epochs": 2, "checks_within": "1 minute"}))
    assert (done["state"], done["job"], done["result"]["step"]) == ("succeeded", JOB, "done")
    assert require_spec(server.world.store, JOB).spec.code == NEW


def test_code_is_checked(server: Server) -> None:
    found = server.post(f"{JOB}/check", {"code": NEW}).json()
    assert (found["fits"], found["status"], found["verdict"]["job"]) == (True, "compatible", JOB)


@pytest.mark.parametrize("wrong", [{"code": "new\0fares:job"}, {"code": NEW, "variables": {"A=B": "c"}}, {"code": "fares.yaml:fares"}])
def test_code_that_no_process_can_be_given_is_refused(server: Server, wrong: dict[str, object]) -> None:
    server.service.judge = judge_code
    answer = server.post(f"{JOB}/check", wrong)
    assert (answer.status_code, answer.json()["code"]) == (409, "TM423"), answer.text


def test_a_job_is_submitted(server: Server) -> None:
    body = {"code": "rides:job", "trigger": "2 seconds", "suspended": True, "restart": {"kind": "fixed"}, "wait": False, "why": "first"}
    body["autoscaler"] = {"mode": "act", "max_parallelism": 8}
    made = server.post("rides", body)
    assert made.status_code == 405, "the address of a job is not that of its submission"
    made = server.post("rides/submit", body)
    assert (made.status_code, made.json()["generation"]) == (202, 1)
    spec = require_spec(server.world.store, "rides")
    assert (spec.by, spec.spec.trigger_ms, spec.spec.wanted, spec.spec.restart.kind) == ("admin (API)", 2000, "suspended", "fixed")
    assert spec.spec.autoscaler == AutoscalerSettings("act", max_parallelism=8)
    refused = server.post("rides/submit", {**body, "autoscaler": {"utilization_target": 7}})
    assert (refused.status_code, refused.json()["job"]) == (422, "rides")


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("fares/stop", {"drain": "yes"}, 422, "the body.drain is 'yes'"),
        ("fares/stop", {"Drain": True}, 422, "has unknown Drain"),
        ("fares/stop", [], 422, "the body is []"),
        ("fares/stop", {"timeout": "soon"}, 422, "timeout"),
        ("fares/stop", {"why": "password=hunter2"}, 422, "looks as if it holds a secret"),
        ("fares/rescale", {"parallelism": 0}, 422, "at least 1 is allowed"),
        ("fares/rewind", {}, 422, "lacks savepoint"),
        ("fares/rewind", {"savepoint": "../x"}, 422, "is not of the form"),
        ("fares/upgrade", {"code": "nothing"}, 422, "is not of the form"),
        ("fares/forks", {"savepoint": "x", "name": "y"}, 404, "has no savepoint 'x'"),
        ("nothing/stop", {}, 404, "has no job 'nothing'"),
        ("fares/promote", {}, 409, "is not a fork"),
        ("fares/upgrade/abort", {}, 409, "no upgrade of the job was begun"),
        ("x/submit", {"code": "a:b", "conf": {"spark.secret.key": "hunter2"}}, 422, "looks like a secret"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_changed(server: Server, path: str, body: object, status: int, said: str) -> None:
    before = server.changes(JOB)
    answer = server.post(path, body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert said in answer.json()["detail"]
    assert "hunter2" not in answer.text
    assert server.changes(JOB) == before


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "text/plain", 415),
        (b"why=x", "application/x-www-form-urlencoded", 415),
        (b"{", "application/json", 422),
        (b"[" * 20_000, "application/json", 422),
        (b'{"why": "\\ud800"}', "application/json", 422),
        (b'{"why": NaN}', "application/json", 422),
        (b'{"code": "a:b", "alerts": {"late_warn": 1e999}}', "application/json", 422),
        (b'{"why": "' + b"x" * 70_000 + b'"}', "application/json", 413),
    ],
)
def test_a_body_that_is_no_json_is_refused(server: Server, content: bytes, kind: str, status: int) -> None:
    address = f"/api/v1/jobs/{JOB}/{'submit' if b'code' in content else 'stop'}"
    answer = server.client("admin").post(address, content=content, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["code"]) == (status, "TM710")


def test_too_many_operations_are_refused_before_anything_is_changed(server: Server) -> None:
    held = threading.Event()
    try:
        for number in range(RUNNING_AT_MOST):
            server.service.operations.begin(f"job-{number}", "wait", "ada", lambda _: held.wait(60))
        answer = server.post(f"{JOB}/stop", by="operator")
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "TM711", "5")
        assert require_spec(server.world.store, JOB).generation == 1
    finally:
        held.set()


def test_silences_begin_and_end(server: Server) -> None:
    client = server.client("operator")
    body = {"name": "move", "lasts": "2 hours", "jobs": "fares*", "why": "the lake moves"}
    made = client.post("/api/v1/silences", json=body)
    assert (made.status_code, made.json()["by"]) == (201, "operator (API)")
    assert client.post("/api/v1/silences", json={**body, "why": "again"}).status_code == 409
    assert [silence["name"] for silence in client.get("/api/v1/silences").json()["silences"]] == ["move"]
    other = server.client("a-admin")
    assert other.get("/api/v1/silences").json() == {"silences": []}
    assert other.delete("/api/v1/silences/move").status_code == 404
    assert other.post("/api/v1/silences", json=body).status_code == 403
    assert client.delete("/api/v1/silences/move").json()["name"] == "move"
    assert client.delete("/api/v1/silences/move").status_code == 404


def test_a_fork_and_a_promotion_stay_within_the_prefix(server: Server) -> None:
    take(server, "base", 2)
    assert server.post(f"{JOB}/forks", {"savepoint": "base", "name": "team-a-fork", "code": NEW, "start": False}).status_code == 202
    promoted = server.post("team-a-fork/promote", {}, by="a-admin")
    assert (promoted.status_code, promoted.json()["code"]) == (403, "TM700")
    outside = server.post("team-a-fork/forks", {"savepoint": "base", "name": "other", "code": NEW}, by="a-admin")
    assert (outside.status_code, outside.json()["code"]) == (403, "TM700")
    assert [savepoint.name for savepoint in SavepointStore(server.world.store, JOB).list()] == ["base"]
