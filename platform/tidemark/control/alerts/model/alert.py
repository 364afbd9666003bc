"""What a person is told: one message, as every receiver takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

AlertLevel = Literal["resolved", "warn", "error"]


@dataclass(frozen=True)
class Alert:
    """Something a person should know.

    Args:
        level: how bad it is; ``resolved`` says that an earlier alert is over.
        title: one line.
        text: the whole story, in plain words.
        job: the job concerned.
        facts: values by name for programs that receive the alert: numbers, texts, lists of these.
    """

    level: AlertLevel
    title: str
    text: str
    job: str
    facts: Mapping[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Return it as plain data."""
        return {"level": self.level, "title": self.title, "text": self.text, "job": self.job, "facts": dict(self.facts)}
