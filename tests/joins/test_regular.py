"""Regular joins: chains of them with steps between, columns of any name and type, expressions, and keys that come again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import elements
from tests.joins.changelog_programs import Program, Row, changelog, contents_of, joined, keyed, random_program, run_history
from tests.seeds import PROFILE
from tidemark.errors import UserCodeError
from tidemark.spark.operators.base.tables import HASHING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 3
KEYS = ("a", "b", "c", None)


def table(drawn: random.Random, name: str, other: str) -> Program:
    """Return changes of a table with the key ``<name>_id``, a column ``<name>_<other>`` to be joined on, and a number."""

    def row() -> Row:
        return {f"{name}_id": drawn.randrange(12), f"{name}_{other}": drawn.choice(KEYS), f"{name}_n": drawn.choice([None, *range(5)])}

    return random_program(drawn, [f"{name}_id"], row, lambda was: {**row(), f"{name}_id": was[f"{name}_id"]}, epochs=EPOCHS, steps=27)


def schema(name: str, other: str) -> str:
    return f"{name}_id INT, {name}_{other} STRING, {name}_n INT"


def test_chains_with_steps_between_and_expressions(spark: SparkSession, tmp_path: Path) -> None:
    drawn = random.Random(5)
    a, b, c = table(drawn, "a", "k"), table(drawn, "b", "key"), table(drawn, "c", "K")
    # The second table is empty at first, and the type of its number is known only to Spark.
    b.epochs[:] = [[], *b.epochs[:-1]]
    b.contents[:] = [{}, *b.contents[:-1]]
    lefts = changelog("a", a, schema("a", "k"), ["a_id"]).filter("a_n IS NULL OR a_n > 0")
    rights = changelog("b", b, schema("b", "key"), ["b_id"]).with_columns(b_n="b_n * 1.5")
    thirds = changelog("c", c, schema("c", "K"), ["c_id"])
    first = lefts.join(rights, on={"upper(a_k)": "upper(b_key)"}, how="left").uid("first")
    between = first.filter("b_n IS NULL OR b_n < 5").with_columns(total="a_n + 1")
    chain = between.join(thirds, on={"a_k": "c_K", "a_n": "c_n"}, how="full").uid("second").filter("coalesce(c_id, 1) <> 3")
    # Of the right only whether it is there counts, so that columns of one name are no clash.
    itself = lefts.join(lefts.filter("a_n = 1"), on="a_k", how="semi").uid("itself")
    ran = run_history(spark, tmp_path, {"chain": chain, "itself": itself}, parallelism=3)
    columns = ["a_id", "a_k", "a_n", "b_id", "b_key", "b_n", "total", "c_id", "c_K", "c_n"]
    found = contents_of(ran["chain"], ["a_id", "b_id", "c_id"], EPOCHS)
    alone = contents_of(ran["itself"], ["a_id"], EPOCHS)
    for epoch in range(EPOCHS):
        kept = [row for row in a.contents[epoch].values() if row["a_n"] is None or row["a_n"] > 0]
        scaled: list[Row] = [{**row, "b_n": row["b_n"] and row["b_n"] * 1.5} for row in b.contents[epoch].values()]
        pairs = [row for row in joined(kept, scaled, [("a_k", "b_key")], "left") if row.get("b_n") is None or row["b_n"] < 5]
        more: list[Row] = [{**row, "total": None if row["a_n"] is None else row["a_n"] + 1} for row in pairs]
        whole = joined(more, c.contents[epoch].values(), [("a_k", "c_K"), ("a_n", "c_n")], "full")
        expected = keyed([row for row in whole if row.get("c_id") != 3], ["a_id", "b_id", "c_id"], columns)
        assert {key: as_numbers(row) for key, row in found[epoch].items()} == expected, epoch
        some = joined(kept, [row for row in kept if row["a_n"] == 1], [("a_k", "a_k")], "semi")
        assert alone[epoch] == keyed(some, ["a_id"], ["a_id", "a_k", "a_n"]), epoch


def as_numbers(row: Row) -> Row:
    return {name: float(value) if name == "b_n" and value is not None else value for name, value in row.items()}


def given(name: str, *epochs: list[tuple[Any, ...]], columns: str) -> tm.Stream:
    return elements(*epochs, schema=f"t BIGINT, {columns}", name=name)


@pytest.mark.parametrize("again", [1, 0], ids=["in another epoch", "in one epoch"])
def test_a_key_that_comes_again_is_noticed(spark: SparkSession, tmp_path: Path, again: int) -> None:
    epochs = [[(1, 7, "x")], [(2, 8, "x")]]
    epochs[again].append((3, epochs[0][0][1], "x"))
    left = given("left", *epochs, columns="id INT, k STRING").select("id", "k").as_changelog(key=["id"])
    right = given("right", [(1, 1, "x")], [(2, 2, "x")], columns="rid INT, k STRING").select("rid", "k").as_changelog(key=["rid"])
    with pytest.raises(UserCodeError) as raised:
        run_history(spark, tmp_path, {"pairs": left.join(right, on="k").uid("pairs")})
    assert 'the left input of the join brings the key {"id":7} again' in str(raised.value)
    assert ".latest(by=['id'])" in str(raised.value)
    assert "test_regular.py" in str(raised.value)
    assert (raised.value.job, raised.value.uid) == ("joins", "pairs")


def test_a_key_of_another_type_is_found_and_hashed_again(spark: SparkSession, tmp_path: Path) -> None:
    rows, ids = [[(1, 7)], [(2, 8), (3, 9)], [(4, 14)], [(5, 15)]], (7, 8, 9, 14, 15)

    def run(kind: str, epochs: int) -> dict[str, int]:
        left = given("left", *rows[:epochs], columns="id BIGINT").select(k=f"CAST(id % 7 AS {kind})", id="id").as_changelog(key=["id"])
        others = [[(time, number + 100) for time, number in epoch] for epoch in rows[:epochs]]
        right = given("right", *others, columns="rid BIGINT").select(k=f"CAST((rid - 100) % 7 AS {kind})", rid="rid")
        pairs = left.join(right.as_changelog(key=["rid"]), on="k").uid("pairs")
        job = tm.Job("typed", outputs={"pairs": tm.memory(pairs, f"typed-{kind}")}, store=str(tmp_path / "store"))
        tm.run(job, spark=spark, handle_signals=False)
        record = tm.savepoints_of("typed", store=str(tmp_path / "store")).take(f"after-{epochs}").record
        return {name: number for name, number in record.operators["pairs"].counters.items() if name.startswith(HASHING)}

    as_int, as_long = run("INT", 2), run("BIGINT", 4)
    tables = [tm.memory_table(f"typed-{kind}") for kind in ("INT", "BIGINT")]
    found = [row for table in tables if table is not None for row in table.to_pylist()]
    assert {(row["id"], row["rid"]) for row in found} == {(one, other + 100) for one in ids for other in ids if one % 7 == other % 7}
    assert {row["operation"] for row in found} == {"insert"}
    assert set(as_int) == {f"{HASHING}left", f"{HASHING}right"} == set(as_long)
    assert set(as_int.values()).isdisjoint({0, *as_long.values()}), "rows are hashed as the new type"
    assert 0 not in as_long.values()


def test_a_collation_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    left = given("left", [(1, "A")], columns="k STRING").select(k="collate(k, 'UTF8_LCASE')", id="t").as_changelog(key=["id"])
    right = given("right", [(1, "a")], columns="k STRING").select(k="collate(k, 'UTF8_LCASE')", rid="t").as_changelog(key=["rid"])
    with pytest.raises(UserCodeError, match=r"columns with a collation.*UTF8_LCASE.*lower\("):
        run_history(spark, tmp_path, {"pairs": left.join(right, on="k").uid("pairs")})


def test_two_rows_without_keys_in_a_full_join(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (
        given(name, [(1, None, name)], columns=f"k STRING, {name} STRING").select("k", name).as_changelog(key=["k"])
        for name in ("one", "other")
    )
    with pytest.raises(UserCodeError, match=r"a row whose key is null.*key=\['k', 'of_left'\]"):
        run_history(spark, tmp_path / "refused", {"pairs": left.join(right, on="k", how="full").uid("pairs")})
    marked = given("one", [(1, None, "one")], columns="k STRING, one STRING").select("k", "one", of_left="true")
    pairs = marked.as_changelog(key=["k", "of_left"]).join(right, on="k", how="full").uid("pairs")
    found = run_history(spark, tmp_path / "kept", {"pairs": pairs})["pairs"]
    rows = sorted([(row["k"], row["of_left"], row["one"], row["other"]) for row in found], key=repr)
    assert rows == [(None, None, None, "other"), (None, True, "one", None)]


def test_contents_of_one_row_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    drawn = random.Random(11)
    a, b = table(drawn, "a", "k"), table(drawn, "b", "k")
    one = changelog("a", a, schema("a", "k"), ["a_id"]).filter("a_k = 'a'").aggregate_all(rows=tm.count()).uid("one")
    other = changelog("b", b, schema("b", "k"), ["b_id"])
    sizes = other.filter("b_k = 'a'").aggregate_all(size=tm.count()).uid("sizes")
    joins = {
        "full": one.join(other.with_columns(b_rows="CAST(b_n AS BIGINT)"), on={"rows": "b_rows"}, how="full").uid("full"),
        "both": one.join(sizes, on={"rows": "size"}, how="left").uid("both"),
    }
    if PROFILE == "long":
        joins["left"] = one.join(other.with_columns(b_rows="CAST(b_n AS BIGINT)"), on={"rows": "b_rows"}, how="left").uid("left")
    ran = run_history(spark, tmp_path, joins, parallelism=2)
    columns = {"left": ["rows", "b_id", "b_k", "b_n", "b_rows"], "both": ["rows", "size"]}
    columns["full"] = columns["left"]
    found = {name: contents_of(ran[name], ["b_id"] if name != "both" else [], EPOCHS) for name in joins}
    for epoch in range(EPOCHS):
        counted, counted_b = (
            [{name: rows}] if (rows := sum(row[of] == "a" for row in each.contents[epoch].values())) else []
            for name, of, each in (("rows", "a_k", a), ("size", "b_k", b))
        )
        more: list[Row] = [{**row, "b_rows": row["b_n"]} for row in b.contents[epoch].values()]
        for how in joins.keys() - {"both"}:
            whole = joined(counted, more, [("rows", "b_rows")], how)
            assert found[how][epoch] == keyed(whole, ["b_id"], columns[how]), (how, epoch)
        assert found["both"][epoch] == keyed(joined(counted, counted_b, [("rows", "size")], "left"), [], columns["both"]), epoch


def test_keys_that_are_null_in_part_are_no_row_of_both_in_a_full_join(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (
        given(name, [(1, 1, None, name)], columns=f"k INT, m STRING, {name} STRING").select("k", "m", name).as_changelog(key=["k", "m"])
        for name in ("one", "other")
    )
    with pytest.raises(UserCodeError, match=r"null in part, and both could be one row of the result \(k, m\)"):
        run_history(spark, tmp_path, {"pairs": left.join(right, on=["k", "m"], how="full").uid("pairs")})
