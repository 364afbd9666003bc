"""A server for tests: jobs of a store in memory, drivers without processes, a token for each role, and a client for each token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

from tests.control.worlds import FakeLauncher, World
from tests.savepoints.stored_jobs import StoredJob
from tidemark.savepoints.model.verdict import Verdict
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


def fits(*_: object) -> Verdict:
    """Return that code fits the stored state, without importing it."""
    return Verdict("taxi", "a1", 0, (), ())


@dataclass
class Served:
    """The server, and what it works on."""

    world: World = field(default_factory=World)
    with_tokens: bool = True
    secrets: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for job in (FARES, OTHER):
            self.world.submit(job)
        self.world.run(self.world.reconciler(), 30)
        self.stored = StoredJob(self.world.store, TAXI, self.world.clock)
        for _ in range(3):
            self.stored.commit()
        self.stored.savepoints.take("before", by="ada")
        made = [self._token(*row) for row in TOKENS]
        self.service = Service(self.world.store, {"local": FakeLauncher(self.world, "host-a")}, self.world.clock, fits)
        tokens = FixedTokens(tuple(made)) if self.with_tokens else None
        self.app = build_app(self.service, tokens=tokens, host_names=("jobs.example.com",))

    def client(self, name: str | None = "admin", headers: Mapping[str, str] | None = None) -> TestClient:
        """Return a client with a token's name, None for one without a token."""
        sent = {"Authorization": f"Bearer {self.secrets[name]}"} if name is not None else {}
        return TestClient(self.app, base_url=ORIGIN, headers={**sent, **(headers or {})}, raise_server_exceptions=False)

    def changes(self, job: str) -> list[dict[str, Any]]:
        """Return the history of a job's changes, as the API has it."""
        found: list[dict[str, Any]] = self.client().get(f"/api/v1/jobs/{job}/changes").json()["changes"]
        return found

    def _token(self, name: str, role: Any, jobs: str) -> Token:
        token, self.secrets[name] = new_token(name, role, jobs)
        return token


TOKENS = (
    ("viewer", "viewer", ""),
    ("operator", "operator", ""),
    ("admin", "admin", ""),
    ("a-viewer", "viewer", "team-a-"),
    ("a-admin", "admin", "team-a-"),
)
