"""Values and states as text: everything comes back as it went in, what would not is refused, and what was written stays readable."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.errors import CorruptStoreError, FormatError, UserCodeError
from tidemark.semantics.triggers.panes import ReplacedSession
from tidemark.semantics.triggers.window_state import KeyState, WindowState, order_of, read_state, write_state
from tidemark.semantics.windows.element_ranges import ElementRange, RemovedElements
from tidemark.semantics.windows.state_values import dump, from_json, to_json
from tidemark.semantics.windows.windows import GLOBAL_WINDOW, Window

GOLDEN = Path(__file__).parent / "golden" / "key-state-1.json"
"""A key's state as the first release wrote it. It is never changed: later releases read it."""

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC])).map(lambda at: at.replace(fold=0)),
    st.timedeltas(),
    st.decimals(allow_nan=False),
)
TEXTS = st.one_of(st.text(max_size=3), st.just("$"), st.just("v"))
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)), max_leaves=8
)

STATE = KeyState(
    born=order_of(3, 0),
    windows={
        Window(0, 10): WindowState(
            Window(0, 10),
            held=4,
            panes=2,
            replaced=(ReplacedSession(-5), ReplacedSession(0)),
            trigger={"count": 1, "last": {"at": datetime(2020, 1, 2, tzinfo=UTC), "fare": Decimal("1.50")}},
            event={9, 4},
            processing={1_000},
            removed=RemovedElements((ElementRange(0, 10, 77, frozenset({5, 3})),), frozenset({80})),
        ),
        GLOBAL_WINDOW: WindowState(GLOBAL_WINDOW, held=1),
    },
    tombstones=(ElementRange(-30, -20, 12),),
    counted=7,
    function={"key": {"calls": 3}},
)


@settings(deadline=None)
@given(VALUES)
def test_values_come_back_as_they_went_in(value: object) -> None:
    again = from_json(json.loads(dump(to_json(value, "it"))))
    assert again == value
    assert repr(again) == repr(value)


def test_entries_of_a_map_come_back() -> None:
    row = {"fees": [("toll", 3), ("tax", None)], "$": ()}
    assert from_json(json.loads(dump(to_json(row, "it")))) == row


def test_floats_that_json_has_not() -> None:
    for value in (math.inf, -math.inf):
        assert from_json(json.loads(dump(to_json(value, "it")))) == value
    assert math.isnan(float(str(from_json(json.loads(dump(to_json(math.nan, "it")))))))


@pytest.mark.parametrize("value", [{1: 2}, {"a": {None: 1}}, {1, 2}, object(), [lambda: None], True.__class__, b"".join])
def test_what_would_not_come_back_is_refused(value: object) -> None:
    with pytest.raises(UserCodeError, match=r"^\[TM501\] it holds .*which JSON cannot restore exactly.*Fix: keep plain values"):
        to_json({"a": [value]}, "it")


def test_unknown_types_are_damage() -> None:
    with pytest.raises(CorruptStoreError, match=r"unknown type 'colour'.*Fix:"):
        from_json({"$": "colour", "v": "red"})


def test_states_come_back_as_they_went_in() -> None:
    text = write_state(STATE)
    assert text is not None
    assert read_state(text, epoch=9) == STATE
    assert write_state(read_state(text, epoch=9)) == text


def test_golden_state_is_written_and_read() -> None:
    golden = GOLDEN.read_text(encoding="utf-8")
    assert f"{write_state(STATE)}\n" == golden
    assert read_state(golden, epoch=9) == STATE


def test_bounds_of_replaced_sessions_come_back() -> None:
    bounded = KeyState(7, {Window(0, 9): WindowState(Window(0, 9), panes=2, replaced=(ReplacedSession(-5), ReplacedSession(0, 4)))})
    golden = GOLDEN.with_name("key-state-2.json").read_text(encoding="utf-8")
    assert f"{write_state(bounded)}\n" == golden
    assert read_state(golden, epoch=9) == bounded


def test_an_empty_state_is_none_and_a_new_life_begins_with_the_epoch() -> None:
    assert write_state(KeyState(born=5)) is None
    assert read_state(None, epoch=4) == KeyState(born=order_of(4, 0))
    kept = write_state(KeyState(born=5, function={"key": {"calls": 1}}))
    assert read_state(kept, epoch=4) == KeyState(born=order_of(4, 0), function={"key": {"calls": 1}})


def test_orders_grow_with_arrival() -> None:
    orders = [order_of(epoch, place) for epoch in (0, 1, 7) for place in (0, 1, 2**32 - 1)]
    assert orders == sorted(set(orders))


@pytest.mark.parametrize("text", ["", "[]", "{}", "7", "{"])
def test_damaged_states(text: str) -> None:
    with pytest.raises(CorruptStoreError, match=r"unreadable.*Fix: restore"):
        read_state(text, epoch=0)


def test_states_of_later_releases() -> None:
    with pytest.raises(FormatError, match=r"has format 3, this release reads up to 2.*Fix:"):
        read_state('{"format":3}', epoch=0)


@pytest.mark.parametrize("part", ['"held":"many"', '"event":["soon"]'])
def test_states_with_wrong_parts(part: str) -> None:
    with pytest.raises(CorruptStoreError, match=r"for a whole number.*Fix: restore"):
        read_state(f'{{"format":1,"born":0,"windows":[{{"window":[0,10],{part}}}]}}', epoch=0)
