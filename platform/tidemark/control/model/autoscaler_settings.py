"""Settings of a job's autoscaler: its goal, its bounds, and when it may act. Part of the job's spec; plain data.

The terms are those of the autoscaler of Flink's Kubernetes operator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tidemark.errors import DefinitionError
from tidemark.semantics.windows.local_time import is_zone, local_clock, unknown_zone
from tidemark.spark.sources.intake_limits import MAX_SHARE, MIN_SHARE

AutoscalerMode = Literal["advise", "act", "off"]
"""``advise``: recommend, and change nothing. ``act``: write the recommended values into the job's spec. ``off``: measure nothing."""

MODES: Final[tuple[AutoscalerMode, ...]] = ("advise", "act", "off")

DAY_MS: Final = 86_400_000
_MAX_WINDOWS: Final = 24
"""The samples of so many metrics windows are kept at most."""

_MINUTE_MS: Final = 60_000
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FIRST_WEEKDAY: Final = 3
"""1970-01-01 was a Thursday."""

_PERIOD: Final = re.compile(r"(?:(?P<days>[A-Za-z,\-]+)\s+)?(?P<from>\d{1,2}:\d{2})\s*-\s*(?P<to>\d{1,2}:\d{2})")


@dataclass(frozen=True)
class QuietTime:
    """A period of some days of the week, in local time; one that ends at or before its beginning ends on the next day.

    Args:
        days: its days, 0 is Monday.
        begins: minutes since midnight.
        ends: minutes since midnight.
    """

    days: frozenset[int]
    begins: int
    ends: int

    def covers(self, local_ms: int) -> bool:
        """Return whether it covers a local time, milliseconds since 1970-01-01 00:00 of the zone's clocks.

        >>> friday_night = QuietTime.parse("Fri 22:00-06:00")
        >>> monday = 4 * 86_400_000
        >>> [friday_night.covers(monday + hour * 3_600_000) for hour in (4 * 24 + 21, 4 * 24 + 22, 5 * 24 + 5, 5 * 24 + 6)]
        [False, True, True, False]
        """
        day, minute = divmod(local_ms // _MINUTE_MS, DAY_MS // _MINUTE_MS)
        weekday = (day + _FIRST_WEEKDAY) % len(_DAYS)
        if self.begins < self.ends:
            return weekday in self.days and self.begins <= minute < self.ends
        return (weekday in self.days and minute >= self.begins) or ((weekday - 1) % len(_DAYS) in self.days and minute < self.ends)

    @classmethod
    def parse(cls, text: str) -> QuietTime:
        """Return the period of a text: ``08:00-18:00``, ``Mon-Fri 08:00-18:00``, ``Sat,Sun 22:00-06:00``.

        Raises:
            DefinitionError: it is none.
        """
        found = _PERIOD.fullmatch(text.strip())
        if found is None:
            raise _no_period(text)
        return cls(_days(found["days"], text), _minutes(found["from"], text), _minutes(found["to"], text))


@dataclass(frozen=True)
class AutoscalerSettings:
    """Settings of the autoscaler of a job; times are milliseconds.

    Args:
        mode: whether it acts.
        utilization_target: the share of the time in which epochs should run, after a change.
        utilization_min: the share below which it scales down.
        utilization_max: the share above which it scales up; between the two it changes nothing.
        catch_up_ms: how long it may take to read a backlog.
        min_parallelism: the least parallelism.
        max_parallelism: the greatest; None is the number of the driver's cores.
        min_intake: the least share of its usual bounds that an epoch may read.
        max_intake: the greatest.
        window_ms: the metrics window: how far back rates are measured.
        stabilization_ms: how long after a change, or a driver's start, it makes no other one.
        scale_down_interval_ms: how long the load must have been low before it scales down.
        scale_up_max_factor: a change multiplies parallelism, and intake, by so much at most, but may raise parallelism by 1.
        scale_down_max_factor: the share of the parallelism by which a change lowers it at most, but by 1 unless it is 0.
        max_changes_per_day: in any 24 hours; the last half of these, rounded down, only scales up.
        effectiveness_threshold: the share of the expected gain in processing rate below which scaling up was ineffective, and is not
            repeated for a week.
        quiet_times: periods in which it changes nothing (``QuietTime.parse``).
        zone: the zone of these, an IANA name.
    """

    mode: AutoscalerMode = "advise"
    utilization_target: float = 0.7
    utilization_min: float = 0.4
    utilization_max: float = 0.9
    catch_up_ms: int = 1_800_000
    min_parallelism: int = 1
    max_parallelism: int | None = None
    min_intake: float = MIN_SHARE
    max_intake: float = MAX_SHARE
    window_ms: int = 900_000
    stabilization_ms: int = 300_000
    scale_down_interval_ms: int = 3_600_000
    scale_up_max_factor: float = 4.0
    scale_down_max_factor: float = 0.6
    max_changes_per_day: int = 4
    effectiveness_threshold: float = 0.1
    quiet_times: tuple[str, ...] = ()
    zone: str = "UTC"

    @property
    def sample_interval_ms(self) -> int:
        """The time between two samples of the load: a fifteenth of the metrics window."""
        return max(self.window_ms // 15, 1)

    def quiet_time_at(self, now: int) -> str:
        """Return the quiet time that an instant is in, empty for none."""
        if not self.quiet_times:
            return ""
        local = now + local_clock(self.zone).offset(now)
        return next((text for text in self.quiet_times if QuietTime.parse(text).covers(local)), "")


def check_autoscaler(settings: AutoscalerSettings) -> None:
    """Raise for settings that cannot be.

    Raises:
        DefinitionError: the message says which one, and the fix.
    """
    if settings.mode not in MODES:
        raise DefinitionError(f"autoscaler.mode={settings.mode!r} is unknown", fix=f"give one of {', '.join(MODES)}")
    for what, fix in _violations(settings):
        raise DefinitionError(f"autoscaler.{what}", fix=fix)
    for text in settings.quiet_times:
        QuietTime.parse(text)
    if not is_zone(settings.zone):
        raise unknown_zone(settings.zone)


def _violations(settings: AutoscalerSettings) -> Iterator[tuple[str, str]]:
    low, target, high = settings.utilization_min, settings.utilization_target, settings.utilization_max
    if not 0 <= low < target < high <= 1:
        yield (
            f"utilization_min={low}, utilization_target={target}, utilization_max={high} are not in order",
            "give shares from 0 to 1, the least first, such as 0.4, 0.7 and 0.9",
        )
    for what, value, least in (
        ("catch_up_ms", settings.catch_up_ms, 1_000),
        ("window_ms", settings.window_ms, 1_000),
        ("stabilization_ms", settings.stabilization_ms, 0),
        ("scale_down_interval_ms", settings.scale_down_interval_ms, 0),
        ("min_parallelism", settings.min_parallelism, 1),
        ("max_parallelism", settings.max_parallelism, settings.min_parallelism),
        ("max_changes_per_day", settings.max_changes_per_day, 0),
    ):
        if value is not None and value < least:
            yield f"{what}={value} is too small", f"give at least {least}"
    if settings.scale_down_interval_ms > _MAX_WINDOWS * settings.window_ms:
        yield (
            f"scale_down_interval_ms={settings.scale_down_interval_ms} is more than {_MAX_WINDOWS} metrics windows",
            "give less, or a longer window_ms",
        )
    if not MIN_SHARE <= settings.min_intake <= settings.max_intake <= MAX_SHARE:
        yield (
            f"min_intake={settings.min_intake} and max_intake={settings.max_intake} are no bounds",
            f"give shares from {MIN_SHARE} to {MAX_SHARE:g}, the lesser first",
        )
    if not 1 < settings.scale_up_max_factor < math.inf:
        yield f"scale_up_max_factor={settings.scale_up_max_factor} cannot raise anything", "give a number above 1, such as 4"
    for what, share in (
        ("scale_down_max_factor", settings.scale_down_max_factor),
        ("effectiveness_threshold", settings.effectiveness_threshold),
    ):
        if not 0 <= share <= 1:
            yield f"{what}={share} is no share", "give a number from 0 to 1"


def _days(text: str | None, period: str) -> frozenset[int]:
    if text is None:
        return frozenset(range(len(_DAYS)))
    found: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if first not in _DAYS or last not in _DAYS:
            raise _no_period(period)
        begin, end = _DAYS.index(first), _DAYS.index(last)
        found.update((begin + number) % len(_DAYS) for number in range((end - begin) % len(_DAYS) + 1))
    return frozenset(found)


def _minutes(text: str, period: str) -> int:
    hours, minutes = map(int, text.split(":"))
    if hours > 24 or minutes > 59 or hours * 60 + minutes > 24 * 60:
        raise _no_period(period)
    return hours * 60 + minutes


def _no_period(text: str) -> DefinitionError:
    return DefinitionError(
        f"the quiet time {text!r} cannot be read", fix="write 'HH:MM-HH:MM', with days in front if it is not of each: 'Mon-Fri 08:00-18:00'"
    )
