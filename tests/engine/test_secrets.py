"""Errors of the libraries below, with credentials in them: neither the message nor the chain of causes shows these."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

import tidemark as tm
from tidemark.errors import EngineError, PublishError, SinkError, SourceError, TidemarkError, UserCodeError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.loop.error_translation import translate
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sources.sources import open_source
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store.store import JobStore

pyspark_errors = pytest.importorskip("pyspark.errors")

SECRET = "hunter2"  # noqa: S105 - what must not be shown
LEAK = f"HTTP 403 for https://lake.example/t/_delta_log?sv=1&sig={SECRET}\nfs.s3a.secret.key={SECRET}"
SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'


def fail(error: Exception) -> Callable[..., object]:
    def act(*_: object, **__: object) -> object:
        raise error

    return act


def check(error: TidemarkError) -> None:
    assert "lake.example/t/_delta_log?<hidden>" in str(error)
    assert SECRET not in "".join(traceback.format_exception(error))


def test_a_table_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.sinks.delta.delta_sink.DeltaTable", fail(DeltaError(LEAK)))
    sink = DeltaSink("rows", str(tmp_path))
    with pytest.raises(SinkError) as raised:
        sink.visible_files()
    check(raised.value)


def test_a_table_that_cannot_be_committed_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSink("rows", str(tmp_path))
    sink.staging.put("tidemark-x/part-0.parquet", b"rows")
    record = OutputRecord("delta", str(tmp_path), SCHEMA, (StagedFile("tidemark-x/part-0.parquet", 1, 1),), 1)
    with monkeypatch.context() as patch:
        patch.setattr("tidemark.spark.sinks.delta.delta_commits.AddAction", fail(OSError(LEAK)))
        with pytest.raises(PublishError) as raised:
            sink.publish(record, "l1", 0)
    check(raised.value)


class Reader:
    """As much of a session as a source's reader needs before it fails."""

    def __getattr__(self, _: str) -> Callable[..., Reader]:
        return lambda *_, **__: self

    @property
    def readStream(self) -> Reader:  # noqa: N802 - Spark's name
        return self

    def load(self, *_: object) -> None:
        raise pyspark_errors.AnalysisException(message=LEAK)


def test_a_source_that_cannot_be_opened(tmp_path: Path) -> None:
    spec = tm.streaming_format("queue", options={"url": "https://lake.example"}, schema="n BIGINT")
    node = tm.source("s", spec, watermarks=tm.ingestion_time()).node
    assert isinstance(node, SourceNode)
    with pytest.raises(SourceError) as raised:
        open_source(Reader(), node, JobStore.open(str(tmp_path)), ordered=False, read=0)  # type: ignore[arg-type]
    check(raised.value)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pyspark_errors.SparkRuntimeException(message=LEAK), EngineError),
        (RuntimeError(LEAK), EngineError),
        (pyspark_errors.PythonException(message=f"Traceback\nValueError: {LEAK.splitlines()[0]}"), UserCodeError),
    ],
)
def test_an_epoch_that_fails(error: Exception, kind: type[TidemarkError]) -> None:
    found = translate(error, job="j", epoch=3, state="/x/state")
    assert type(found) is kind
    check(found)
