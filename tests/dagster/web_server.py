"""A real Dagster web server and daemon on loopback, and the questions a test asks them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from tidemark.clock import SYSTEM_CLOCK

CHECKOUT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def wait_for(what: str, ask: Callable[[], T | None], *, seconds: float = 120.0, log: Path | None = None) -> T:
    """Ask until there is an answer; fails after so many seconds, with the end of a log."""
    deadline = SYSTEM_CLOCK.monotonic() + seconds
    while SYSTEM_CLOCK.monotonic() < deadline:
        answer = ask()
        if answer is not None:
            return answer
        SYSTEM_CLOCK.sleep(0.1)
    tail = log.read_text(errors="replace")[-4000:] if log is not None and log.exists() else ""
    raise AssertionError(f"{what}: not within {seconds:.0f} seconds\n{tail}")


class WebServer:
    """A running web server with its daemon."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self.log = log

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Return the data of a GraphQL query; errors fail the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", data=body, headers={"Content-Type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
            found = json.loads(answer.read())
        assert "errors" not in found, found["errors"]
        data: dict[str, Any] = found["data"]
        return data

    def is_up(self) -> bool | None:
        """Say whether the server answers and has loaded the code location."""
        try:
            found = self.ask(
                "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError { __typename } } } } }"
            )
        except (urllib.error.URLError, OSError):
            return None
        entries = found["workspaceOrError"].get("locationEntries", [])
        loaded = [entry for entry in entries if entry["loadStatus"] == "LOADED"]
        failed = [entry for entry in loaded if entry["locationOrLoadError"]["__typename"] != "RepositoryLocation"]
        assert not failed, failed
        return True if loaded else None


def make_tables(home: Path) -> None:
    """Make the tables of a new instance: programs that start together would each make them, and one of them would fail."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_run_records(limit=1)
        instance.get_asset_keys()
        instance.all_instigator_state()


@contextmanager
def web_server(
    home: Path, workspace: Path, environment: Mapping[str, str], *, by_make: bool = False, daemon: bool = True
) -> Iterator[WebServer]:
    """Start a web server and a daemon on a new instance in a folder, and end them with all they started.

    Without ``daemon`` there is no daemon, so no sensor ticks.
    With ``by_make`` they are those of ``make ui``, where there is a make, which serves the checkout's own workspace.
    """
    home.mkdir(parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text((CHECKOUT / "examples/dagster.yaml").read_text())
    make_tables(home)
    env = {**os.environ, **environment, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
    port, log = _free_port(), home / "servers.log"
    programs: tuple[list[str], ...] = (
        [sys.executable, "-m", "dagster_webserver", "--host", "127.0.0.1", "--port", str(port), "--workspace", str(workspace)],
        [sys.executable, "-m", "dagster._daemon", "run", "--workspace", str(workspace)],
    )
    if by_make and shutil.which("make") is not None:
        made = [part for file in (".venv/.set-up", ".venv/.class-archive") for part in ("-o", file)]
        # A make above this one would have it say which folder it enters.
        env = {name: value for name, value in env.items() if name not in {"MAKELEVEL", "MAKEFLAGS", "MFLAGS"}}
        programs = (["make", *made, "ui", f"UI_PORT={port}", f"DAGSTER_HOME={home}"],)
    started: list[subprocess.Popen[bytes]] = []
    with log.open("wb") as out:
        try:
            started.extend(_start(program, env, out.fileno()) for program in programs[: None if daemon else 1])
            server = WebServer(f"http://127.0.0.1:{port}", log)
            wait_for("the web server's code location", server.is_up, log=log)
            yield server
        finally:
            for process in reversed(started):
                _end(process)


def _start(program: list[str], env: Mapping[str, str], out: int) -> subprocess.Popen[bytes]:
    # Each is a session of its own, so that its code servers and runs end with it. A shell's background ignores SIGINT.
    return subprocess.Popen(
        program,
        cwd=CHECKOUT,
        env=dict(env),
        stdout=out,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no thread holds a lock here
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    # As Ctrl-C does: what make started is to end, too.
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
