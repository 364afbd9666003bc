"""Local time of a zone in SQL, in both directions: as ``tidemark.semantics.windows.local_time``, by the database of time zones of Java.

Spark's own conversions are right wherever clocks do not change; there the instant of the change is found by halving. All times are
BIGINT milliseconds. Texts of times and zones are used several times, so they should be columns.
"""

from __future__ import annotations

from typing import Final

_HALVINGS: Final = 28
"""Enough for a change of clocks anywhere in three days, to the millisecond."""


def zone_literal(name: str) -> str:
    """Return the name of a zone as an SQL text."""
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


def reading(time: str, zone: str) -> str:
    """Return SQL of the greatest local time that a zone's clocks have shown up to an instant."""
    shown = _shown(time, zone)
    first = _instant(shown, zone)
    return f"CASE WHEN {first} >= {time} THEN {shown} ELSE {_shown(f'({_change(first, time, zone)} - 1L)', zone)} END"


def first_instant(local: str, zone: str) -> str:
    """Return SQL of the first instant at which a zone's clocks show a local time, or a later one."""
    found = _instant(local, zone)
    skipped = f"{_shown(found, zone)} - {local}"
    return f"CASE WHEN {skipped} = 0L THEN {found} ELSE {_change(f'({found} - ({skipped}))', found, zone)} END"


def _shown(time: str, zone: str) -> str:
    return f"unix_millis(from_utc_timestamp(timestamp_millis({time}), {zone}))"


def _instant(local: str, zone: str) -> str:
    """Return SQL of the instant of a local time: of two the first; of a skipped one, one as long after the change as it is in the gap."""
    return f"unix_millis(to_utc_timestamp(timestamp_millis({local}), {zone}))"


def _change(low: str, high: str, zone: str) -> str:
    """Return SQL of the first instant after ``low`` from which on the clocks are as far from UTC as at ``high``."""
    middle = "x.low + (x.high - x.low) div 2L"
    same = f"{_shown(f'({middle})', zone)} - ({middle}) = {_shown('x.high', zone)} - x.high"
    halved = f"if({same}, named_struct('low', x.low, 'high', {middle}), named_struct('low', {middle}, 'high', x.high))"
    return f"aggregate(sequence(1, {_HALVINGS}), named_struct('low', {low}, 'high', {high}), (x, i) -> {halved}, x -> x.high)"
