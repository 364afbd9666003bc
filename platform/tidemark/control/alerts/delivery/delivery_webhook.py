"""Alerts as JSON to an HTTP endpoint."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tidemark.control.alerts.model.alert import Alert
from tidemark.errors import AlertError


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects.

    A followed POST becomes a GET without the alert, and sends the secret headers to the host that the response names.
    """

    def redirect_request(self, *_: object) -> None:
        """Make no further request; the opener then raises the response as an HTTPError."""


@dataclass(frozen=True)
class WebhookDelivery:
    """Posts each alert as JSON: ``{"level", "title", "text", "job", "facts"}``.

    Args:
        url: the endpoint, which may contain a token; only its host is ever shown.
        headers: further headers, never shown.
        timeout_seconds: how long to wait for an answer.
        known_as: the receiver's name, for errors.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 10.0
    known_as: str = "the webhook"

    def send(self, alert: Alert) -> None:
        """Post the alert; a response other than 2xx is an error, also a redirect: the headers are for this endpoint only.

        Raises:
            AlertError: the endpoint is not http or https, cannot be reached, or rejects the alert.
        """
        host = self._host(alert)
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            self.url,
            data=json.dumps(alert.as_json(), default=str).encode(),
            headers={"Content-Type": "application/json", **self.headers},
            method="POST",
        )
        try:
            with urllib.request.build_opener(_NoRedirection).open(request, timeout=self.timeout_seconds) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            elsewhere = ", a redirect, which is not followed" if 300 <= error.code < 400 else ""
            raise self._failed(alert, host, f"responded {error.code} {error.reason}{elsewhere}") from None
        except urllib.error.URLError as error:
            raise self._failed(alert, host, f"cannot be reached: {error.reason}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The error's own text may contain a header or the address, so only its type is shown.
            raise self._failed(alert, host, f"sent no valid response ({type(error).__name__})") from None

    def _host(self, alert: Alert) -> str:
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = None, None, None
        if parts is None or parts.scheme not in {"http", "https"} or not host:
            raise AlertError("the webhook's url is not an http or https address", fix=f"set the url of {self.known_as}", job=alert.job)
        return host if port is None else f"{host}:{port}"

    def _failed(self, alert: Alert, host: str, reason: str) -> AlertError:
        return AlertError(
            f"alert {alert.title!r} was not delivered: the webhook at {host} {reason}",
            fix=f"check url, headers and timeout_seconds of {self.known_as}, and that the endpoint is up",
            job=alert.job,
        )
