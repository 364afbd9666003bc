"""Bounds of an epoch's intake, as a source declares them."""

from __future__ import annotations

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError


@pytest.mark.parametrize(
    ("format", "bounds", "options"),
    [
        ("kafka", {"max_rows_per_epoch": 100}, {"maxOffsetsPerTrigger": "100"}),
        ("Kafka", {"max_rows_per_epoch": 100}, {"maxOffsetsPerTrigger": "100"}),
        ("iceberg", {"max_rows_per_epoch": 7}, {"streaming-max-rows-per-micro-batch": "7"}),
        ("delta", {"max_bytes_per_epoch": 1024}, {"maxBytesPerTrigger": "1024"}),
        ("kafka", {}, {}),
    ],
)
def test_a_bound_is_the_formats_own_option(format: str, bounds: dict[str, int], options: dict[str, str]) -> None:
    spec = tm.streaming_format(format, options={"subscribe": "rides"}, **bounds)  # type: ignore[arg-type]
    assert dict(spec.options) == {"subscribe": "rides", **options}


@pytest.mark.parametrize(
    ("format", "options", "bounds", "words"),
    [
        ("delta", {}, {"max_rows_per_epoch": 5}, "max_rows_per_epoch does not go with format 'delta'.*kafka, iceberg"),
        ("kafka", {}, {"max_bytes_per_epoch": 5}, "max_bytes_per_epoch does not go with format 'kafka'.*delta"),
        ("kafka", {"MaxOffsetsPerTrigger": "9"}, {"max_rows_per_epoch": 5}, "say the same"),
        ("kafka", {}, {"max_rows_per_epoch": 0}, "max_rows_per_epoch=0 is not a whole number of 1 or more"),
        ("kafka", {}, {"max_rows_per_epoch": True}, "max_rows_per_epoch=True"),
    ],
)
def test_a_bound_that_cannot_be(format: str, options: dict[str, str], bounds: dict[str, int], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        tm.streaming_format(format, options=options, **bounds)  # type: ignore[arg-type]
