"""Who may do what: every route with every kind of token, and requests that a browser was tricked into."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.web.served import FARES, OTHER, TAXI, Served
from tidemark.errors import DefinitionError
from tidemark.web.access.tokens import TOKENS_VARIABLE, FixedTokens, TokenFile, load_tokens, new_token, parse_tokens, token_entry
from tidemark.web.api.routes import PREFIX, ApiRoute
from tidemark.web.api.table import ROUTES
from tidemark.web.server.serving import serve


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


def send(client: TestClient, route: ApiRoute, job: str = "team-a-nothing", **headers: str) -> tuple[int, str]:
    """Send a request of a route; returns status and code."""
    path = route.path.format(job=job, savepoint="nothing", other="nothing", operation="nothing", silence="nothing", check="nothing")
    # A body that no form takes: only who may send it matters.
    body = {"json": {"nothing of the kind": 1}} if route.method == "POST" else {}
    answer = client.request(route.method, f"{PREFIX}{path}", headers=headers, **body)  # type: ignore[arg-type]  # by its method
    return answer.status_code, answer.json().get("code", "") if answer.status_code >= 400 else ""


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_no_route_answers_without_a_token(served: Served, route: ApiRoute) -> None:
    client = served.client(None)
    secret = served.secrets["admin"]
    for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {secret}"}, {"Authorization": secret}):
        assert send(client, route, **wrong) == (401, "TM701")
    for near in (secret[:-1], f"{secret}x", secret.swapcase(), f"{secret} {secret}"):
        assert send(client, route, Authorization=f"Bearer {near}") == (401, "TM701")
    refused = client.get(f"{PREFIX}/jobs", params={"token": secret})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer realm="tidemark"')


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_each_role_has_its_routes(served: Served, route: ApiRoute) -> None:
    roles = ("viewer", "operator", "admin")
    for role in roles:
        allowed = roles.index(role) >= roles.index(route.role)
        assert (send(served.client(role), route) != (403, "TM700")) is allowed, role


@pytest.mark.parametrize("route", [route for route in ROUTES if "{job}" in route.path], ids=lambda route: route.name)
def test_a_prefix_hides_whether_other_jobs_exist(served: Served, route: ApiRoute) -> None:
    path = route.path.format(job="{job}", savepoint="x", other="x", operation="x", silence="x", check="x")
    answers = {
        served.client("a-admin").request(route.method, f"{PREFIX}{path.format(job=job)}").text.replace(job, "JOB")
        for job in (OTHER, "team-b-nothing", "TEAM-A-fares")
    }
    assert len(answers) == 1
    assert '"status":403' in answers.pop()


def test_a_prefix_is_a_filter_of_the_list(served: Served) -> None:
    client = served.client("a-viewer")
    assert [job["name"] for job in client.get(f"{PREFIX}/jobs").json()["jobs"]] == [FARES, TAXI]
    unknown = client.get(f"{PREFIX}/jobs/team-a-nothing")
    assert unknown.status_code == 404
    assert OTHER not in unknown.text
    assert client.get(f"{PREFIX}/me").json() == {"token": "a-viewer", "role": "viewer", "jobs": "team-a-"}


def test_without_tokens_everything_is_read_only() -> None:
    served = Served(with_tokens=False)
    client = served.client(None)
    for route in ROUTES:
        refused = send(client, route) == (403, "TM700")
        assert refused is (route.role != "viewer"), route.name
    assert client.get(f"{PREFIX}/me").json() == {"token": None, "role": "viewer", "jobs": ""}
    assert len(client.get(f"{PREFIX}/jobs").json()["jobs"]) == 3


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost:8787", True),
        ("LOCALHOST", True),
        ("127.0.0.1:8787", True),
        ("[::1]:8787", True),
        ("jobs.example.com", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost@evil.example", False),
        ("evil.example:localhost", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_only_known_hosts_are_answered(served: Served, host: str, answered: bool) -> None:  # noqa: FBT001 - of a table
    for path in (f"{PREFIX}/jobs", "/openapi.json", "/"):
        found = served.client("admin", {"Host": host}).get(path)
        assert (found.status_code != 421) is answered, path
        assert answered or found.json()["code"] == "TM702"


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost:9999",
        "https://localhost",
        "null",
        "",
        "http://localhost:8787.evil",
        "http://[::1",
        "http://[x]",
    ],
)
def test_requests_of_other_pages_are_refused(served: Served, origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        found = served.client("admin", {"Origin": origin}).request(method, f"{PREFIX}/jobs")
        assert (found.status_code, found.json()["code"]) == (421, "TM702")
        assert "access-control-allow-origin" not in found.headers


def test_the_page_of_this_server_is_answered(served: Served) -> None:
    found = served.client("admin", {"Origin": "http://localhost:8787"}).get(f"{PREFIX}/jobs")
    assert found.status_code == 200
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in found.headers["content-security-policy"]
    assert found.headers["cache-control"] == "no-store"


def entry(name: str, role: str = "viewer", jobs: str = "") -> tuple[str, str]:
    token, secret = new_token(name, role, jobs)  # type: ignore[arg-type]  # a role
    return token_entry(token), secret


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    (anna, secret), (bob, other) = entry("anna", "operator", "team-a-"), entry("bob")
    assert secret not in anna
    path = tmp_path / "tokens.toml"
    path.write_text(f"{anna}\n{bob}")
    path.chmod(0o600)
    tokens = load_tokens(str(path), {})
    assert tokens is not None
    found = tokens.find(secret)
    assert found is not None
    assert (found.name, found.role, found.jobs) == ("anna", "operator", "team-a-")
    everything = tokens.find(other)
    assert everything is not None
    assert everything.covers(OTHER)
    assert tokens.find("") is None
    assert tokens.find("ü") is None


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    (anna, secret), (bob, other) = entry("anna"), entry("bob")
    path = tmp_path / "tokens.toml"
    path.write_text(anna)
    path.chmod(0o600)
    tokens = TokenFile(str(path))
    assert tokens.find(secret) is not None
    path.write_text(f"{bob}# {'x' * 10}")
    assert (tokens.find(secret) is None, tokens.find(other) is None) == (True, False)
    path.write_text("no tokens")
    assert tokens.find(other) is None, "an invalid file lets nobody in"
    path.write_text(bob)
    assert tokens.find(other) is not None
    path.chmod(0o644)
    assert tokens.find(other) is None, "others may have read and changed it"
    path.unlink()
    assert tokens.find(other) is None


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o622])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(entry("anna")[0])
    path.chmod(mode)
    with pytest.raises(DefinitionError, match=f"its mode is {mode:04o}.*Fix: chmod 600"):
        TokenFile(str(path))


SHA = "0" * 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no token in it"),
        ("tokens = 1", "tokens is not a table"),
        ("[tokens", "the tokens are not TOML"),
        (f'[tokens.anna]\nsha256 = "{SHA}"\n[tokens.anna]\nsha256 = "{SHA}"', "token 'anna' is in it twice"),
        (f'[tokens.anna]\nrole = "root"\nsha256 = "{SHA}"', "tokens.anna.role = 'root' is not one of viewer, operator, admin"),
        ('[tokens.anna]\nrole = "viewer"', "lacks 'sha256'"),
        ('[tokens.anna]\nsha256 = "abc"', "is not 64 hexadecimal digits"),
        (f'[tokens.anna]\nsha256 = "{SHA}"\nprefix = "a"', "has an unknown 'prefix'"),
        (f'[tokens.anna]\nsha256 = "{SHA}"\njobs = "../a"', "name '../a' is not allowed"),
        (f'[tokens."a b"]\nsha256 = "{SHA}"', "name 'a b' is not allowed"),
        ('[tokens.anna]\ntoken = "tmk_x"', "would contain a secret"),
        (f'[tokens.anna]\nsha256 = "{SHA}"\n[tokens.bob]\nsha256 = "{SHA}"', "are the same secret"),
    ],
)
def test_a_wrong_entry_is_named(text: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said.replace("'", ".")):
        parse_tokens(text, place="tokens.toml")


def test_the_environment_has_the_same_text(tmp_path: Path) -> None:
    made, secret = entry("anna")
    tokens = load_tokens(None, {TOKENS_VARIABLE: made})
    assert tokens is not None
    assert tokens.find(secret) is not None
    assert load_tokens(None, {}) is None
    with pytest.raises(DefinitionError, match="both a file of tokens and"):
        load_tokens(str(tmp_path / "tokens.toml"), {TOKENS_VARIABLE: made})
    with pytest.raises(DefinitionError, match="cannot be read"):
        load_tokens(str(tmp_path / "tokens.toml"), {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "jobs.example.com"])  # noqa: S104 - it is refused
def test_other_machines_are_not_served_without_tokens(served: Served, host: str) -> None:
    with pytest.raises(DefinitionError, match=r"can be reached from other machines.*Fix: give --token-file"):
        serve(served.service, host=host, port=0)


def test_headers_without_end_are_not_kept(served: Served) -> None:
    """They come before the token, so anybody could fill the memory of the server, which may be a supervisor."""
    server = serve(served.service, port=0, tokens=FixedTokens(()))
    server.start()
    try:
        with socket.create_connection(server.listening.getsockname(), timeout=30) as client:
            client.sendall(b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 80_000)
            assert client.recv(100).startswith(b"HTTP/1.1 400")
    finally:
        server.close()
