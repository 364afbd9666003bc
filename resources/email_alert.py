"""Alerts by email."""

from __future__ import annotations

from typing import Literal

from tidemark.control import Alert, EmailDelivery
from tidemark.resources.alerts import AlertResource


class EmailAlert(AlertResource):
    """Sends each alert as an email through an SMTP server.

    Args:
        host: the server.
        sender: address the mails come from.
        recipients: addresses they go to.
        port: the server's port; 587 with ``starttls``, 465 with ``tls``, 25 with ``none`` by default.
        security: how the connection is encrypted. A password is never sent over one that is not.
        username: user to log in as; no log-in by default.
        password: its password, as ``dg.EnvVar("...")``; never shown.
        timeout_seconds: how long to wait for the server.
    """

    host: str
    sender: str
    recipients: list[str]
    port: int | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    password: str | None = None
    timeout_seconds: float = 10.0

    def send(self, alert: Alert) -> None:
        """Send one mail to all recipients; a recipient that the server rejects is an error.

        Raises:
            AlertError: the mail was not accepted for every recipient.
        """
        EmailDelivery(
            host=self.host,
            sender=self.sender,
            recipients=self.recipients,
            port=self.port,
            security=self.security,
            username=self.username,
            password=self.password,
            timeout_seconds=self.timeout_seconds,
            known_as="EmailAlert",
        ).send(alert)
