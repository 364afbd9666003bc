"""Delivery of alerts: the protocol of all receivers, and the receiver that writes to the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from tidemark.control.alerts.model.alert import Alert

_LOG = logging.getLogger("tidemark.alerts")
_LEVELS = {"error": logging.ERROR, "warn": logging.WARNING}


class Delivery(Protocol):
    """Delivers alerts to one receiver."""

    def send(self, alert: Alert) -> None:
        """Deliver one alert, or raise.

        Delivered means that the receiver has accepted it; after an error it is sent again, so a receiver may get it twice.

        Raises:
            AlertError: it was not delivered. The text contains no secret.
        """
        ...


@dataclass(frozen=True)
class LogDelivery:
    """Writes alerts to the log ``tidemark.alerts``: an error as an error, a warning as a warning, the rest as information."""

    def send(self, alert: Alert) -> None:
        """Log the alert with its facts; cannot fail."""
        extra = {"tidemark": {"job": alert.job, "facts": dict(alert.facts)}}
        _LOG.log(_LEVELS.get(alert.level, logging.INFO), "%s: %s", alert.title, alert.text, extra=extra)
