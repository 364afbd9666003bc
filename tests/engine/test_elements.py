"""Elements given in the program, over several runs: what was read stays as it is, what comes behind it is read once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as T

import tidemark as tm
from tests.engine.lab import Lab, elements
from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import ElementsSpec
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k STRING, t BIGINT"
Epoch = Sequence[tuple[object, ...]]
A: Epoch = [("a", 1)]
B: Epoch = [("b", 2), ("c", None)]
C: Epoch = [("d", 3)]


def stored(folder: Path, *epochs: Epoch, read: int = 0, nested: str = "") -> list[str]:
    """Store the epochs as a run that has committed some would; returns the names of the files that Spark sees, in its order."""
    from tidemark.spark.sources.elements import store_elements

    node = elements(*epochs, schema=f"{SCHEMA}, s {nested}" if nested else SCHEMA).node
    assert isinstance(node, SourceNode)
    assert isinstance(node.spec, ElementsSpec)
    fields = [T.StructField("k", T.StringType()), T.StructField("t", T.LongType())]
    fields += [*([T.StructField("s", KINDS[nested])] if nested else []), T.StructField("__tm_row", T.LongType())]
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


@pytest.mark.parametrize(("now", "says"), [([A, C], "epoch 1 .*now different"), ([A], "epoch 1 .*now missing"), ([B, A, C], "epoch 0 ")])
def test_what_was_read_may_not(tmp_path: Path, now: list[Epoch], says: str) -> None:
    before = stored(tmp_path, A, B, C)
    with pytest.raises(DefinitionError, match=says) as raised:
        stored(tmp_path, *now, read=2)
    assert "'e'" in str(raised.value)
    assert stored(tmp_path, A, B, C, read=2) == before


ROW = T.StructType([T.StructField("a", T.IntegerType(), nullable=False)])
NESTED = T.StructType([T.StructField("b", ROW)])
KINDS: dict[str, T.DataType] = {
    "STRUCT<a: INT NOT NULL>": ROW,
    "STRUCT<b: STRUCT<a: INT NOT NULL>>": NESTED,
    "ARRAY<STRUCT<a: INT NOT NULL>>": T.ArrayType(ROW),
    "MAP<STRING, STRUCT<a: INT NOT NULL>>": T.MapType(T.StringType(), ROW),
}


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    list(
        zip(
            KINDS,
            ({"a": None}, {"b": {"a": None}}, [{"a": 1}, {"a": None}], {"x": {"a": None}}),
            ("s.a", "s.b.a", "s.a", "s.a"),
            strict=True,
        )
    ),
)
def test_a_field_without_a_value_that_the_schema_requires_is_named(tmp_path: Path, kind: str, value: object, name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"epoch 1\) has no '{name}', which its schema declares NOT NULL"):
        stored(tmp_path, [], [("b", 2, value)], nested=kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "values"),
    list(zip(KINDS, ([None, {"a": 1}], [None, {"b": None}], [None, [], [None, {"a": 1}]], [None, {}, {"x": None}]), strict=True)),
)
def test_a_field_is_required_only_where_its_struct_is_there(tmp_path: Path, kind: str, values: list[object]) -> None:
    assert len(stored(tmp_path, [("b", 2, value) for value in values], nested=kind)) == 1


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
