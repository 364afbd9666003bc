"""Sinks that would not fit a changelog, or versions, are refused where they are declared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, TidemarkError

SCHEMA = "k STRING, v INT, at TIMESTAMP, operation STRING, valid_to TIMESTAMP, t BIGINT"
ROWS = tm.source("rows", tm.from_elements(rows=[], schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
LOG = ROWS.as_changelog(["k"])
PLAIN = LOG.select("k", "v", "at")


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (lambda: tm.delta(PLAIN, "t", mode="upsert", keys=["v"]), DefinitionError, "other columns than the key of the changelog (k)"),
        (lambda: tm.delta(LOG, "t"), ColumnError, "adds a column 'operation' of changes"),
        (lambda: tm.parquet(LOG, "t"), ColumnError, "adds a column 'operation' of changes"),
        (lambda: tm.memory(LOG, "t"), ColumnError, "adds a column 'operation' of changes"),
        (lambda: tm.delta(LOG, "t", mode="scd2"), ColumnError, "adds a column 'valid_to' of versions"),
        (lambda: tm.delta(ROWS.select("k", "at"), "t", mode="scd2", keys=["k"]), DefinitionError, "does not know from when a row is valid"),
        (
            lambda: tm.delta(ROWS.select("k", "at"), "t", mode="scd2", sequence="at"),
            DefinitionError,
            "delta(mode='scd2') does not know by which columns",
        ),
        (lambda: tm.delta(PLAIN, "t", mode="scd2", sequence="v"), ColumnError, "of type INT, and versions are valid from a TIMESTAMP on"),
        (lambda: tm.delta(PLAIN, "t", mode="scd2", sequence="since"), ColumnError, "no column of the stream"),
        (lambda: tm.delta(PLAIN, "t", mode="upsert", sequence="at"), DefinitionError, "mode='upsert' keeps none"),
        (lambda: tm.delta(PLAIN, "t", mode="scd1"), DefinitionError, "neither an append nor an upsert"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit(declare: Callable[[], object], error: type[TidemarkError], message: str) -> None:
    with pytest.raises(error) as raised:
        declare()
    assert message in str(raised.value)
    assert "Fix: " in str(raised.value)
    assert "test_refusals.py" in str(raised.value)
