"""Dagster resources: the runner of streaming jobs, the Spark session, and receivers of alerts."""

from __future__ import annotations

from tidemark.control import Alert
from tidemark.resources.alerts import AlertResource, LogAlert
from tidemark.resources.email_alert import EmailAlert
from tidemark.resources.runner import TidemarkResource
from tidemark.resources.slack_alert import SlackAlert
from tidemark.resources.spark import SparkResource
from tidemark.resources.webhook_alert import WebhookAlert

__all__ = [
    "Alert",
    "AlertResource",
    "EmailAlert",
    "LogAlert",
    "SlackAlert",
    "SparkResource",
    "TidemarkResource",
    "WebhookAlert",
]
