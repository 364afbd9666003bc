"""Bounds of an epoch's intake, as a source declares them."""

from __future__ import annotations

from typing import Any

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


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"max_files_per_epoch": 1, "max_bytes_per_epoch": 1}, "both bound the epochs of one source.*give one of them"),
        ({"options": {"maxFilesPerTrigger": 5}}, "'maxFilesPerTrigger'.*give max_files_per_epoch instead"),
        ({"options": {"maxbytespertrigger": "1g"}}, "'maxBytesPerTrigger'.*give max_bytes_per_epoch instead"),
    ],
)
def test_files_have_one_bound(bounds: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=words):
        tm.files("landing", format="text", **bounds)


def test_options_may_be_numbers_and_truth_values() -> None:
    spec = tm.streaming_format("kafka", options={"maxOffsetsPerTrigger": 9, "includeHeaders": True, "subscribe": "rides"})
    assert spec.options == {"maxOffsetsPerTrigger": "9", "includeHeaders": "true", "subscribe": "rides"}
    assert tm.files("landing", format="csv", schema="a INT", options={"header": False}).options == {"header": "false"}
