from __future__ import annotations

import json
import logging
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import parse_qs

import dagster as dg
import pytest

from tests.http_server import free_port, http_server
from tidemark.errors import AlertError
from tidemark.resources import Alert, EmailAlert, LogAlert, SlackAlert, WebhookAlert

pytestmark = pytest.mark.dagster

ALERT = Alert("error", "Watermark of cabs / trips is behind", "source 'trips' is 26m behind", "cabs", {"lag_ms": 1_560_000})
SECRET = "s3cr3t-t0k3n"  # noqa: S105 - what must not be shown


class MailBox(socketserver.StreamRequestHandler):
    """As much of SMTP as one mail needs."""

    refuse: ClassVar[str] = ""
    mails: ClassVar[list[tuple[list[str], str]]] = []

    def handle(self) -> None:
        recipients: list[str] = []
        self.say("220 loopback")
        for line in iter(self.rfile.readline, b""):
            verb = line.decode().strip()
            if verb.upper().startswith(("EHLO", "HELO")):
                self.say("250 loopback")
            elif verb.upper().startswith("RCPT"):
                refused = bool(self.refuse) and self.refuse in verb
                self.say("550 no such user" if refused else "250 ok")
                if not refused:
                    recipients.append(verb.partition("<")[2].rstrip(">"))
            elif verb.upper() == "DATA":
                self.say("354 go on")
                lines = [text.decode() for text in iter(self.rfile.readline, b".\r\n")]
                type(self).mails.append((recipients, "".join(lines)))
                self.say("250 taken")
            elif verb.upper() == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 ok")

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_server(refuse: str = "") -> Iterator[tuple[int, list[tuple[list[str], str]]]]:
    class Here(MailBox):
        mails: ClassVar[list[tuple[list[str], str]]] = []

    Here.refuse = refuse
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Here) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1], Here.mails
        finally:
            server.shutdown()
            thread.join()


def test_a_webhook_gets_the_alert_as_json() -> None:
    with http_server() as (url, seen):
        WebhookAlert(url=f"{url}/hook", headers={"X-Token": SECRET}).send(ALERT)
    ((path, headers, body),) = seen
    assert path == "/hook"
    assert headers["X-Token"] == SECRET
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == ALERT.as_json()


def test_a_webhook_that_refuses_is_an_error_without_secrets() -> None:
    with http_server(503) as (url, _), pytest.raises(AlertError) as raised:
        WebhookAlert(url=f"{url}/{SECRET}", headers={"Authorization": SECRET}).send(ALERT)
    text = str(raised.value)
    assert "responded 503" in text
    assert "127.0.0.1" in text
    assert "Fix: " in text
    assert "'cabs'" in text
    assert SECRET not in text


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_webhook_that_leads_elsewhere_has_not_taken_the_alert(status: int) -> None:
    with http_server() as (elsewhere, strayed), http_server(status, location=f"{elsewhere}/{SECRET}") as (url, seen):
        with pytest.raises(AlertError, match=f"responded {status} .*redirect") as raised:
            WebhookAlert(url=url, headers={"Authorization": SECRET}).send(ALERT)
        assert len(seen) == 1
        assert not strayed
    assert SECRET not in str(raised.value)


def test_a_webhook_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AlertError, match="cannot be reached") as raised:
        WebhookAlert(url=f"http://127.0.0.1:{free_port()}/{SECRET}").send(ALERT)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "nonsense", ""])
def test_a_webhook_goes_over_http_only(url: str) -> None:
    with pytest.raises(AlertError, match="not an http or https address"):
        WebhookAlert(url=url).send(ALERT)


def test_a_header_that_cannot_be_sent_is_not_shown() -> None:
    with http_server() as (url, _), pytest.raises(AlertError) as raised:
        WebhookAlert(url=url, headers={"Authorization": f"{SECRET}\nInjected: 1"}).send(ALERT)
    assert SECRET not in str(raised.value)


def test_a_secret_comes_from_the_environment_and_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server() as (url, seen):
        monkeypatch.setenv("TIDEMARK_TEST_URL", f"{url}/{SECRET}")
        resource = WebhookAlert(url=dg.EnvVar("TIDEMARK_TEST_URL"))
        assert SECRET not in repr(resource)

        @dg.op
        def alert(alerts: dg.ResourceParam[Any]) -> None:
            alerts.send(ALERT)

        @dg.job(resource_defs={"alerts": resource})
        def alerting() -> None:
            alert()

        assert alerting.execute_in_process().success
    assert seen[0][0] == f"/{SECRET}"


