"""Alerts to a Slack channel, on Slack's own client (the extra ``slack``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.control.alerts.model.alert import Alert
from tidemark.errors import AlertError, SetupError

if TYPE_CHECKING:
    from slack_sdk import WebClient

_SIGNS = {"error": ":red_circle:", "warn": ":large_yellow_circle:", "resolved": ":large_green_circle:"}


@dataclass(frozen=True)
class SlackDelivery:
    """Posts each alert to a channel.

    Args:
        token: the app's token; never shown.
        channel: the channel, such as ``"#streaming"``.
        base_url: where Slack's API is, for a proxy.
        timeout_seconds: how long to wait for an answer.
        known_as: the receiver's name, for errors.
    """

    token: str = field(repr=False)
    channel: str
    base_url: str | None = None
    timeout_seconds: int = 10
    known_as: str = "the Slack receiver"

    def send(self, alert: Alert) -> None:
        """Post the alert.

        Raises:
            SetupError: slack_sdk is not installed.
            AlertError: Slack does not take it.
        """
        try:
            from slack_sdk import WebClient
        except ImportError as error:
            raise SetupError("slack_sdk is not installed", fix="run pip install slack_sdk", job=alert.job) from error
        client = WebClient(self.token, timeout=self.timeout_seconds)
        if self.base_url is not None:
            client.base_url = self.base_url
        post_to_slack(client, alert, channel=self.channel, known_as=self.known_as)


def post_to_slack(client: WebClient, alert: Alert, *, channel: str, known_as: str) -> None:
    """Post an alert through a client.

    Raises:
        AlertError: Slack does not take it.
    """
    from slack_sdk.errors import SlackApiError, SlackClientError

    def failed(reason: str) -> AlertError:
        return AlertError(
            f"alert {alert.title!r} was not posted to {channel}: {reason}",
            fix=f"check token and channel of {known_as}, and that the app is a member of the channel",
            job=alert.job,
        )

    try:
        client.chat_postMessage(channel=channel, text=f"{_SIGNS[alert.level]} *{_plain(alert.title)}*\n{_plain(alert.text)}")
    except SlackApiError as error:
        raise failed(str(error.response.get("error", "refused"))) from None
    except (SlackClientError, OSError, ValueError) as error:
        raise failed(type(error).__name__) from None


def _plain(text: str) -> str:
    """Escape mentions, links and channels of Slack; a split's name comes from data."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
