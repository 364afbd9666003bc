"""A secret in a text that is kept: whichever command is given it refuses, shows nothing of it, and has changed nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli.program.main import main
from tidemark.control.client.wishes import Wishes
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_records import UpgradeCheck, read_upgrade_checks, report_upgrade_check
from tidemark.errors import DefinitionError
from tidemark.graph.job.job import Job
from tidemark.spark.loop.run import run
from tidemark.state.encoding.free_text import require_no_secret
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OwnerInfo
from tidemark.state.store.store import JobStore

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"  # noqa: S105 - what must not be shown
WHY = ("--why", f"the new key is api_key={TOKEN}")


@pytest.fixture
def root(tmp_path: Path) -> JobStore:
    """A store with a suspended job that has an epoch."""
    store = JobStore.open(str(tmp_path / "store"))
    Wishes(store, "ada").submit(JobSpec("fares", "fares:job", wanted="suspended"))
    term = JobLog(store.at("fares"), "fares").acquire(OwnerInfo("host-a", 7, "birth", "by hand"))
    progress = EpochProgress("fares", "a1", 0, 1_000, 1, 1, 1)
    term.append(EpochRecord("fares", "a1", None, term.term, 0, 1_000, "0", progress))
    term.release()
    return store


@pytest.mark.parametrize(
    "command",
    [
        ("submit", "fares:job", "--name", "fares", "--suspended", *WHY),
        ("submit", "fares:job", "--name", "fares", "--suspended", "--version", f"v1 token={TOKEN}"),
        ("start", "fares", "--no-wait", *WHY),
        ("stop", "fares", "--no-wait", *WHY),
        ("cancel", "fares", "--no-wait", *WHY),
        ("restart", "fares", "--no-wait", *WHY),
        ("suspend", "fares", *WHY),
        ("resume", "fares", *WHY),
        ("resume", "fares", "--by", f"https://ada:{TOKEN}@host"),
        ("rescale", "fares", "4", "--no-wait", *WHY),
        ("rewind", "fares", "--to", "before", *WHY),
        ("upgrade", "fares", "--to", "other:job", *WHY),
        ("upgrade", "fares", "--abort", *WHY),
        ("upgrade", "fares", "--accept", *WHY),
        ("savepoint", "trigger", "fares", "--name", TOKEN),
        ("savepoint", "trigger", "fares", "--note", f"password={TOKEN}"),
        ("savepoint", "trigger", "fares", "--label", f"password={TOKEN}"),
        ("savepoint", "trigger", "fares", "--label", f"ticket={TOKEN}"),
        ("savepoint", "trigger", "fares", "--by", TOKEN),
        ("savepoint", "import", "fares", "nowhere", "--name", TOKEN),
        ("stop", "fares", "--savepoint", TOKEN),
        ("silence", "add", "planned", "--for", "1 hour", *WHY),
        ("silence", "add", TOKEN, "--for", "1 hour"),
    ],
    ids=lambda command: " ".join(word for word in command if TOKEN not in word),
)
def test_no_command_keeps_a_secret(command: tuple[str, ...], root: JobStore) -> None:
    before = [file.path for file in root.list()]
    done = CliRunner().invoke(main, [*command, "--store", root.uri], terminal_width=200)
    # Commands that answer by their exit code have another one for an error.
    assert done.exit_code in {1, 2}, (done.output, done.exception)
    assert " secret, and " in done.stderr
    assert "Fix: " in done.stderr
    assert TOKEN not in done.output
    assert [file.path for file in root.list()] == before
    assert all(TOKEN.encode() not in root.get(file.path) for file in root.list())


def test_a_plain_text_is_taken() -> None:
    require_no_secret("fares", why="the lake is moved (ticket 4711); see https://wiki.example/moves", by="ada@host", note="")


def test_a_run_s_name_is_looked_at_before_spark_starts(tmp_path: Path) -> None:
    # Of the job nothing but its name is looked at by then.
    job = object.__new__(Job)
    object.__setattr__(job, "name", "fares")
    with pytest.raises(DefinitionError, match="the text of run_id looks as if it holds a secret"):
        run(job, store=str(tmp_path), run_id=TOKEN)


def test_what_a_check_quotes_is_kept_without_credentials(root: JobStore) -> None:
    """A program's text is not refused: its verdict would be lost with it."""
    report_upgrade_check(root, "fares", UpgradeCheck("upgrade-1", "rows", passed=False, at=1, text=f"password={TOKEN} was refused"))
    (check,) = read_upgrade_checks(root, "fares", "upgrade-1")
    assert (check.passed, check.text) == (False, "password=<hidden>")
