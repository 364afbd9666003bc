"""Receivers for real, on loopback: HTTP, SMTP with encryption and log-in, Slack's client, the log."""

from __future__ import annotations

import json
import logging
import shutil
from email import message_from_string
from pathlib import Path

import pytest

from tests.control.alert_cases import HOUR, T0, job_view
from tests.control.smtp_server import PASSWORD, USER, Certificate, Inbox, make_certificate, smtp_server
from tests.http_server import free_port, http_server
from tidemark.control.alerts.delivery.alert_config import parse_alert_config
from tidemark.control.alerts.delivery.delivery import LogDelivery
from tidemark.control.alerts.delivery.delivery_email import EmailDelivery
from tidemark.control.alerts.delivery.delivery_slack import SlackDelivery
from tidemark.control.alerts.delivery.delivery_webhook import WebhookDelivery
from tidemark.control.alerts.engine.alert_evaluator import AlertWatch
from tidemark.control.alerts.model.alert import Alert
from tidemark.errors import AlertError
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

ALERT = Alert("error", "taxi: watermark of trips is behind", "source 'trips' is 26m behind", "taxi", {"lag_ms": 1_560_000})
MAIL = {"host": "127.0.0.1", "sender": "tidemark@example.com", "recipients": ("ops@example.com", "ada@example.com")}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def mail(port: int, **more: object) -> EmailDelivery:
    return EmailDelivery(**{**MAIL, "port": port, "timeout_seconds": 5.0, **more})  # type: ignore[arg-type]


def test_a_mail_goes_encrypted_and_after_a_login(certificate: Certificate) -> None:
    inbox = Inbox()
    with smtp_server(inbox, certificate) as port:
        mail(port, username=USER, password=PASSWORD, trust=certificate.file).send(ALERT)
    ((recipients, text),) = inbox.mails
    assert inbox.encrypted == [True]
    assert recipients == ["ops@example.com", "ada@example.com"]
    message = message_from_string(text)
    assert message["Subject"] == "[error] taxi: watermark of trips is behind"
    assert message["To"] == "ops@example.com, ada@example.com"
    body = message.get_payload()
    assert isinstance(body, str)
    assert "source 'trips' is 26m behind" in body
    assert '"lag_ms": 1560000' in body


def test_a_mail_server_that_is_not_trusted_gets_no_password(certificate: Certificate) -> None:
    inbox = Inbox()
    with smtp_server(inbox, certificate) as port, pytest.raises(AlertError, match="certificate verify failed") as raised:
        mail(port, username=USER, password=PASSWORD).send(ALERT)
    assert PASSWORD not in str(raised.value)
    assert inbox.mails == []


def test_a_wrong_password_is_an_error_that_does_not_show_it(certificate: Certificate) -> None:
    with smtp_server(Inbox(), certificate) as port, pytest.raises(AlertError, match="responds 535") as raised:
        mail(port, username=USER, password="wrong-w0rd", trust=certificate.file).send(ALERT)  # noqa: S106 - it opens nothing
    assert "wrong-w0rd" not in str(raised.value)
    assert "wrong-w0rd" not in repr(mail(port, password="wrong-w0rd"))  # noqa: S106 - as above


def test_a_server_without_encryption_takes_no_encrypted_mail() -> None:
    inbox = Inbox()
    with smtp_server(inbox) as port:
        with pytest.raises(AlertError, match="STARTTLS"):
            mail(port).send(ALERT)
        mail(port, security="none").send(ALERT)
    assert len(inbox.mails) == 1


@pytest.mark.parametrize("refuse", [{"ada@example.com"}, {"ada@example.com", "ops@example.com"}])
def test_a_refused_address_is_an_error(refuse: set[str]) -> None:
    with smtp_server(Inbox(frozenset(refuse))) as port, pytest.raises(AlertError, match=r"rejects .*ada@example\.com"):
        mail(port, security="none").send(ALERT)


