"""Two outputs at one place are found however the place is spelled; each sink's place is read as the engine reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError

Sink = Callable[[tm.Stream, str], tm.Output]


def job(first: tm.Output, second: tm.Output) -> tm.Job:
    return tm.Job("taxi", outputs={"a": first, "b": second})


def stream() -> tm.Stream:
    return tm.source("trips", tm.from_elements([(1,)], schema="t BIGINT"), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))


@pytest.mark.parametrize("sinks", [(tm.delta, tm.delta), (tm.parquet, tm.parquet), (tm.delta, tm.parquet)])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/x/out", "/x/out/"),
        ("/x/out", "/x/y/../out"),
        ("/x/out", "file:///x/out"),
        ("/x/out", "/x//out/."),
        ("out", "./out"),
        ("out", "{here}/out"),
        ("~/out", "{home}/out"),
        ("s3://lake/out", "s3a://lake/out/"),
        ("gs://lake/out", "gcs://lake/out"),
        ("abfss://box@acme.dfs.core.windows.net/out", "abfs://box@acme.dfs.core.windows.net/out/"),
    ],
)
def test_one_folder_under_two_spellings_is_one_output(
    sinks: tuple[Sink, Sink], one: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spelled = other.format(here=tmp_path, home=Path.home())
    trips = stream()
    with pytest.raises(DefinitionError) as raised:
        job(sinks[0](trips, one), sinks[1](trips, spelled))
    for text in ("'a'", "'b'", repr(one), repr(spelled), "its own path", __file__):
        assert text in str(raised.value)


@pytest.mark.parametrize(("one", "other"), [("/x/out", "/x/out2"), ("/x/out", "s3://x/out"), ("s3://lake/out", "gs://lake/out")])
def test_other_folders_are_other_outputs(one: str, other: str) -> None:
    trips = stream()
    assert len(job(tm.parquet(trips, one), tm.parquet(trips, other)).outputs) == 2


@pytest.mark.parametrize("path", ["ftp://host/out", "s3://key:secret@lake/out", "/x/*/out", "s3://"])
def test_a_place_that_cannot_be_written_to_is_refused_with_its_output(path: str) -> None:
    trips = stream()
    with pytest.raises(DefinitionError) as raised:
        job(tm.delta(trips, "/x/good"), tm.delta(trips, path))
    assert raised.value.uid == "b"
    assert __file__ in str(raised.value)
    assert "secret" not in str(raised.value)
