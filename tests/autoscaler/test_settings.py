"""Settings of the autoscaler: quiet times, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tidemark.control.model.autoscaler_settings import AutoscalerSettings, QuietTime, check_autoscaler
from tidemark.errors import DefinitionError

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> int:
    """Return an instant from a local time."""
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


@pytest.mark.parametrize(
    ("period", "inside", "outside"),
    [
        ("08:00-18:00", ["2026-11-22T08:00", "2026-11-23T17:59"], ["2026-11-22T07:59", "2026-11-22T18:00"]),
        ("Mon-Fri 08:00-18:00", ["2026-11-23T08:00"], ["2026-11-22T12:00"]),
        ("sat,sun 22:00-06:00", ["2026-11-22T23:00", "2026-11-23T05:59"], ["2026-11-23T06:00", "2026-11-23T23:00", "2026-11-21T05:00"]),
        ("Fri-Mon 00:00-24:00", ["2026-11-20T00:00", "2026-11-23T23:59"], ["2026-11-24T00:00", "2026-11-19T23:59"]),
        ("Sun 20:00-20:00", ["2026-11-22T20:00", "2026-11-23T19:59"], ["2026-11-22T19:59", "2026-11-23T20:00"]),
    ],
)
def test_quiet_times(period: str, inside: list[str], outside: list[str]) -> None:
    settings = AutoscalerSettings(quiet_times=("Wed 01:00-01:01", period), zone="Europe/Berlin")
    check_autoscaler(settings)
    assert [text for text in inside if settings.quiet_time_at(at(text)) != period] == []
    assert [text for text in outside if settings.quiet_time_at(at(text))] == []


def test_quiet_times_are_local_also_in_summer() -> None:
    settings = AutoscalerSettings(quiet_times=("08:00-18:00",), zone="Europe/Berlin")
    assert settings.quiet_time_at(at("2026-07-01T06:30", ZoneInfo("UTC")))
    assert not settings.quiet_time_at(at("2026-12-01T06:30", ZoneInfo("UTC")))


@pytest.mark.parametrize(
    "text", ["", "8-18", "08:00-25:00", "24:01-02:00", "08:60-09:00", "Funday 08:00-09:00", "Mon- 08:00-09:00", "08:00"]
)
def test_what_is_no_quiet_time(text: str) -> None:
    with pytest.raises(DefinitionError, match="HH:MM"):
        QuietTime.parse(text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "on"}, "mode='on' is unknown"),
        ({"utilization_min": 0.8}, "not in order"),
        ({"utilization_max": 1.1}, "not in order"),
        ({"min_parallelism": 0}, "min_parallelism=0 is too small"),
        ({"min_parallelism": 4, "max_parallelism": 2}, "max_parallelism=2 is too small"),
        ({"min_intake": 0.0}, "no bounds"),
        ({"max_intake": 17.0}, "no bounds"),
        ({"catch_up_ms": 0}, "catch_up_ms=0 is too small"),
        ({"scale_up_max_factor": 1.0}, "cannot raise"),
        ({"scale_up_max_factor": float("inf")}, "cannot raise"),
        ({"scale_down_max_factor": 1.5}, "no share"),
        ({"max_changes_per_day": -1}, "too small"),
        ({"scale_down_interval_ms": 100 * 3_600_000}, "metrics windows"),
        ({"quiet_times": ("tonight",)}, "tonight"),
        ({"zone": "Europe/Bern"}, "no time zone"),
    ],
)
def test_what_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        check_autoscaler(replace(AutoscalerSettings(), **fields))  # type: ignore[arg-type]
