"""Alerts by email."""

from __future__ import annotations

import json
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Literal

from tidemark.control.alerts.model.alert import Alert
from tidemark.errors import AlertError

MailSecurity = Literal["starttls", "tls", "none"]

_DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True)
class EmailDelivery:
    """Sends each alert as an email through an SMTP server.

    Args:
        host: the server.
        sender: address the mails come from.
        recipients: addresses they go to.
        port: the server's port; 587 with ``starttls``, 465 with ``tls``, 25 with ``none`` by default.
        security: how the connection is encrypted. A password is never sent over one that is not.
        username: user to log in as; no log-in by default.
        password: its password; never shown.
        timeout_seconds: how long to wait for the server.
        trust: file of CA certificates to trust; the system's by default.
        known_as: the receiver's name, for errors.
    """

    host: str
    sender: str
    recipients: Sequence[str]
    port: int | None = None
    security: MailSecurity = "starttls"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_seconds: float = 10.0
    trust: str | None = None
    known_as: str = "the mail receiver"

    def send(self, alert: Alert) -> None:
        """Send one mail to all recipients; a recipient that the server rejects is an error.

        Raises:
            AlertError: the mail was not accepted for every recipient.
        """
        if self.username is not None and self.security == "none":
            raise self._failed(alert, "a password would go over an unencrypted connection")
        try:
            with self._connect() as server:
                if self.username is not None:
                    server.login(self.username, self.password or "")
                refused = server.send_message(self._message(alert))
        except smtplib.SMTPRecipientsRefused as error:
            raise self._failed(alert, f"the server rejects {', '.join(error.recipients)}") from None
        except smtplib.SMTPResponseException as error:
            text = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
            raise self._failed(alert, f"the server responds {error.smtp_code} {text}") from None
        except (OSError, ValueError, smtplib.SMTPException) as error:
            raise self._failed(alert, f"{type(error).__name__}: {error}") from None
        if refused:
            raise self._failed(alert, f"the server rejects {', '.join(refused)}")

    def _connect(self) -> smtplib.SMTP:
        port = self.port if self.port is not None else _DEFAULT_PORTS[self.security]
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, port, timeout=self.timeout_seconds, context=self._trusted())
        server = smtplib.SMTP(self.host, port, timeout=self.timeout_seconds)
        if self.security == "starttls":
            try:
                server.starttls(context=self._trusted())
            except BaseException:
                server.close()
                raise
        return server

    def _trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.trust)

    def _message(self, alert: Alert) -> EmailMessage:
        message = EmailMessage()
        # A header is one line; a job's or a split's name must not start another.
        message["Subject"] = f"[{alert.level}] {' '.join(alert.title.split())}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.recipients)
        facts = json.dumps(dict(alert.facts), indent=2, default=str)
        message.set_content(f"{alert.text}\n\njob: {alert.job}\nlevel: {alert.level}\n\n{facts}\n")
        return message

    def _failed(self, alert: Alert, reason: str) -> AlertError:
        return AlertError(
            f"alert {alert.title!r} was not mailed through {self.host}: {reason}",
            fix=f"check host, port, security, username, password and recipients of {self.known_as}",
            job=alert.job,
        )
