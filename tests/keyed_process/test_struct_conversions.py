"""Structs and lists that fit their types are taken as they are, and all others are converted as a column's values would be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.descriptors import StateDescriptor
from tidemark.semantics.keyed_process.key_record import KeyRecord
from tidemark.semantics.keyed_process.states import MapState
from tidemark.semantics.keyed_process.times import Now
from tidemark.spark.operators.keyed_process.conversions import conversion, declarations

TOTAL = pa.struct([("total", pa.float64()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
CONVERT = conversion(TOTAL, "the state 'hours'")
FLAT_TYPE = pa.struct([("total", pa.float64()), ("n", pa.int32()), ("name", pa.string())])
FLAT = conversion(FLAT_TYPE, "the state 'flat'")
KEY_TYPES = {"BIGINT": pa.int64(), "STRING": pa.string(), "DOUBLE": pa.float64(), "BINARY": pa.binary(), "BOOLEAN": pa.bool_()}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"total": 1.5, "n": 2, "tags": ["a", None]}, {"total": 1.5, "n": 2, "tags": ["a", None]}),
        ({"n": 2, "total": None, "tags": None}, {"total": None, "n": 2, "tags": None}),
        ({"total": 1, "n": 2, "tags": []}, {"total": 1.0, "n": 2, "tags": []}),
        ({"total": 1.5}, {"total": 1.5, "n": None, "tags": None}),
        ((1.5, 2, ["a"]), {"total": 1.5, "n": 2, "tags": ["a"]}),
        (None, None),
    ],
)
def test_values_that_fit(given: object, found: object) -> None:
    assert CONVERT(given) == found


@pytest.mark.parametrize(
    "given", [{"total": "much", "n": 2, "tags": []}, {"total": 1.5, "n": 1 << 70, "tags": []}, {"sum": 1.5}, {"tags": [1]}, 7]
)
def test_values_that_do_not(given: object) -> None:
    with pytest.raises(UserCodeError, match="the state 'hours' is given"):
        CONVERT(given)


def test_what_is_kept_is_a_copy() -> None:
    given: dict[str, Any] = {"total": 1.5, "n": 2, "tags": ["a"]}
    kept = CONVERT(given)
    given["tags"].append("b")
    given["n"] = 3
    assert kept == {"total": 1.5, "n": 2, "tags": ["a"]}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"total": 1.5, "n": 2, "name": "a"}, {"total": 1.5, "n": 2, "name": "a"}),
        ({"name": "a", "n": -(1 << 31), "total": 1}, {"total": 1.0, "n": -(1 << 31), "name": "a"}),
        ({"total": 1.5, "n": 2.0, "name": None}, {"total": 1.5, "n": 2, "name": None}),
        ({"n": 2}, {"total": None, "n": 2, "name": None}),
    ],
)
def test_values_of_numbers_and_texts(given: dict[str, object], found: dict[str, object]) -> None:
    kept = FLAT(given)
    assert list(kept.items()) == list(found.items())
    assert list(map(type, kept.values())) == list(map(type, found.values()))
    assert kept is not given


@pytest.mark.parametrize(
    "given", [{"total": 1.5, "n": 1 << 31, "name": "a"}, {"total": 1.5, "n": True, "name": "a"}, {"total": 1.5, "n": 1, "m": 1}]
)
def test_values_of_numbers_and_texts_that_do_not_fit(given: dict[str, object]) -> None:
    with pytest.raises(UserCodeError, match="the state 'flat' is given"):
        FLAT(given)


HALF = "\ud83d"
"""As JSON may have it; it cannot be written."""


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), HALF),
        (pa.list_(pa.string()), ["a", HALF]),
        (FLAT_TYPE, {"total": 1.5, "n": 1, "name": HALF}),
        (TOTAL, {"total": 1.5, "n": 1, "tags": [HALF]}),
        (pa.map_(pa.string(), pa.int64()), {HALF: 1}),
    ],
)
def test_texts_that_cannot_be_written_are_refused_at_the_call(kind: pa.DataType, value: object) -> None:
    with pytest.raises(UserCodeError, match="the state 's' is given"):
        conversion(kind, "the state 's'")(value)


def test_texts_of_all_scripts_are_taken() -> None:
    assert FLAT({"total": 1.5, "n": 1, "name": "ä\U0001f600"})["name"] == "ä\U0001f600"
    state = map_state("STRING")
    state.put("ä\U0001f600", 1)
    assert state.get("ä\U0001f600") == 1
    with pytest.raises(UserCodeError, match="a key of the state 'm'"):
        state.put(HALF, 1)


def map_state(key: str) -> MapState:
    made = declarations({"m": StateDescriptor("map", "BIGINT", key_type=key)}, {"m": (pa.int64(), KEY_TYPES[key])})
    state = MapState(made["m"], Now(0, 0), None)
    state.begin_key(KeyRecord())
    return state


@pytest.mark.parametrize(
    ("kind", "key", "same", "other"),
    [
        ("BIGINT", 1, 1.0, True),
        ("STRING", "a", b"a", 1),
        ("DOUBLE", float("nan"), float("nan"), "a"),
        ("DOUBLE", 1.0, 1, "a"),
        ("BINARY", b"a", bytearray(b"a"), 1),
        ("BOOLEAN", True, True, 1),
    ],
)
def test_keys_of_maps_are_found_as_they_are_and_converted(kind: str, key: object, same: object, other: object) -> None:
    state = map_state(kind)
    state.put(same, 1)
    state.put(key, 2)
    assert state.get(same) == state.get(key) == 2
    assert len(list(state.keys())) == 1
    assert type(next(state.keys())) is type(key)
    for call in (state.get, state.remove, lambda wrong: state.put(wrong, 3)):
        with pytest.raises(UserCodeError, match="a key of the state 'm'"):
            call(other)
    state.remove(same)
    assert state.get(key) is None
    assert state.is_empty()
    state.put(key, 4)
    state.remove(key)
    assert state.is_empty()
