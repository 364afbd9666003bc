"""Alerts as JSON to an HTTP endpoint."""

from __future__ import annotations

from tidemark.control import Alert, WebhookDelivery
from tidemark.resources.alerts import AlertResource


class WebhookAlert(AlertResource):
    """Posts each alert as JSON: ``{"level", "title", "text", "job", "facts"}``.

    Args:
        url: the endpoint. Give ``dg.EnvVar("...")`` where it holds a token; only its host is ever shown.
        headers: further headers, such as ``{"Authorization": dg.EnvVar("...")}``; never shown.
        timeout_seconds: how long to wait for an answer.
    """

    url: str
    headers: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults
    timeout_seconds: float = 10.0

    def send(self, alert: Alert) -> None:
        """Post the alert; a response other than 2xx is an error, also a redirect: the headers are for this endpoint only.

        Raises:
            AlertError: the endpoint is not http or https, cannot be reached, or rejects the alert.
        """
        delivery = WebhookDelivery(self.url, self.headers, timeout_seconds=self.timeout_seconds, known_as="WebhookAlert")
        delivery.send(alert)
