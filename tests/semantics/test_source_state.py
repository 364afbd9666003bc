from __future__ import annotations

import json

import pytest

from tidemark.errors import CorruptStoreError, FormatError, TidemarkError
from tidemark.semantics.watermarks.watermarks import MAX_WATERMARK, MIN_WATERMARK, SourceState, SplitState, decode_source, encode_source

STATE = SourceState(
    {"p1": SplitState(watermark=94, max_event_time=100, last_active=7, idle=True, rows=3), "p0": SplitState(last_active=5)},
    watermark=94,
    advancing=True,
)
SPLIT = {"watermark": 1, "max_event_time": None, "last_active": 0, "idle": False, "rows": 0}


@pytest.mark.parametrize(
    "state", [STATE, SourceState(split_by="zone"), SourceState({"": SplitState(watermark=MAX_WATERMARK)}, MAX_WATERMARK)]
)
def test_round_trip_through_json(state: SourceState) -> None:
    assert decode_source(json.loads(json.dumps(encode_source(state)))) == state


def test_form_is_frozen() -> None:
    assert json.dumps(encode_source(STATE)) == (
        '{"watermark": 94, "advancing": true, "splits": {'
        f'"p0": {{"watermark": {MIN_WATERMARK}, "max_event_time": null, "last_active": 5, "idle": false, "rows": 0}}, '
        '"p1": {"watermark": 94, "max_event_time": 100, "last_active": 7, "idle": true, "rows": 3}}}'
    )


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ({"watermark": 1, "advancing": False, "splits": {}, "pace": 1}, FormatError, "fields unknown to this release: pace"),
        ({"watermark": 1, "advancing": False, "splits": {"": {**SPLIT, "lag": 0}}}, FormatError, "fields unknown to this release: lag"),
        ({"watermark": 1, "splits": {}}, CorruptStoreError, "lacks advancing"),
        (
            {"watermark": 1, "advancing": False, "splits": {"": {"rows": 0}}},
            CorruptStoreError,
            "split state lacks watermark, max_event_time",
        ),
        ({"watermark": "1", "advancing": False, "splits": {}}, CorruptStoreError, "watermark='1' is no whole number"),
        ({"watermark": True, "advancing": False, "splits": {}}, CorruptStoreError, "watermark=True is no whole number"),
        ({"watermark": 1, "advancing": 0, "splits": {}}, CorruptStoreError, "advancing=0 is neither true nor false"),
        ({"watermark": 1, "advancing": False, "splits": []}, CorruptStoreError, "splits of a source state are no object"),
        ({"watermark": 1, "advancing": False, "splits": {"": None}}, CorruptStoreError, "split state is no object"),
        ({"watermark": 1, "advancing": False, "splits": {"": {**SPLIT, "rows": 0.5}}}, CorruptStoreError, "rows=0.5"),
        ({"watermark": 1, "advancing": False, "splits": {}, "split_by": 7}, CorruptStoreError, "split_by=7 is no text"),
        ([], CorruptStoreError, "source state is no object"),
    ],
)
def test_strict_reading(data: object, error: type[TidemarkError], text: str) -> None:
    with pytest.raises(error) as caught:
        decode_source(data, place="log/7.json")
    assert text in str(caught.value)
    assert "log/7.json" in str(caught.value)
