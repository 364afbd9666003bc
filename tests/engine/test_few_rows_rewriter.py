"""Small tables are rewritten without Spark, as Spark rewrites them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from tests.engine.delta_rig import LINEAGE, SESSIONS, Rig, row
from tidemark.spark.sinks.delta.delta_few_rows import MOST_BYTES, MOST_ROWS, FewRowsRewriter
from tidemark.spark.sinks.delta.delta_files import LiveFile
from tidemark.spark.sinks.delta.delta_rewrite import Change, SparkRewriter
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.state.log.records import StagedFile
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "byte": (pa.int8(), [0, 1, -128]),
    "short": (pa.int16(), [0, 1, -32768]),
    "integer": (pa.int32(), [0, 1, -(2**31)]),
    "long": (pa.int64(), [0, 1, -(2**63), 2**63 - 1]),
    "binary": (pa.binary(), [b"", b"\0", b"a"]),
    "date": (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
    "timestamp_ntz": (pa.timestamp("us"), [datetime(1970, 1, 1), datetime(9999, 12, 31)]),  # noqa: DTZ001
    "string": (pa.string(), ["", "a", "A", "ä"]),
}


class WithoutSpark(FewRowsRewriter):
    """Fails where Spark is asked."""

    @property
    def _session(self) -> NoReturn:
        raise AssertionError("Spark is asked")


def struct(*columns: tuple[str, str]) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return json.dumps({"type": "struct", "fields": fields})


def stored(store: JobStore, path: str, rows: pa.Table, **options: Any) -> LiveFile:
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, **options)
    data = buffer.getvalue().to_pybytes()
    store.put(path, data)
    return LiveFile(path, rows.num_rows, len(data), 0, {})


def change(upsert: Upsert, schema: str, *files: LiveFile) -> Change:
    return Change(upsert, schema, tuple(StagedFile(file.path, file.rows or 0, file.bytes, {}) for file in files))


def test_it_rewrites_as_a_dictionary_does(tmp_path: Path) -> None:
    ends = Upsert(("k", "window_end"))
    rig = Rig(tmp_path / "table", ends)
    sink = DeltaSink("rows", str(rig.folder), ends, WithoutSpark(rig.store))
    dice = Random(5)
    for _ in range(25):
        starts = {key: dice.sample([0, 10, 20, None], 2) for key in ("a", "b", "", None)}
        found = {(key, start): row(key, start, dice.randrange(99)) for key, chosen in starts.items() for start in chosen}
        record = rig.stage(*found.values(), files=dice.randrange(1, 3))
        sink.publish(record, LINEAGE, rig.epoch)
        assert rig.rows == rig.expected
    replaced = [int(commit["tidemark.rows_replaced"]) for commit in rig.table.history() if "tidemark.rows_replaced" in commit]
    assert sum(replaced) > 100


@pytest.mark.parametrize("kind", KEYS)
def test_values_and_nulls_of_each_type_are_found(kind: str, tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    arrow, values = KEYS[kind]
    # The second key has nulls on one side only.
    old = pa.table({"k": pa.array([*values, None, None], arrow), "x": pa.array([7] * len(values) + [7, None])})
    new = pa.table({"k": pa.array([values[0], None], arrow), "x": pa.array([7, 7])})
    schema = struct(("k", kind), ("x", "long"))
    files = [stored(store, "old.parquet", old), stored(store, "other.parquet", old.slice(1, 1))]
    rewriter, given = WithoutSpark(store), change(Upsert(("k", "x")), schema, stored(store, "new.parquet", new))
    assert rewriter.touched(given, files) == {"old.parquet": 2}
    (kept,) = rewriter.survivors(schema, given, files, "kept")
    assert pq.read_table(tmp_path / kept.path).to_pylist() == [*old.to_pylist()[1:-2], old.to_pylist()[-1], old.to_pylist()[1]]
    only_nulls = change(Upsert(("k",)), schema, stored(store, "nulls.parquet", new.slice(1)))
    assert rewriter.touched(only_nulls, files) == {"old.parquet": 2}


def test_columns_that_a_file_lacks_are_null(tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    old = stored(store, "old.parquet", pa.table({"k": ["a", "b"], "gone": [1, 2]}))
    new = stored(store, "new.parquet", pa.table({"k": ["a"], "n": [5]}))
    given = change(Upsert(("k",)), struct(("k", "string"), ("n", "long")), new)
    (kept,) = WithoutSpark(store).survivors(struct(("k", "string"), ("gone", "long"), ("n", "long")), given, [old], "kept")
    assert pq.read_table(tmp_path / kept.path).to_pylist() == [{"k": "b", "gone": 2, "n": None}]
    assert (
        WithoutSpark(store).survivors(struct(("k", "string")), given, [stored(store, "all.parquet", pa.table({"k": ["a"]}))], "none") == []
    )


KEYED = Upsert(("k",))


def test_columns_that_a_file_spells_otherwise_are_left_to_spark(tmp_path: Path) -> None:
    store = JobStore.open(str(tmp_path))
    given = change(KEYED, struct(("k", "string"), ("n", "long")), stored(store, "new.parquet", pa.table({"k": ["a"], "n": [5]})))
    old = stored(store, "old.parquet", pa.table({"k": ["a", "b"], "N": [1, 2]}))
    with pytest.raises(AssertionError, match="Spark is asked"):
        WithoutSpark(store).survivors(given.schema, given, [old], "kept")


@dataclass(frozen=True)
class Other:
    """A table that Spark rewrites."""

    kind: str = "string"
    rows: int | None = 1
    size: int = 1
    upsert: Upsert = KEYED
    new_size: int = 1


OTHERS = {
    "NaN": Other("double"),
    "decimals": Other("decimal(38,1)"),
    "rows": Other(rows=MOST_ROWS),
    "bytes": Other(size=MOST_BYTES + 1),
    "bytes of new rows": Other(new_size=MOST_BYTES),
    "unknown rows": Other(rows=None),
    "versions": Other(upsert=Upsert(("k",), versions=True)),
    "sessions": Other(upsert=SESSIONS),
    "a file that is gone": Other(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_spark_rewrites_others(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def touched(_: SparkRewriter, __: Change, files: Sequence[LiveFile]) -> dict[str, int]:
        asked.append(len(files))
        return {}

    def survivors(_: SparkRewriter, __: str, ___: Change, files: Sequence[LiveFile], ____: str) -> list[StagedFile]:
        asked.append(len(files))
        return []

    monkeypatch.setattr(SparkRewriter, "touched", touched)
    monkeypatch.setattr(SparkRewriter, "survivors", survivors)
    other = OTHERS[name]
    times: Any = {"type": "array", "elementType": "timestamp", "containsNull": True}
    schema = struct(("k", other.kind), ("window_start", "timestamp"), ("replaces", times))
    given = Change(other.upsert, schema, (StagedFile("missing.parquet", 1, other.new_size, {}),))
    if name != "a file that is gone":
        monkeypatch.setattr(FewRowsRewriter, "_gone", lambda *_: pytest.fail("a file is read"))
    rewriter = FewRowsRewriter(JobStore.open(str(tmp_path)))
    files = [LiveFile("old.parquet", other.rows, other.size, 0, {})]
    assert (rewriter.touched(given, files), rewriter.survivors(schema, given, files, "kept")) == ({}, [])
    assert asked == [1, 1]


def plain_values(number: int) -> dict[str, Any]:
    """Return a row with a value of each kind that a table may have."""
    return {
        "k": number,
        "text": "ä" * number,
        "exact": [1, None, 3][: number % 4],
        "at": datetime(2024, 3, 31, 1, number, tzinfo=UTC),
        "local": datetime(2024, 3, 31, 1, number),  # noqa: DTZ001
        "day": date(1600, 2, 1 + number),
        "inside": {"a": number, "b": [{"c": None if number % 2 else "x"}]},
        "by": {"x": number, "y": None},
        "raw": b"\0" * number,
        "real": [0.5, float("inf"), None][number % 3],
    }


@pytest.mark.spark
def test_files_are_like_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    text = (
        "k INT, text STRING, exact ARRAY<INT>, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, "
        "inside STRUCT<a: INT, b: ARRAY<STRUCT<c: STRING>>>, by MAP<STRING, INT>, raw BINARY, real DOUBLE"
    )
    rows = [tuple(plain_values(number).values()) for number in range(10)]
    frame = spark.createDataFrame(rows, text).coalesce(1)
    frame.write.parquet(str(tmp_path / "old"))
    frame.where("k % 3 = 1").write.parquet(str(tmp_path / "new"))
    store = JobStore.open(str(tmp_path))

    def listed(folder: str, rows: int) -> list[LiveFile]:
        found = [file for file in store.list(folder) if file.path.endswith(".parquet")]
        return [LiveFile(file.path, rows, file.size, 0, {}) for file in found]

    schema, given, old = frame.schema.json(), change(Upsert(("k",)), frame.schema.json(), *listed("new", 3)), listed("old", 10)
    rewriters = {"driver": WithoutSpark(store), "spark": SparkRewriter(store)}
    kept = {}
    for name, rewriter in rewriters.items():
        assert rewriter.touched(given, old) == {old[0].path: 3}
        (file,) = rewriter.survivors(schema, given, old, name)
        kept[name] = spark.read.parquet(str(tmp_path / file.path))
        assert file.rows == 7
    assert kept["driver"].schema == kept["spark"].schema == frame.schema
    assert _values(kept["driver"].collect()) == _values(kept["spark"].collect())
    assert isinstance(kept["driver"].schema["at"].dataType, T.TimestampType)


def _values(rows: Sequence[Any]) -> list[str]:
    return [str(found) for found in rows]
