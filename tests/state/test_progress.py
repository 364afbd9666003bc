from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tidemark.errors import CorruptStoreError
from tidemark.state.log.progress import EpochProgress, decode_progress, encode_progress, format_progress

MakeProgress = Callable[..., EpochProgress]


def test_progress_survives_json(make_progress: MakeProgress) -> None:
    progress = make_progress(3)
    assert decode_progress(json.loads(json.dumps(encode_progress(progress))), path="p") == progress


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": "3"}, "EpochProgress.epoch is '3'"),
        ({"epoch": None}, "EpochProgress.epoch is None"),
        ({"sources": []}, "EpochProgress.sources is"),
        ({"stages": {"plan": 1.5}}, r"stages\['plan'\] is 1.5"),
        ({"surprise": 1}, "unknown surprise"),
        ({"end_of_input": 1}, "end_of_input is 1"),
    ],
)
def test_decoding_is_strict(change: dict[str, object], message: str, make_progress: MakeProgress) -> None:
    with pytest.raises(CorruptStoreError, match=message):
        decode_progress({**encode_progress(make_progress(3)), **change}, path="p")


def test_missing_fields_take_their_defaults_or_are_an_error(make_progress: MakeProgress) -> None:
    plain = encode_progress(make_progress(3))
    assert decode_progress({key: value for key, value in plain.items() if key != "spark_jobs"}, path="p").spark_jobs == 0
    with pytest.raises(CorruptStoreError, match="lacks lineage"):
        decode_progress({key: value for key, value in plain.items() if key != "lineage"}, path="p")


def test_the_log_line_has_what_counts(make_progress: MakeProgress) -> None:
    assert format_progress(replace(make_progress(3), end_of_input=True)) == (
        "taxi epoch 3: in 10, out 3, late 1, malformed 1, watermark 1970-01-01T00:00:05.000Z, lag 1s, "
        "state 10 rows 4,096 B in 1 files, took 250ms (plan 5ms, operators 200ms), end of input"
    )
    assert "\n" not in format_progress(make_progress(3))
