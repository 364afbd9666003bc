"""Alerts to a Slack channel, on dagster-slack (the extra ``slack``)."""

from __future__ import annotations

from tidemark.control import Alert, post_to_slack
from tidemark.errors import SetupError
from tidemark.resources.alerts import AlertResource


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
            AlertError: Slack rejects it.
        """
        try:
            from dagster_slack import SlackResource
        except ImportError as error:
            raise SetupError(
                "dagster-slack is not installed", fix="run pip install -e '.[slack]' in the checkout", job=alert.job
            ) from error
        client = SlackResource(token=self.token).get_client()
        if self.base_url is not None:
            client.base_url = self.base_url
        post_to_slack(client, alert, channel=self.channel, known_as="SlackAlert")
