"""Alerts as JSON to an HTTP endpoint."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from tidemark.errors import AlertError
from tidemark.resources.alerts import Alert, AlertResource


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Takes a redirection for the answer that it is.

    Followed, a POST becomes a GET without the alert, and carries the secret headers to whatever host the answer names.
    """

    def redirect_request(self, *_: object) -> None:
        """Make no further request; the opener then raises the answer as an HTTPError."""


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
        """Post the alert; an answer other than 2xx is an error, a redirection too: the headers are for this endpoint alone.

        Raises:
            AlertError: the endpoint is not one of http or https, cannot be reached, or does not take the alert.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise AlertError("the webhook's url is not an http or https address", fix="set WebhookAlert(url=...)", job=alert.job)
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
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
            elsewhere = ", a redirection, which is not followed" if 300 <= error.code < 400 else ""
            raise _not_delivered(alert, host, f"answered {error.code} {error.reason}{elsewhere}") from None
        except urllib.error.URLError as error:
            raise _not_delivered(alert, host, f"cannot be reached: {error.reason}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The error's own text may repeat a header or the address, so only its kind is told.
            raise _not_delivered(alert, host, f"did not answer properly ({type(error).__name__})") from None


def _not_delivered(alert: Alert, host: str, reason: str) -> AlertError:
    return AlertError(
        f"alert {alert.title!r} was not delivered: the webhook at {host} {reason}",
        fix="check WebhookAlert's url, headers and timeout_seconds, and that the endpoint is up",
        job=alert.job,
    )
