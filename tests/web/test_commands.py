"""``tidemark ui``, ``tidemark token`` and ``tidemark supervise --ui``, as processes that listen."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from tests.savepoints.stored_jobs import on_disk
from tidemark.cli.program.main import main
from tidemark.web.access.tokens import TOKENS_VARIABLE


@contextmanager
def running(*words: str, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a command that serves, and yield its address; it ends by SIGTERM without an error."""
    program = [sys.executable, "-c", "from tidemark.cli.program.main import main; main()", *words]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
    assert process.stderr is not None
    try:
        for line in process.stderr:
            found = re.search(r"jobs .*at (http://\S+/)$", line)
            if found:
                yield found[1]
                break
        else:
            raise AssertionError(f"it did not serve: exit code {process.wait()}")
    finally:
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=60)[1]
    assert process.returncode in {0, -signal.SIGTERM}, rest


def get(address: str, token: str = "") -> tuple[int, Any]:
    """Return status and JSON."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(address, headers=headers), timeout=30) as answer:  # noqa: S310 - of loopback
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture
def store(tmp_path: Path) -> str:
    job = on_disk(str(tmp_path))
    job.commit()
    return job.root.uri


def test_ui_serves_until_it_is_ended(store: str) -> None:
    with running("ui", "--store", store, "--port", "0") as address:
        assert address.startswith("http://127.0.0.1:")
        status, found = get(f"{address}api/v1/jobs")
        assert (status, [job["name"] for job in found["jobs"]]) == (200, ["taxi"])
        assert get(f"{address}openapi.json")[1]["openapi"] == "3.1.0"


def test_a_made_token_opens_the_api(store: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["token", "anna", "--role", "operator", "--jobs", "team-a-"])
    assert done.exit_code == 0
    secret = done.stderr.strip().rpartition(" ")[2]
    assert secret not in done.stdout
    with running("ui", "--store", store, "--port", "0", environment={TOKENS_VARIABLE: done.stdout}) as address:
        assert get(f"{address}api/v1/jobs")[0] == 401
        assert get(f"{address}api/v1/jobs", secret)[1]["jobs"] == []
        me = {"token": "anna", "role": "operator", "jobs": "team-a-"}
        assert get(f"{address}api/v1/me", secret) == (200, me)
    path = tmp_path / "tokens.toml"
    path.write_text(done.stdout)
    path.chmod(0o600)
    with running("supervise", "--store", store, "--ui", "0", "--token-file", str(path)) as address:
        assert get(f"{address}api/v1/jobs")[0] == 401
        assert get(f"{address}api/v1/me", secret)[1] == me


@pytest.mark.parametrize("command", [("ui", "--host", "0.0.0.0", "--port", "0"), ("supervise", "--once", "--ui", "0.0.0.0:0")])  # noqa: S104
def test_other_machines_are_not_served_without_tokens(store: str, command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*command, "--store", store], env={TOKENS_VARIABLE: ""})
    assert done.exit_code == 1
    assert "0.0.0.0 can be reached from other machines" in done.stderr
    assert "Fix: give --token-file" in done.stderr


def test_a_missing_store_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["ui", "--store", str(tmp_path / "nothing"), "--port", "0"])
    assert done.exit_code == 1
    assert "TM404" in done.stderr


def test_a_token_with_a_wrong_name_is_not_made() -> None:
    done = CliRunner().invoke(main, ["token", "an na"])
    assert done.exit_code == 1
    assert "name 'an na' is not allowed" in done.stderr
