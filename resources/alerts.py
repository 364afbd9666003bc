"""The resource that sensors send alerts through, and one that writes them to the log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import dagster as dg

from tidemark.control import Alert


class AlertResource(dg.ConfigurableResource[Any], ABC):
    """Delivers alerts; subclass it and implement ``send`` for other receivers."""

    @abstractmethod
    def send(self, alert: Alert) -> None:
        """Deliver one alert, or raise.

        Called on a sensor's tick. Delivered means that the receiver has accepted it; an error fails the tick, its cursor stays, and
        the next tick sends again.

        Raises:
            AlertError: it was not delivered.
        """


class LogAlert(AlertResource):
    """Writes alerts to the log of the code server, which is the terminal of `dagster dev`, and sends them to nobody.

    The summary of the sensor's tick names what was sent. Take a `WebhookAlert`, an `EmailAlert` or a `SlackAlert` for alerts that reach
    people.
    """

    def send(self, alert: Alert) -> None:
        """Write an error as an error, a warning as a warning, the rest as information; it counts as delivered."""
        write = {"error": dg.get_dagster_logger().error, "warn": dg.get_dagster_logger().warning}
        write.get(alert.level, dg.get_dagster_logger().info)(f"{alert.title}: {alert.text}")
