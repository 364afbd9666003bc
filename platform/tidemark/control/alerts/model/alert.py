"""An alert: one message, as every receiver gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

AlertLevel = Literal["resolved", "warn", "error"]


@dataclass(frozen=True)
class Alert:
    """A message to a receiver.

    Args:
        level: its severity; ``resolved`` means that an earlier alert has ended.
        title: one line.
        text: the details.
        job: the job concerned.
        facts: values by name for programs that receive the alert: numbers, texts, lists of these.
    """

    level: AlertLevel
    title: str
    text: str
    job: str
    facts: Mapping[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Return it as plain JSON data."""
        return {"level": self.level, "title": self.title, "text": self.text, "job": self.job, "facts": dict(self.facts)}
