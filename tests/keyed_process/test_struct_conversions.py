"""Structs and lists that fit their types are taken as they are, and all others are converted as a column's values would be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidemark.errors import UserCodeError
from tidemark.spark.operators.keyed_process.conversions import conversion

TOTAL = pa.struct([("total", pa.float64()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
CONVERT = conversion(TOTAL, "the state 'hours'")


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
