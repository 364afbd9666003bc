"""What looks like a credential never gets into a message; what does not stays readable."""

from __future__ import annotations

import traceback

import pytest

from tidemark.errors import StoreError
from tidemark.state.encoding.redaction import redacted, without_secrets

SECRET = "hunter2"  # noqa: S105 - what must not be shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET https://a.blob.net/x?sv=1&sig=hunter2&se=1 failed", "GET https://a.blob.net/x?<hidden> failed"),
        ("cannot open jdbc:postgresql://h/db?user=u&password=hunter2", "cannot open jdbc:postgresql://h/db?<hidden>"),
        ("no such bucket in s3://key:hunter2@lake/x", "no such bucket in s3://<hidden>@lake/x"),
        ("jdbc:sqlserver://h;user=u;password=hunter2;x=y", "jdbc:sqlserver://h;user=u;password=<hidden>"),
        ('secret_access_key: "hunter2 hunter2", region', "secret_access_key: <hidden>, region"),
        ("options {'account_key': 'hunter2', 'a': 1}", "options {'account_key': <hidden>, 'a': 1}"),
        ("fs.s3a.secret.key=hunter2 fs.s3a.path=x", "fs.s3a.secret.key=<hidden> fs.s3a.path=x"),
        ("fs.s3a.access.key -> x, fs.s3a.access.key => hunter2", "fs.s3a.access.key -> x, fs.s3a.access.key => <hidden>"),
        ("Authorization: Bearer hunter2 refused", "Authorization: <hidden> refused"),
        ("authorization=Basic hunter2", "authorization=<hidden>"),
        ('PlainLoginModule required username="u" password="hunter2";', 'PlainLoginModule required username="u" password=<hidden>;'),
        ("AZURE_SAS_TOKEN = hunter2", "AZURE_SAS_TOKEN = <hidden>"),
        ("path /x, sig=hunter2", "path /x, sig=<hidden>"),
        ("key AKIAABCDEFGHIJKLMNOP refused", "key <hidden> refused"),
        ("redis://:hunter2@cache/0 is away", "redis://<hidden>@cache/0 is away"),
        ("postgres://ada:hunter2@x@h/db", "postgres://<hidden>@h/db"),
        ("clone git+https://hunter2@github.com/x", "clone git+https://<hidden>@github.com/x"),
        ("POST https://hooks.slack.com/services/T0/B0/hunter2: 404", "POST https://hooks.slack.com/services/<hidden> 404"),
        ("https://a.webhook.office.com/webhookb2/hunter2", "https://a.webhook.office.com/<hidden>"),
        ("DB_PASS=hunter2 DB_HOST=h", "DB_PASS=<hidden> DB_HOST=h"),
        ("MYSQL_PWD: hunter2, GITHUB_PAT: hunter2", "MYSQL_PWD: <hidden> GITHUB_PAT: <hidden>"),
        ("PASS=hunter2, pw = hunter2, 'pwd': 'hunter2'", "PASS=<hidden> pw = <hidden> 'pwd': <hidden>"),
        ("java -Dpw=hunter2 -Dx=y", "java -Dpw=<hidden> -Dx=y"),
        ("ENCRYPTION_KEY=hunter2 signingKey=hunter2", "ENCRYPTION_KEY=<hidden> signingKey=<hidden>"),
        ("user = ada\npassword = hunter2 hunter2\nx = y", "user = ada\npassword = <hidden>\nx = y"),
        ("password = hunter2 hunter2 host = h", "password = <hidden> host = h"),
        ("password='p\\'hunter2', x", "password=<hidden>, x"),
        (r"{\"password\": \"p hunter2\", \"x\": 1}", r"{\"password\": <hidden>, \"x\": 1}"),
        ("Authorization: token hunter2 refused", "Authorization: <hidden> refused"),
        ("bot xoxb-123-456-hunter2 left", "bot <hidden> left"),
        ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nx", "<hidden>\nx"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.hunter2 refused", "jwt <hidden> refused"),
    ],
)
def test_credentials_are_taken_out(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert SECRET not in redacted(text)
    assert redacted(shown) == shown, "what was redacted before it was stored, and is again when it is shown"


@pytest.mark.parametrize(
    "text",
    [
        "[CAST_INVALID_INPUT] The value 'a' of the type STRING cannot be cast to INT: use try_cast",
        "s3://lake/warehouse/hourly: permission denied (403)",
        "abfss://box@acme.dfs.core.windows.net/x does not exist",
        "did you mean: tokens? (at /x/job.py:7)",
        "Kansas: 3, disaster = 4, design: 5",
        "is it there? Fix: look",
        "second pass: 3 rows, bypass = yes, compass=4, pattern: *.py",
        "see https://docs.example/a@b and ssh://git@host/x",
        "Traceback: the key: 7 is not in the table",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert redacted(text) == text


def raised(error: Exception, cause: BaseException | None) -> str:
    """Return what a reader of the log sees of an error with a cause."""
    try:
        raise error from cause
    except type(error) as caught:
        return "".join(traceback.format_exception(caught))


def test_a_cause_without_secrets_is_kept_and_one_with_them_is_not() -> None:
    plain, leaking = OSError("disk full"), OSError("PUT https://x/y?sig=hunter2")
    assert without_secrets(plain) is plain
    shown = raised(StoreError("x", fix="y"), without_secrets(leaking))
    assert "OSError: PUT https://x/y?<hidden>" in shown
    assert SECRET not in shown


def test_a_cause_of_the_cause_leaks_nothing_either() -> None:
    outer = OSError("cannot write")
    outer.__cause__ = OSError("password=hunter2")
    shown = raised(StoreError("x", fix="y"), without_secrets(outer))
    assert "cannot write" in shown
    assert SECRET not in shown


@pytest.mark.parametrize("text", ["x" * 10**5, "a." * 10**5, "token" * 10**5, "://" + "a:" * 10**5, "s3://" + "?" * 10**5, " x.y" * 10**5])
def test_long_values_in_the_text_of_an_error_take_no_time(text: str) -> None:
    # With a step for each pair of characters this would take minutes, and the job would hang with it.
    assert redacted(text)
