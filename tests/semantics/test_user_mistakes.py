"""What is proposed for errors of Python's in a user's function, and for timers in another unit than milliseconds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from tidemark.semantics.user_mistakes import fix_of, warn_of_unit

ROW = {"cart": 7, "at": None}
NOW = 1_736_153_400_000

MISTAKES: dict[str, tuple[Callable[[Any], object], str, str | None]] = {
    "a column that is mistyped": (
        lambda e: e["kart"],
        "e['kart']",
        "there is no column 'kart'; did you mean 'cart'? The element has: cart, at",
    ),
    "a column that is not there": (lambda e: e["fare"], 'e["fare"]', "there is no column 'fare'. The element has: cart, at"),
    "a key of another dict": (lambda _: dict[str, int]()["fare"], "prices[zone]", None),
    "a key of a dict that is named in the line": (lambda e: {7: 1}[e["cart"] + 1], "self.rates[e['cart']]", None),
    "a key of an attribute": (lambda _: {"cart": 1}["fare"], "self.e['fare']", None),
    "a column where the line is not known": (lambda e: e["fare"], "", None),
    "an element as an object": (lambda e: e.cart, "e.cart", "an element is a dict: write element['cart']"),
    "a name that no element has": (lambda e: e.fare, "e.fare", None),
    "a time that is called": (lambda _: NOW(), "ctx.timestamp() + 5", "write ctx.timestamp, without ()"),  # type: ignore[operator]
    "a key that is called": (
        lambda e: MappingProxyType(e)(),  # type: ignore[operator]
        "ctx.current_key()['k']",
        "write ctx.current_key, without ()",
    ),
    "a number that is called": (lambda _: NOW(), "limit()", None),  # type: ignore[operator]
    "a sum with no value": (lambda e: e["at"] + 1, "self.n.update(self.n.value() + 1)", "value() is None before the first update()"),
    "a sum with another None": (lambda e: e["at"] + 1, "element['at'] + 1", None),
    "an error of its own": (lambda _: int("x"), "int('x')", None),
}


@pytest.mark.parametrize(("call", "line", "fix"), MISTAKES.values(), ids=MISTAKES)
def test_what_is_proposed(call: Callable[[Any], object], line: str, fix: str | None) -> None:
    with pytest.raises((KeyError, AttributeError, TypeError, ValueError)) as caught:
        call(ROW)
    found = fix_of(caught.value, line, ROW)
    assert found is None if fix is None else found is not None and found.startswith(fix)


def test_nothing_is_proposed_for_the_columns_of_a_timer() -> None:
    assert fix_of(KeyError("kart"), "e['kart']", None) is None


@pytest.mark.parametrize(("time", "unit"), [(NOW // 1_000, "seconds"), (NOW * 1_000, "microseconds"), (NOW * 1_000_000, "nanoseconds")])
def test_a_timer_in_another_unit(time: int, unit: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tidemark"):
        assert warn_of_unit(time, NOW)
    assert f"this looks like {unit}" in caplog.text


@pytest.mark.parametrize("time", [0, -1, 5, NOW - 10 * 365 * 86_400_000, NOW, NOW + 1, 2**63 - 1, -(2**63)])
def test_a_timer_that_is_early_or_late(time: int) -> None:
    assert not warn_of_unit(time, NOW)
    assert not warn_of_unit(time, 0)
    assert not warn_of_unit(time, -(2**63))