def test_a_server_that_is_busy_is_tried_again_and_nothing_is_lost(tmp_path: Path) -> None:
    inbox, clock = Inbox(away=True), ManualClock(T0)
    root = JobStore.open(str(tmp_path))
    with smtp_server(inbox) as port:
        text = f"""
            [group]
            wait = "0 s"
            [rules.lag]
            for = "0 s"
            [receivers.mail]
            kind = "email"
            host = "127.0.0.1"
            port = {port}
            security = "none"
            sender = "tidemark@example.com"
            recipients = ["ops@example.com"]
        """
        config = parse_alert_config(text, place="alerts.toml", environment={})
        watching = AlertWatch(root, settings=config.settings, receivers=config.receivers, holder="one", clock=clock)
        assert watching.evaluate([job_view(lag_ms=HOUR)]).pending == {"mail": 1}
        inbox.away = False
        assert watching.evaluate([job_view(lag_ms=HOUR)]).pending == {"mail": 1}, "it is left alone for two seconds"
        clock.advance(2_000)
        assert watching.evaluate([job_view(lag_ms=HOUR)]).pending == {"mail": 0}
    ((_, mailed),) = inbox.mails
    assert "Subject: [error] taxi: watermark of trips is behind" in mailed
    assert (watching.counts["mail"].sent, watching.counts["mail"].failed) == (1, 1)


def test_a_webhook_gets_the_whole_story_as_json_and_the_store_no_secret(tmp_path: Path) -> None:
    secret, root = "s3cr3t-t0k3n", JobStore.open(str(tmp_path))
    text = """
        [rules.lag]
        for = "0 s"
        [group]
        wait = "0 s"
        [receivers.hook]
        kind = "webhook"
        url_env = "HOOK"
        headers_env = { Authorization = "HOOK_TOKEN" }
    """
    clock = ManualClock(T0)
    with http_server() as (url, seen):
        environment = {"HOOK": f"{url}/{secret}", "HOOK_TOKEN": f"Bearer {secret}"}
        config = parse_alert_config(text, place="alerts.toml", environment=environment)
        AlertWatch(root, settings=config.settings, receivers=config.receivers, holder="one", clock=clock).evaluate([job_view(lag_ms=HOUR)])
    ((path, headers, body),) = seen
    assert (path, headers["Authorization"]) == (f"/{secret}", f"Bearer {secret}")
    told = json.loads(body)
    assert (told["level"], told["job"]) == ("error", "taxi")
    (change,) = told["facts"]["changes"]
    assert {key: change[key] for key in ("rule", "subject", "kind", "before", "now")} == {
        "rule": "lag", "subject": "trips", "kind": "fired", "before": "ok", "now": "error",
    }  # fmt: skip
    assert change["facts"]["lag_ms"] == HOUR
    assert all(secret.encode() not in root.get(file.path) for file in root.list())
    assert secret not in repr(config)


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999999/x", "file:///etc/passwd", "", "https://"])
def test_an_address_that_is_none_is_an_error(url: str) -> None:
    with pytest.raises(AlertError, match="not an http or https address"):
        WebhookDelivery(url).send(ALERT)


def test_a_webhook_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AlertError, match="cannot be reached"):
        WebhookDelivery(f"http://127.0.0.1:{free_port()}/s3cr3t").send(ALERT)


def test_slack_gets_the_message() -> None:
    with http_server(answer=b'{"ok": true}') as (url, seen):
        SlackDelivery("s3cr3t-t0k3n", channel="#streams", base_url=f"{url}/api/").send(ALERT)
    ((path, headers, body),) = seen
    assert path == "/api/chat.postMessage"
    assert headers["Authorization"] == "Bearer s3cr3t-t0k3n"
    assert b"26m" in body


def test_slack_that_refuses_is_an_error_without_the_token() -> None:
    with http_server(answer=b'{"ok": false, "error": "channel_not_found"}') as (url, _), pytest.raises(AlertError) as raised:
        SlackDelivery("s3cr3t-t0k3n", channel="#streams", base_url=f"{url}/api/").send(ALERT)
    assert "channel_not_found" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_the_log_has_the_level_of_the_alert(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        LogDelivery().send(ALERT)
        LogDelivery().send(Alert("resolved", "over", "all is well", "taxi"))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "taxi: watermark of trips is behind: source 'trips' is 26m behind"),
        (logging.INFO, "over: all is well"),
    ]
