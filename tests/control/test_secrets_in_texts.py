"""A secret in a text that is kept: whichever command is given it refuses, shows nothing of it, and has changed nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
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
    JobClient(store, "ada").submit(JobSpec("fares", "fares:job", wanted="suspended"))
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
        ("upgrade", "fares", "--code", "other:job", *WHY),
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ada@host",
        "the lake is moved (ticket 4711); see https://wiki.example/moves",
        "see https://jira.example/browse/ABC-1?focused=5",
        "see https://jira.example/browse/ABC-1?focusedId=5&page=com.atlassian.jira:comment-tabpanel#comment-5, and ask ada",
        "(https://wiki.example/pages/view?pageId=123456789)",
        "https://github.example/lake/jobs/pull/7/files?diff=split&w=1",
        "https://grafana.example/d/abc/rides?orgId=1&from=now-6h&to=now",
        "https://jira.example/issues?projectKey=ABC&author=ada&zipcode=5",
        "token: renewed by ops",
        "key of the store: renewed by ops",
        "credentials: ada has them",
        "2026-11-24T15:00:00Z: the tokens were renewed",
        "Token: Renewed by ops, see ABC-123",
        "secrets: the vault's entry is new",
        "the password: asked for it, and got none",
        "signing key: rotated on monday",
    ],
)
def test_a_plain_text_is_taken(text: str) -> None:
    require_no_secret("fares", why=text)


@pytest.mark.parametrize(
    "text",
    [
        f"see https://ada:{TOKEN}@wiki.example/moves",
        "see https://ada:hunter2@jira.example/browse/ABC-1?focused=5",
        "see https://0a1b2c3d4e@jira.example/browse/ABC-1?focused=5",
        "https://box.blob.example/lake/t?sv=2024&sig=abc%3D",
        "https://lake.example/t?focused=5&access_token=abc",
        "https://lake.example/t?focused=5;%74oken=abc",
        "https://lake.example/t?focused=5#id_token=abc",
        "https://lake.example/t?X-Amz-Algorithm=a&X-Amz-Expires=7",
        "https://lake.example/t?apikey=abc",
        "https://lake.example/t?key=abc",
        "https://sign-in.example/back?code=abc&state=1",
        "https://lake.example/t?0a1b2c3d4e5f6a7b",
        f"https://lake.example/t?focused={TOKEN}",
        "https://lake.example/t?to=https%3A%2F%2Fada%3Ahunter2%40host%2Fx",
        "https://hooks.slack.com/services/T0/B0/abc?focused=5",
        "password=hunter2",
        "password = swordfish",
        "password: hunter2",
        "password: swordfish",
        "password: hunter2 as ever",
        "password: swordfish for ada",
        "passphrase: correct horse battery staple",
        "https://lake.example/t?auth=abc",
        "https://lake.example/t?api_key=abc",
        "password: correct h0rse",
        "token: is 16C7e42F292c6912E7710c838347Ae178B4a",
        "token: the new one is 16C7e42F292c6912E7710c838347Ae178B4a",
        "authorization: Bearer abcdef",
        "Authorization: Basic dXNlcjpwYXNz and more",
        "token: token abcdef is it",
        "fs.s3a.secret.key: abc/def+ghi",
        '{"password": "correct horse"}',
        "token: renewed by password=hunter2",
        "secret: key token: abcdef",
        TOKEN,
    ],
)
def test_a_text_that_holds_a_credential_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="the text of why looks as if it holds a secret") as caught:
        require_no_secret("fares", why=text)
    assert text not in str(caught.value)


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
