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

    @property
    def exceeds_warning(self) -> bool:
        """Whether the number is known, and at its lowest limit or above."""
        limits = [limit for limit in (self.limits.warn, self.limits.error) if limit is not None]
        return self.value is not None and bool(limits) and self.value >= min(limits)
