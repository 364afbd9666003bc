"""A change of some of an autoscaler's settings, as ``tidemark autoscale`` and the API request it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tidemark.control.model.autoscaler_settings import AutoscalerMode, AutoscalerSettings
from tidemark.errors import DefinitionError


@dataclass(frozen=True)
class AutoscalerChange:
    """New values of settings; those that are None stay.

    Args:
        settings: the settings that the others change; None is the job's own.
        mode: whether it acts.
        min_parallelism: the least parallelism.
        max_parallelism: the greatest.
        utilization: the share of the time in which epochs should run; the band around it moves along.
        catch_up_ms: how long it may take to read a backlog, in milliseconds.
        max_changes: changes in 24 hours at most.
        quiet_times: periods in which it changes nothing; an empty tuple is none.
        zone: the zone of these.
    """

    settings: AutoscalerSettings | None = None
    mode: AutoscalerMode | None = None
    min_parallelism: int | None = None
    max_parallelism: int | None = None
    utilization: float | None = None
    catch_up_ms: int | None = None
    max_changes: int | None = None
    quiet_times: tuple[str, ...] | None = None
    zone: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return self == AutoscalerChange()

    def of(self, settings: AutoscalerSettings) -> AutoscalerSettings:
        """Return settings with the new values, which a spec's check has still to accept.

        Raises:
            DefinitionError: the utilization is no share.
        """
        changed = _with_target(self.settings or settings, self.utilization)
        named: dict[str, Any] = {
            "mode": self.mode,
            "min_parallelism": self.min_parallelism,
            "max_parallelism": self.max_parallelism,
            "catch_up_ms": self.catch_up_ms,
            "max_changes_per_day": self.max_changes,
            "zone": self.zone,
            "quiet_times": self.quiet_times,
        }
        return replace(changed, **{name: value for name, value in named.items() if value is not None})


def _with_target(settings: AutoscalerSettings, target: float | None) -> AutoscalerSettings:
    if target is None:
        return settings
    if not 0 < target < 1:
        raise DefinitionError(f"the utilization {target} is no share", fix="give a number between 0 and 1, such as 0.7")
    # The band keeps its distance to the target, as far as there is room.
    low, high = settings.utilization_target - settings.utilization_min, settings.utilization_max - settings.utilization_target
    band = (max(round(target - low, 4), round(target / 2, 4)), min(round(target + high, 4), round((1 + target) / 2, 4)))
    return replace(settings, utilization_target=target, utilization_min=band[0], utilization_max=band[1])
