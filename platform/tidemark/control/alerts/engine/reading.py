"""The reading of an alert rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.control.alerts.model.alert_settings import RuleName
from tidemark.control.alerts.model.hysteresis import Limits


@dataclass(frozen=True)
class Reading:
    """One number of one rule. A ``value`` of None is unknown now: the condition stays unchanged."""

    rule: RuleName
    subject: str
    value: float | None
    limits: Limits
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
