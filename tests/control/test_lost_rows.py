"""A submitted job whose table lost epochs, by the commands and in drivers' own processes: refused, published again, accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from tests.control.drivers import Landing
from tests.few_rows import FEW_ROWS
from tests.seeds import only_long
from tidemark.cli.program.main import main
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.launch.local_launcher import LocalLauncher
from tidemark.control.observed.observe import observe

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def landing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Landing]:
    monkeypatch.chdir(tmp_path)
    made = Landing(tmp_path, LocalLauncher(tmp_path / "logs"))
    made.land(6)
    yield made
    launchers = launchers_here()
    seen = observe(made.store, "landing", launchers)
    if seen.handle is not None:
        launchers["local"].kill(seen.handle)


def tell(landing: Landing, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, [*arguments, "--store", landing.store.uri], terminal_width=200)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def submit(landing: Landing, *arguments: str) -> None:
    conf = [text for key, value in FEW_ROWS.items() for text in ("--conf", f"{key}={value}")]
    given = ["--trigger", "300 ms", "--parallelism", "2", "--master", "local[2]", "--code-path", str(landing.root / "code"), *conf]
    tell(landing, "submit", "landing_job:job", "--name", "landing", *given, "--env", f"LANDING_ROOT={landing.root}", *arguments)


def read_all(landing: Landing) -> None:
    """Wait until the driver has read what landed, and stop it."""
    handle = observe(landing.store, "landing", launchers_here()).handle
    assert handle is not None
    landing.wait_for_rows(handle)
    tell(landing, "stop", "landing")


@only_long
def test_the_commands_say_what_is_done_about_missing_epochs(landing: Landing) -> None:
    submit(landing)
    read_all(landing)
    whole = landing.table()
    assert len(whole) == 10, "two keys in each of five minutes"
    table = str(landing.root / "minutes")
    newest = DeltaTable(table).version()
    DeltaTable(table).restore(newest - 1)
    refused = tell(landing, "start", "landing", code=3)
    assert "[TM302] output 'minutes' was published up to epoch" in refused
    assert len(landing.table()) < len(whole)
    tell(landing, "start", "landing", "--missing-epochs", "republish")
    tell(landing, "stop", "landing")
    assert landing.table() == whole
    assert "epochs published again" in tell(landing, "status", "landing")
    DeltaTable(table).restore(newest - 1)
    kept = landing.table()
    assert len(kept) < len(whole)
    tell(landing, "start", "landing", code=3)
    submit(landing, "--missing-epochs", "accept")
    landing.land(2)
    read_all(landing)
    assert "gap accepted" in tell(landing, "status", "landing")
    assert len(landing.table()) == len(kept) + 4
