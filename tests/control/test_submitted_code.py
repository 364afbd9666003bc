"""``tidemark submit`` looks at a job's code as the driver will have it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidemark.cli.program.main import main
from tidemark.control.desired.spec_store import read_spec
from tidemark.state.store.store import JobStore

JOB = """
    import os
    import tidemark as tm

    events = tm.source("events", tm.files("landing", format="json", schema="k INT, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))
    job = tm.Job(os.environ["RIDES"], store=os.environ.get("RIDES_STORE"), outputs={"all": tm.delta(events, "lake/rides")})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the job's code, which is not the working directory."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "riding.py").write_text(textwrap.dedent(JOB))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("RIDES", "RIDES_STORE", "TIDEMARK_STORE"):
        # What the command sets is taken back, too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield tmp_path / "code"
    sys.modules.pop("riding", None)


def submit(*options: str) -> Result:
    return CliRunner().invoke(main, ["submit", "riding:job", "--suspended", *options])


@pytest.mark.parametrize("option", ["--code-path", "--folder"])
def test_its_variables_and_places_are_there(folder: Path, tmp_path: Path, option: str) -> None:
    done = submit("--env", "RIDES=cabs", option, str(folder), "--store", str(tmp_path / "jobs"))
    assert done.exit_code == 0, done.output
    assert read_spec(JobStore.open(str(tmp_path / "jobs")), "cabs") is not None


def test_without_them_it_says_what_is_missing(folder: Path) -> None:
    assert "KeyError: 'RIDES'" in submit("--code-path", str(folder)).output
    sys.path.remove(str(folder))
    assert "cannot be imported" in submit("--env", "RIDES=cabs").output


def test_the_store_that_a_job_names_goes_before_the_environments(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_STORE", str(tmp_path / "other"))
    done = submit("--env", "RIDES=cabs", "--env", f"RIDES_STORE={tmp_path / 'own'}", "--code-path", str(folder))
    assert done.exit_code == 0, done.output
    assert read_spec(JobStore.open(str(tmp_path / "own")), "cabs") is not None
    assert not (tmp_path / "other").exists()
