"""Temporal joins in the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


def odd_as_of_even(stream: tm.Stream, tags: Tags, how: Literal["inner", "left"]) -> tm.Stream:
    """Return a stream's even elements, each with the newest odd one of its key."""
    evens = stream.filter("v % 2 = 0")
    odds = stream.filter("v % 2 = 1").select("k", odd="v")
    return evens.join_asof(odds, on="k", how=how, late_left_to=tags["late_left"], late_right_to=tags["late_right"])


def inner(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return even elements that have an odd one before."""
    return odd_as_of_even(stream, tags, "inner")


def left(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return all even elements."""
    return odd_as_of_even(stream, tags, "left")


def corrected(stream: tm.Stream, tags: Tags, how: Literal["inner", "left"]) -> tm.Stream:
    """Return a stream's even elements, each with the newest odd one of its key, also if that comes up to a while later."""
    evens = stream.filter("v % 2 = 0")
    odds = stream.filter("v % 2 = 1").select("k", odd="v")
    sides = {"late_left_to": tags["late_left"], "late_right_to": tags["late_right"]}
    return evens.join_asof(odds, on="k", how=how, allowed_lateness="8 seconds", key=["at", "k", "v"], **sides)


def corrected_inner(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return even elements that have an odd one before, corrected."""
    return corrected(stream, tags, "inner")


def corrected_left(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return all even elements, corrected."""
    return corrected(stream, tags, "left")


def arrives(row: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the input that an element comes in by, and its columns there."""
    value = row["v"]
    return ("right", {"k": row["k"], "odd": value}) if isinstance(value, int) and value % 2 else ("left", row)


SIDES = ("late_left", "late_right")
# How often an answer is corrected depends on where epochs end.
CASES = [
    Case("asof-inner", inner, SIDES, arrives=arrives, only_long=True),
    Case("asof-left", left, SIDES, arrives=arrives),
    Case("asof-corrected-inner", corrected_inner, SIDES, in_order=False, arrives=arrives),
    Case("asof-corrected-left", corrected_left, SIDES, in_order=False, arrives=arrives, only_long=True),
]
