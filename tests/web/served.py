"""A server for tests: jobs of a store in memory, drivers without processes, a token for each role, and a client for each token."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from httpx2 import Response
from starlette.testclient import TestClient

from tests.control.worlds import FakeLauncher, World
from tests.savepoints.stored_jobs import StoredJob
from tests.upgrade.upgrade_worlds import fits
from tidemark.testing.manual_clock import ManualClock
from tidemark.web.access.tokens import FixedTokens, Token, new_token
from tidemark.web.api.service import Service
from tidemark.web.server.app import build_app

FARES = "team-a-fares"
"""A submitted job; it runs."""

TAXI = "team-a-taxi"
"""A job that was never submitted, with epochs and a savepoint ``before``."""

OTHER = "team-b-rides"
"""A submitted job of another team."""

ORIGIN = "http://localhost:8787"

NAMES = ("jobs.example.com", "testserver")
"""Names of the server besides localhost; the second is that of the requests that are generated."""


class Server:
    """The API of a world's store, a secret for each token, and a client for each of these."""

    def __init__(self, world: World, *, with_tokens: bool = True) -> None:
        self.world = world
        self.secrets: dict[str, str] = {}
        made = tuple(self._token(*row) for row in TOKENS)
        self.service = Service(world.store, {"local": FakeLauncher(world, "host-a")}, world.clock, fits)
        self.app = build_app(self.service, tokens=FixedTokens(made) if with_tokens else None, host_names=NAMES)

    def client(self, name: str | None = "admin", headers: Mapping[str, str] | None = None) -> TestClient:
        """Return a client with a token's name, None for one without a token."""
        sent = {"Authorization": f"Bearer {self.secrets[name]}"} if name is not None else {}
        return TestClient(self.app, base_url=ORIGIN, headers={**sent, **(headers or {})}, raise_server_exceptions=False)

    def post(self, path: str, body: object = None, *, by: str = "admin") -> Response:
        """Send a change below the address of the jobs."""
        return self.client(by).post(f"/api/v1/jobs/{path}", json={} if body is None else body)

    def ended(self, accepted: Response) -> dict[str, Any]:
        """Return the operation that a change began, once it has ended."""
        assert accepted.status_code == 202, accepted.text
        begun = accepted.json()
        assert accepted.headers["location"] == begun["watch"]
        for thread in threading.enumerate():
            if thread.name == f"tidemark-{begun['action']}-{begun['job']}":
                thread.join(60)
        found: dict[str, Any] = self.client().get(begun["watch"]).json()
        assert found["state"] != "running", found
        return found

    def changes(self, job: str) -> list[tuple[str, str, str]]:
        """Return kind, author and text of a job's history."""
        found = self.client().get(f"/api/v1/jobs/{job}/changes?limit=1000").json()["changes"]
        return [(change["kind"], change["by"], change["what"]) for change in found]

    def _token(self, name: str, role: Any, jobs: str) -> Token:
        token, self.secrets[name] = new_token(name, role, jobs)
        return token


class _WorkingClock(ManualClock):
    """Lets the drivers do what is due whenever an operation waits, one operation at a time."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock.now_ms())
        self._world = world
        self._turn = threading.Lock()

    def sleep(self, seconds: float) -> None:
        with self._turn:
            self._world.tick(max(1, int(seconds)))


class Served(Server):
    """The API of a store with three jobs; with ``works`` their drivers do what an operation waits for."""

    def __init__(self, *, with_tokens: bool = True, works: bool = False) -> None:
        world = World()
        if works:
            world.clock = _WorkingClock(world)
        for job in (FARES, OTHER):
            world.submit(job)
        world.run(world.reconciler(), 30)
        self.stored = StoredJob(world.store, TAXI, world.clock)
        for _ in range(3):
            self.stored.commit()
        self.stored.savepoints.take("before", by="ada")
        super().__init__(world, with_tokens=with_tokens)


TOKENS = (
    ("viewer", "viewer", ""),
    ("operator", "operator", ""),
    ("admin", "admin", ""),
    ("a-viewer", "viewer", "team-a-"),
    ("a-admin", "admin", "team-a-"),
)
