"""State machines and running results in the engine, beyond what programs and the conformance suite show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import NOW, Lab, elements
from tests.few_rows import compiling
from tidemark.errors import UserCodeError
from tidemark.savepoints import SavepointStore
from tidemark.spark.columns.state_files import write_folder
from tidemark.spark.operators.native_keyed import runtime
from tidemark.spark.prepared.prepared_pass import PreparedPass
from tidemark.state.log.parquet_files import ParquetSummary
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "t BIGINT, k STRING, key_k STRING, `a.b` INT, `new` INT, m MAP<STRING, INT>, s STRUCT<x: INT, y: STRING>"


def row(t: int, key: str | None, number: int) -> tuple[object, ...]:
    return t, key, f"own {key}", number, -number, {"n": number}, {"x": number, "y": f"s{number}"}


def in_order(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(found[column] for column in columns) for found in sorted(rows, key=lambda found: found[columns[0]])]


def test_columns_of_any_name_and_type(spark: SparkSession, tmp_path: Path) -> None:
    given = elements([row(1, "a", 1), row(2, "a", 2), row(3, None, 3)], [row(4, "a", 4), row(5, None, 5)], schema=SCHEMA)
    keyed = given.key_by("k", **{"other key": "key_k"})
    without_new = given.select("t", "k", "m", "s", **{"a.b": "`a.b`"}).key_by("k")
    kept = {"map": ("m", "MAP<STRING, INT>"), "a key": ("`new`", "INT"), "s y": ("s.y", "STRING")}
    last = tm.sql_state(kept, returns={"t": "t", "before": "map['n']", "key": "`a key`", "y": "`s y`", "x x": "s.x + `a.b`"})
    grown: dict[str, Any] = {
        "maps": ("map_concat(coalesce(maps, map()), map(CAST(`a.b` AS STRING), s.x))", "MAP<STRING, INT>"),
        "most": ("greatest(most, s.x)", "INT"),
        "items": ("slice(concat(items, array(m['n'])), -2, 2)", "ARRAY<INT>", "array(0, 0)"),
    }
    fold = tm.sql_state(grown, returns={"t": "t", "n": "size(map_keys(new.maps))", "most": "most", "items": "new.items", "m": "m"})
    added = "named_struct('x', a.s.x + b.s.x, 'y', b.s.y)"
    ran = Lab(spark, tmp_path).run(
        {
            "last": keyed.process(last).uid("last"),
            "fold": without_new.process(fold).uid("fold"),
            "merged": keyed.reduce(s=added, t="b.t", ttl=None, **{"a.b": "a.`a.b` * b.`a.b`"}).uid("merged"),
            "best": keyed.max_by("s.x").uid("best"),
            "lists": keyed.running_aggregate(t=tm.max("t"), xs=tm.collect_list("s.x"), of=tm.max_by("m", "t")).uid("lists"),
        }
    )
    assert in_order(ran.rows["last"], "t", "before", "key", "y", "x x") == [
        (1, None, None, None, 2),
        (2, 1, -1, "s1", 4),
        (3, None, None, None, 6),
        (4, 2, -2, "s2", 8),
        (5, 3, -3, "s3", 10),
    ]
    assert in_order(ran.rows["fold"], "t", "n", "most", "items") == [
        (1, 1, None, [0, 1]),
        (2, 2, 1, [1, 2]),
        (3, 1, None, [0, 3]),
        (4, 3, 2, [2, 4]),
        (5, 2, 3, [3, 5]),
    ]
    assert in_order(ran.rows["merged"], "t", "other key", "a.b", "s") == [
        (1, "own a", 1, {"x": 1, "y": "s1"}),
        (2, "own a", 2, {"x": 3, "y": "s2"}),
        (3, "own None", 3, {"x": 3, "y": "s3"}),
        (4, "own a", 8, {"x": 7, "y": "s4"}),
        (5, "own None", 15, {"x": 8, "y": "s5"}),
    ]
    assert [(found["t"], dict(found["m"])) for found in ran.rows["best"] if found["k"] == "a"] == [(n, {"n": n}) for n in (1, 2, 4)]
    assert in_order(ran.rows["lists"], "t", "xs") == [(1, [1]), (2, [1, 2]), (3, [3]), (4, [1, 2, 4]), (5, [3, 5])]


def test_results_are_not_evaluated_for_elements_that_emit_none(spark: SparkSession, tmp_path: Path) -> None:
    given = elements([(1, "a", 0), (2, "a", 4), (3, "a", 2)], [(4, "a", 0), (5, "a", 1)], schema="t BIGINT, k STRING, v INT").key_by("k")
    last = tm.sql_state({"last": ("v", "INT")}, emit_when="last <> 0", returns={"t": "t", "ratio": "v / last"})
    fold = tm.sql_state({"sum": ("sum + v", "INT", "0")}, emit_when="sum <> 0", returns={"t": "t", "ratio": "v / sum"})
    ran = Lab(spark, tmp_path).run({"last": given.process(last).uid("last"), "fold": given.process(fold).uid("fold")})
    assert in_order(ran.rows["last"], "t", "ratio") == [(3, 0.5), (4, 0.0)]
    assert in_order(ran.rows["fold"], "t", "ratio") == [(3, 0.5), (4, 0.0), (5, 1 / 6)]


@pytest.mark.parametrize("fields", [{"n": ("CAST(zone AS INT)", "INT")}, {"n": ("coalesce(n, 0) + CAST(zone AS INT)", "INT")}])
def test_an_expression_that_fails_is_named(spark: SparkSession, tmp_path: Path, fields: dict[str, tuple[str, str]]) -> None:
    stream = elements([(1, "a", "north")], schema="t BIGINT, k STRING, zone STRING").key_by("k")
    failing = stream.process(tm.sql_state(fields, returns={"n": "new.n"})).uid("numbers")
    with pytest.raises(UserCodeError, match="CAST_INVALID_INPUT") as caught:
        Lab(spark, tmp_path).run({"o": failing})
    assert "field 'n'" in caught.value.what
    assert (caught.value.uid, (caught.value.place or "").rpartition(":")[0]) == ("numbers", __file__)


def test_a_changed_job_keeps_the_fields_and_their_lifetimes(spark: SparkSession, tmp_path: Path) -> None:
    epochs = [[(1, "a", 1), (2, "b", 5)], [(3, "a", 2), (3, "c", 7)], [(4, "a", 1), (4, "b", 6), (4, "c", 2)]]
    lab = Lab(spark, tmp_path)

    def run(count: int, fields: Any, ttl: Any = None, **settings: Any) -> list[tuple[Any, ...]]:
        stream = elements(*epochs[:count], schema="t BIGINT, k STRING, v INT").key_by("k")
        machine = tm.sql_state(fields, returns={"k": "k", **{name: f"new.{name}" for name in fields}}, ttl=ttl)
        job = tm.Job("job", outputs={"o": tm.memory(stream.process(machine).uid("m"), str(tmp_path))}, store=str(tmp_path / "store"))
        tm.run(job, spark=spark, clock=lab.clock, handle_signals=False, **settings)
        table = tm.memory_table(str(tmp_path))
        tm.clear_memory(str(tmp_path))
        assert table is not None
        return in_order(table.to_pylist(), "k", *fields)

    assert run(1, {"n": ("n + 1", "INT", "0")}) == [("a", 1), ("b", 1)]
    # Wider, with a field beside it, and from now on a lifetime.
    wider = {"n": ("n + 1", "BIGINT", "0"), "most": ("greatest(most, v)", "INT", "3")}
    ttl = tm.state_ttl("10 minutes")
    assert run(2, wider, ttl) == [("a", 2, 3), ("c", 1, 7)]
    lab.clock.set(NOW + 700_000)
    SavepointStore(JobStore.open(str(tmp_path / "store")), "job").take("two")
    restore = tm.Restore("two", columns={"m": {"n": None, "most": "top"}})
    # What was written since there is a lifetime has expired.
    assert run(3, {"top": ("greatest(top, v)", "INT", "0")}, ttl, restore=restore) == [("a", 1), ("b", 6), ("c", 2)]
    kept = tm.savepoint("job", store=str(tmp_path / "store")).tables("m", spark)["keys"]
    assert sorted(map(tuple, kept.collect())) == [("a", 1), ("b", 6), ("c", 2)]


def test_a_fold_runs_in_methods_that_java_compiles(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit, found = "spark.sql.codegen.hugeMethodLimit", list[tuple[str, int]]()
    session = compiling(spark)
    before = session.conf.get(limit)

    def noted(rows: DataFrame, *arguments: Any, **named: Any) -> list[ParquetSummary]:
        generated = rows._jdf.queryExecution().debug().codegenToSeq()  # noqa: SLF001 - Python has no public way to ask
        sizes = [generated.apply(number).productElement(2).maxMethodCodeSize() for number in range(generated.size())]
        found.append((str(rows.sparkSession.conf.get(limit)), max(sizes)))
        return write_folder(rows, *arguments, **named)

    monkeypatch.setattr(runtime, "write_folder", noted)
    # Else the first epochs, which have few rows, would interpret their expressions.
    monkeypatch.setattr(PreparedPass, "PREPARED_AFTER", 0)
    each = "CASE WHEN t div 10 < ten THEN {0} WHEN t div 10 = ten THEN {0} + {1} ELSE {1} END"
    fields = {
        "ten": ("greatest(ten, t div 10)", "BIGINT"),
        "total": (each.format("total", "v"), "DOUBLE"),
        "n": (each.format("n", "1L"), "BIGINT"),
    }
    machine = tm.sql_state(fields, emit_when="t div 10 <> ten", returns={"t": "t", "ten": "ten", "total": "total", "n": "n"})
    given = elements([(1, "a", 1.0), (5, "a", 2.0), (12, "a", 4.0)], [(25, "a", 8.0)], schema="t BIGINT, k STRING, v DOUBLE")
    ran = Lab(session, tmp_path).run({"tens": given.key_by("k").process(machine).uid("tens")})
    assert in_order(ran.rows["tens"], "t", "ten", "total", "n") == [(12, 0, 3.0, 2), (25, 1, 4.0, 1)]
    # Spark itself makes one method of the stage, with more bytes than Java compiles.
    assert {given for given, _ in found} == {"8000"}
    assert found[0][1] > 8_000
    assert session.conf.get(limit) == before
