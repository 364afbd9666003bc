"""What the API shows of jobs: the same as the commands."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tests.control.read_jobs import Read, kafka
from tests.control.worlds import FakeLauncher, World
from tests.web.served import FARES, OTHER, TAXI, Served, Server
from tidemark.cli.program.main import main
from tidemark.control.alerts.engine.alert_store import ALERTS, AlertRecord, write_alerts
from tidemark.control.alerts.model.alert_state import Condition, JobAlerts
from tidemark.control.alerts.model.hysteresis import ThresholdState, ThresholdStates
from tidemark.control.model.paths import numbered
from tidemark.state.encoding.envelope import canonical, decode_envelope, sha256
from tidemark.state.gc.pins import Pin, Pins
from tidemark.state.store.store import JobStore


@pytest.fixture
def served() -> Served:
    return Served()


def test_jobs_are_listed(served: Served) -> None:
    on = ThresholdState(on=True, above=True, since=1)
    condition = Condition("check", "", ThresholdStates(on, on), told="error", peak="error", text="failed")
    assert write_alerts(served.world.store, AlertRecord(0, JobAlerts(FARES)), JobAlerts(FARES, (condition,))) is not None
    found = served.client("viewer").get("/api/v1/jobs")
    assert found.status_code == 200
    jobs = {job["name"]: job for job in found.json()["jobs"]}
    assert list(jobs) == [FARES, TAXI, OTHER]
    assert jobs[FARES]["state"] == "running"
    assert jobs[FARES]["rows_per_second"] > 0
    assert jobs[FARES]["alerts"] == [{"rule": "check", "subject": "", "severity": "error", "since": None, "text": "failed"}]
    assert jobs[OTHER]["alerts"] == []
    assert found.json()["at"] == served.world.clock.now_ms()


def test_a_job_is_what_the_command_prints(served: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = JobStore.open(str(tmp_path_factory.mktemp("store")))
    for file in served.world.store.list():
        root.put(file.path, served.world.store.get(file.path))
    done = CliRunner().invoke(main, ["status", FARES, "--store", root.uri, "--json"])
    printed, answered = json.loads(done.output), served.client("viewer").get(f"/api/v1/jobs/{FARES}").json()
    assert printed.keys() == answered.keys()
    # Times and processes are of another clock, and of another machine.
    assert {name: printed[name] for name in ("job", "epoch", "spec", "totals", "driver")} == {
        name: answered[name] for name in ("job", "epoch", "spec", "totals", "driver")
    }


def test_the_history_has_the_newest_epochs_and_changes_have_their_authors(served: Served) -> None:
    client = served.client("viewer")
    assert client.get(f"/api/v1/jobs/{TAXI}/history").json() == {"epochs": []}, "only a driver writes it"
    (asked, started) = client.get(f"/api/v1/jobs/{FARES}/changes?limit=2").json()["changes"]
    assert (asked["kind"], asked["by"], asked["number"]) == ("asked", "ada", 1)
    assert (started["kind"], started["number"]) == ("started", 1)


def test_savepoints_are_shown(served: Served) -> None:
    client = served.client("viewer")
    (listed,) = client.get(f"/api/v1/jobs/{TAXI}/savepoints").json()["savepoints"]
    assert (listed["name"], listed["epoch"], listed["by"], listed["job"]) == ("before", 2, "ada", TAXI)
    assert client.get(f"/api/v1/jobs/{TAXI}/savepoints/before").json() == listed
    plan = client.get(f"/api/v1/jobs/{TAXI}/savepoints/before/rewind-plan").json()
    assert (plan["epoch"], plan["from_epoch"], plan["savepoint"]) == (2, 2, "before")
    served.stored.commit()
    served.stored.savepoints.take("after")
    found = client.get(f"/api/v1/jobs/{TAXI}/savepoints/before/difference/after").json()
    assert found["epochs"] == {"before": 2, "after": 3}


def test_the_log_is_that_of_the_driver(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    found = served.client("operator").get(f"/api/v1/jobs/{FARES}/log?lines=2").json()
    pid = served.world.driver(FARES).pid
    assert found == {"place": None, "host": "host-a", "lines": [f"line 0 of process {pid}", f"line 1 of process {pid}"]}
    monkeypatch.setattr(FakeLauncher, "logs", lambda *_: ("connecting", "jdbc:postgresql://ada:hunter2@db/rides"))
    assert served.client("operator").get(f"/api/v1/jobs/{FARES}/log").json()["lines"][0] == "connecting"
    assert "hunter2" not in served.client("operator").get(f"/api/v1/jobs/{FARES}/log").text
    missing = served.client("operator").get(f"/api/v1/jobs/{TAXI}/log")
    assert (missing.status_code, missing.json()["code"]) == (404, "TM712")


@pytest.mark.parametrize(
    ("path", "status", "code", "said"),
    [
        ("/jobs/nothing", 404, "TM414", "the store has no job 'nothing'"),
        (f"/jobs/{TAXI}/savepoints/nothing", 404, "TM420", "has no savepoint 'nothing'"),
        (f"/jobs/{TAXI}/operations/nothing", 404, "TM712", "no operation 'nothing'"),
        ("/jobs/-/history", 422, "TM104", "job name '-' is not allowed"),
        (f"/jobs/{TAXI}/savepoints/-", 422, "TM104", "savepoint name '-' is not allowed"),
        (f"/jobs/{FARES}/history?limit=0", 422, "TM710", "the query.limit is 0, and at least 1 is allowed"),
        (f"/jobs/{FARES}/history?limit=many", 422, "TM710", "the query.limit is 'many'"),
        (f"/jobs/{FARES}/history?limit=1&limit=2", 422, "TM710", "limit twice"),
        (f"/jobs/{FARES}/history?last=1", 422, "TM710", "has unknown last"),
        ("/nothing", 404, "TM712", "the server has nothing at GET /api/v1/nothing"),
        ("/jobs/", 404, "TM712", "the server has nothing at GET /api/v1/jobs/"),
    ],
)
def test_what_is_wrong_is_said(served: Served, path: str, status: int, code: str, said: str) -> None:
    found = served.client("viewer").get(f"/api/v1{path}")
    assert found.headers["content-type"] == "application/problem+json"
    problem = found.json()
    assert (found.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert said in problem["detail"]
    assert problem["fix"]


def test_another_method_is_refused(served: Served) -> None:
    found = served.client("viewer").delete(f"/api/v1/jobs/{FARES}/history")
    assert (found.status_code, found.headers["content-type"]) == (405, "application/problem+json")
    assert set(found.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_damaged_job_hides_no_other(served: Served) -> None:
    served.world.store.put(f"{OTHER}/control/specs/00000001.json", b"no document")
    jobs = {job["name"]: job["state"] for job in served.client("viewer").get("/api/v1/jobs").json()["jobs"]}
    assert jobs[OTHER] == "damaged"
    assert jobs[FARES] == "running"


def test_alerts_of_a_newer_release_hide_no_job(served: Served) -> None:
    alerts = JobAlerts(FARES)
    assert write_alerts(served.world.store, AlertRecord(0, alerts), alerts) is not None
    path = f"{FARES}/{numbered(ALERTS, 1)}"
    _, body = decode_envelope(served.world.store.get(path), kind="alerts", path=path)
    content = {"kind": "alerts", "format": 99, "body": body}
    served.world.store.put(path, canonical({**content, "sha256": sha256(canonical(content))}))
    found = served.client("viewer").get("/api/v1/jobs")
    assert found.status_code == 200, found.text
    assert [(job["name"], job["alerts"]) for job in found.json()["jobs"]] == [(FARES, []), (TAXI, []), (OTHER, [])]


def test_the_newest_savepoints_are_read_and_no_others(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        served.stored.clock.advance(1_000)
        served.stored.savepoints.take(f"sp-{number:02}")
    read: list[str] = []
    get = Pins.get

    def noted(pins: Pins, name: str) -> Pin:
        read.append(name)
        return get(pins, name)

    monkeypatch.setattr(Pins, "get", noted)
    found = served.client("viewer").get(f"/api/v1/jobs/{TAXI}/savepoints?limit=3").json()
    assert ([item["name"] for item in found["savepoints"]], found["in_all"]) == (["sp-27", "sp-28", "sp-29"], 31)
    assert sorted(read) == ["sp-27", "sp-28", "sp-29"]
    assert len(served.client("viewer").get(f"/api/v1/jobs/{TAXI}/savepoints").json()["savepoints"]) == 20
    assert served.client("viewer").get(f"/api/v1/jobs/{TAXI}/savepoints?limit=101").status_code == 422


def test_an_unexpected_error_shows_nothing_of_itself(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(served.service, "require", fail)
    found = served.client("viewer").get(f"/api/v1/jobs/{FARES}")
    assert found.status_code == 500
    assert "hunter2" not in found.text
    answered = served.client("viewer").get("/openapi.json").headers
    for name in ("content-security-policy", "x-content-type-options", "cache-control", "referrer-policy"):
        assert found.headers[name] == answered[name]
    assert "RuntimeError" in found.json()["detail"]


def test_whether_an_input_is_visible_is_shown() -> None:
    server = Server(World())
    read = Read(server.world.store)
    read.publish(read.commit(kafka(p0=5)))
    client = server.client("viewer")
    found = client.get("/api/v1/jobs/taxi/visible?input=kafka:rides:0:4").json()
    assert (found["visible"], found["missing"], found["completion"]["epoch"]) == (True, "", 0)
    later = client.get("/api/v1/jobs/taxi/visible?input=kafka:rides:0:5").json()
    assert later["visible"] is False
    assert "source 'rides' has not read it" in later["missing"]
    assert client.get("/api/v1/jobs/taxi/visible?input=x").status_code == 422
    assert client.get("/api/v1/jobs/taxi/visible").json()["detail"] == "the query lacks input"