def test_a_mail_goes_to_all_recipients() -> None:
    with mail_server() as (port, mails):
        EmailAlert(host="127.0.0.1", port=port, security="none", sender="tm@here", recipients=["a@here", "b@here"]).send(ALERT)
    ((recipients, text),) = mails
    assert recipients == ["a@here", "b@here"]
    assert "Subject: [error] Watermark of cabs / trips is behind" in text
    assert "source 'trips' is 26m behind" in text
    assert '"lag_ms": 1560000' in text


def test_a_title_cannot_add_headers_to_a_mail() -> None:
    alert = Alert("warn", "behind\r\nBcc: x@evil", "text", "cabs")
    with mail_server() as (port, mails):
        EmailAlert(host="127.0.0.1", port=port, security="none", sender="tm@here", recipients=["a@here"]).send(alert)
    assert mails[0][0] == ["a@here"]
    assert "\nBcc:" not in mails[0][1]


@pytest.mark.parametrize("recipients", [["b@here"], ["a@here", "b@here"]])
def test_a_refused_recipient_is_an_error(recipients: list[str]) -> None:
    with mail_server(refuse="b@here") as (port, _), pytest.raises(AlertError, match=r"rejects b@here.*Fix:"):
        EmailAlert(host="127.0.0.1", port=port, security="none", sender="tm@here", recipients=recipients).send(ALERT)


def test_a_mail_server_that_is_not_there_or_not_encrypted_is_an_error() -> None:
    with pytest.raises(AlertError, match=r"through 127\.0\.0\.1: ConnectionRefusedError"):
        EmailAlert(host="127.0.0.1", port=free_port(), sender="tm@here", recipients=["a@here"], security="none").send(ALERT)
    with mail_server() as (port, mails):
        with pytest.raises(AlertError, match="STARTTLS"):
            EmailAlert(host="127.0.0.1", port=port, sender="tm@here", recipients=["a@here"]).send(ALERT)
        with pytest.raises(AlertError, match="unencrypted") as raised:
            EmailAlert(
                host="127.0.0.1", port=port, sender="tm@here", recipients=["a@here"], security="none", username="u", password=SECRET
            ).send(ALERT)
        assert SECRET not in str(raised.value)
        assert not mails


def test_slack_gets_the_alert() -> None:
    with http_server(answer=b'{"ok": true}') as (url, seen):
        SlackAlert(token=SECRET, channel="#streams", base_url=f"{url}/api/").send(ALERT)
    ((path, headers, body),) = seen
    assert path == "/api/chat.postMessage"
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert b"26m" in body


def test_names_from_data_mention_nobody_in_slack() -> None:
    alert = Alert("warn", "behind & <!channel>", "held back by split '<https://x.y|click> & <@U1>'", "cabs")
    with http_server(answer=b'{"ok": true}') as (url, seen):
        SlackAlert(token=SECRET, channel="#streams", base_url=f"{url}/api/").send(alert)
    text = parse_qs(seen[0][2].decode())["text"][0] if not seen[0][2].startswith(b"{") else json.loads(seen[0][2])["text"]
    assert "*behind &amp; &lt;!channel&gt;*" in text
    assert "split '&lt;https://x.y|click&gt; &amp; &lt;@U1&gt;'" in text


def test_slack_that_refuses_is_an_error_without_the_token() -> None:
    with http_server(answer=b'{"ok": false, "error": "channel_not_found"}') as (url, _), pytest.raises(AlertError) as raised:
        SlackAlert(token=SECRET, channel="#streams", base_url=f"{url}/api/").send(ALERT)
    assert "channel_not_found" in str(raised.value)
    assert "#streams" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_the_log_has_the_level_of_the_alert(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for level, number in (("error", logging.ERROR), ("warn", logging.WARNING), ("resolved", logging.INFO)):
            caplog.clear()
            LogAlert().send(Alert(level, "title", "text", "cabs"))  # type: ignore[arg-type]
            assert [(record.levelno, "title: text" in record.getMessage()) for record in caplog.records] == [(number, True)]
