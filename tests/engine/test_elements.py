"""Elements given in the program, over several runs: what was read stays as it is, what comes behind it is read once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import ElementsSpec, SourceNode
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k STRING, t BIGINT"
Epoch = Sequence[tuple[object, ...]]
A: Epoch = [("a", 1)]
B: Epoch = [("b", 2), ("c", None)]
C: Epoch = [("d", 3)]


def stored(folder: Path, *epochs: Epoch, read: int = 0) -> list[str]:
    """Store the epochs as a run that has committed some would; returns the names of the files that Spark sees, in its order."""
    from pyspark.sql import types as T

    from tidemark.spark.sources.elements import store_elements

    node = elements(*epochs, schema=SCHEMA).node
    assert isinstance(node, SourceNode)
    assert isinstance(node.spec, ElementsSpec)
    fields = [T.StructField("k", T.StringType()), T.StructField("t", T.LongType()), T.StructField("__tm_row", T.LongType())]
    address = store_elements(node, node.spec, T.StructType(fields), store=JobStore.open(str(folder)), read=read)
    files = Path(address.removeprefix("file://")).iterdir()
    return [file.name for file in sorted(files, key=lambda file: file.stat().st_mtime) if not file.name.startswith("_")]


def test_one_more_epoch_leaves_the_files_before_it(tmp_path: Path) -> None:
    first = stored(tmp_path, A, B)
    assert len(first) == 2
    for _ in range(2):
        assert stored(tmp_path, A, B, read=2) == first
    assert stored(tmp_path, A, B, C, read=2)[:2] == first
    assert len(stored(tmp_path, A, B, C, read=3)) == 3


def test_what_was_not_read_may_change_or_go(tmp_path: Path) -> None:
    first = stored(tmp_path, A, B, C)
    assert stored(tmp_path, A, C, read=1)[:1] == first[:1]
    assert len(stored(tmp_path, A, C, read=1)) == 2
    assert stored(tmp_path, A, B, C, read=1) == first
    assert stored(tmp_path) == []
    assert stored(tmp_path, A) == first[:1]


@pytest.mark.parametrize(("now", "says"), [([A, C], "epoch 1 .*others now"), ([A], "epoch 1 .*gone now"), ([B, A, C], "epoch 0 ")])
def test_what_was_read_may_not(tmp_path: Path, now: list[Epoch], says: str) -> None:
    before = stored(tmp_path, A, B, C)
    with pytest.raises(DefinitionError, match=says) as raised:
        stored(tmp_path, *now, read=2)
    assert "'e'" in str(raised.value)
    assert stored(tmp_path, A, B, C, read=2) == before


@pytest.mark.spark
def test_a_run_with_one_more_epoch_reads_only_that(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(spark, tmp_path)

    def run(*epochs: Epoch) -> list[object]:
        return lab.run({"rows": elements(*epochs, schema=SCHEMA, malformed_to=tm.OutputTag("bad"))}, end_of_input=False).of("rows", "k")

    assert run() == []
    assert run(A) == ["a"]
    assert run(A, B, C) == ["b", "d"]
    with pytest.raises(DefinitionError, match=r"epoch 0 .*read by an earlier run"):
        run(B, B, C)
    assert run(A, B, C, C) == ["d"]
