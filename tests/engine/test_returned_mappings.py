"""Rows that functions return as mappings which make up values that they do not have."""

from __future__ import annotations

from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from tidemark.spark.columns.user_values import MisfitError, coerce_batch

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def test_a_column_that_a_counter_does_not_have_is_null() -> None:
    assert coerce_batch([Counter(a=3), {"b": 4}], SCHEMA).to_pylist() == [{"a": 3, "b": None}, {"a": None, "b": 4}]


def test_a_mapping_with_defaults_keeps_its_keys() -> None:
    row: defaultdict[str, int] = defaultdict(int, a=1)
    assert coerce_batch([row, {"a": 2, "b": 5}], SCHEMA).to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": 5}]
    assert dict(row) == {"a": 1}


def test_a_mistyped_column_of_a_mapping_with_defaults_is_named() -> None:
    with pytest.raises(MisfitError, match="it has 'c', and no 'b'"):
        coerce_batch([defaultdict(int, a=1, c=2)], SCHEMA)
