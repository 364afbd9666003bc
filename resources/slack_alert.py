"""Alerts to a Slack channel, on dagster-slack (the extra ``slack``)."""

from __future__ import annotations

from tidemark.errors import AlertError, SetupError
from tidemark.resources.alerts import Alert, AlertResource

_SIGNS = {"error": ":red_circle:", "warn": ":large_yellow_circle:", "resolved": ":large_green_circle:"}


class SlackAlert(AlertResource):
    """Posts each alert to a channel.

    Args:
        token: the app's token, as ``dg.EnvVar("...")``; never shown.
        channel: the channel, such as ``"#streaming"``.
        base_url: where Slack's API is, for a proxy.
    """

    token: str
    channel: str
    base_url: str | None = None

    def send(self, alert: Alert) -> None:
        """Post the alert.

        Raises:
            SetupError: dagster-slack is not installed.
            AlertError: Slack does not take it.
        """
        try:
            from dagster_slack import SlackResource
            from slack_sdk.errors import SlackApiError, SlackClientError
        except ImportError as error:
            raise SetupError(
                "dagster-slack is not installed", fix="run pip install -e '.[slack]' in the checkout", job=alert.job
            ) from error
        text = f"{_SIGNS[alert.level]} *{_plain(alert.title)}*\n{_plain(alert.text)}"
        client = SlackResource(token=self.token).get_client()
        if self.base_url is not None:
            client.base_url = self.base_url
        try:
            client.chat_postMessage(channel=self.channel, text=text)
        except SlackApiError as error:
            raise self._failed(alert, str(error.response.get("error", "refused"))) from None
        except (SlackClientError, OSError, ValueError) as error:
            raise self._failed(alert, type(error).__name__) from None

    def _failed(self, alert: Alert, reason: str) -> AlertError:
        return AlertError(
            f"alert {alert.title!r} was not posted to {self.channel}: {reason}",
            fix="check SlackAlert's token and channel, and that the app is a member of the channel",
            job=alert.job,
        )


def _plain(text: str) -> str:
    """Escape what Slack reads as mentions, links and channels; a split's name comes from data."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
