from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidemark.cli.program.main import main
from tidemark.control.alerts.engine.alert_silences import Silence, add_silence, read_silences
from tidemark.state.store.store import JobStore


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path)


def tidemark(*arguments: str, store: str) -> Result:
    return CliRunner().invoke(main, ["silence", *arguments, "--store", store])


def test_a_silence_is_made_seen_and_ended(store: str) -> None:
    made = tidemark("add", "move", "--for", "2 hours", "--jobs", "taxi*", "--rule", "lag", "--by", "ada", "--why", "it moves", store=store)
    assert made.exit_code == 0
    assert made.output.startswith("move: lag of taxi* until 2")
    assert made.output.endswith("Z, by ada: it moves\n")
    assert tidemark("list", store=store).output == made.output
    (line,) = tidemark("list", "--json", store=store).output.splitlines()
    found = json.loads(line)
    assert (found["name"], found["jobs"], found["rule"], found["until"] - found["at"]) == ("move", "taxi*", "lag", 7_200_000)
    assert tidemark("end", "move", store=store).output == "move: ended\n"
    assert tidemark("list", store=store).output == ""


def test_the_name_of_a_silence_that_is_over_is_free(store: str) -> None:
    root = JobStore.open(store)
    add_silence(root, Silence("night", until=2, at=1))
    assert tidemark("add", "night", "--for", "1 hour", store=store).exit_code == 0
    assert [silence.name for silence in read_silences(root, 3)] == ["night"]
    again = tidemark("add", "night", "--for", "1 hour", store=store)
    assert "there is a silence 'night' already" in again.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "move"), "Missing option '--for'"),
        (("add", "move", "--for", "soon"), "is not a duration"),
        (("add", "move", "--for", "0 s"), "ends before it begins"),
        (("add", "../x", "--for", "1 hour"), "silence name '../x' is not allowed"),
        (("add", "move", "--for", "1 hour", "--rule", "lags"), "'lags' is not one of 'lag'"),
        (("end", "gone"), "there is no silence 'gone'"),
    ],
)
def test_what_is_wrong_is_said(store: str, arguments: tuple[str, ...], said: str) -> None:
    result = tidemark(*arguments, store=store)
    assert result.exit_code != 0
    assert said in result.output
    assert list(Path(store).iterdir()) == []
