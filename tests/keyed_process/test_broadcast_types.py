"""A broadcast map whose stream has other types than its stored entries: wider ones go on, others are refused, also before a row comes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.seeds import only_long
from tidemark.errors import StateMismatchError
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Rows = tuple[tuple[str | None, int, int], ...]
RULE, ELEMENT = (None, 7, 1), ("a", 0, 0)


def known(element: Mapping[str, Any], ctx: Any) -> Iterator[Mapping[str, Any]]:
    """Emit the map: what its values have, of one column only that."""
    found = {key: dict(value) if len(value) > 1 else value["v"] for key, value in ctx.broadcast["rules"].items()}
    yield {"k": element["k"], "rules": repr(found)}


def same(rows: DataFrame) -> DataFrame:
    """Change nothing; what comes of it is not known to the graph."""
    return rows


@dataclass
class Rules:
    """A job whose elements have no map yet, and its runs with further epochs."""

    spark: SparkSession
    folder: Path
    keyed: bool = True
    hidden: bool = False
    value: str = "v INT"
    epochs: list[Rows] = field(default_factory=list)

    def run(self, key: str, *rows: Any) -> dict[str, str]:
        self.epochs.append(rows)
        elements = tm.from_elements(epochs=self.epochs, schema="k STRING, r INT, v INT")
        read = tm.source("e", elements, watermarks=tm.ascending(timestamp="CAST(r AS BIGINT)"))
        rules = read.filter("k IS NULL").select("k", "r", f"CAST(r AS {key}) AS id", "v", "named_struct('deep', v) AS s")
        rules = rules.transform(same) if self.hidden else rules
        given = read.filter("k IS NOT NULL")
        both = (given.key_by("k") if self.keyed else given).connect(rules.broadcast("rules", key="id", value=self.value))
        made = both.process(known, returns="k STRING, rules STRING").uid("w")
        table = f"{self.folder}/out"
        job = tm.Job("job", outputs={"out": tm.memory(made, table)}, store=str(self.folder / "store"))
        tm.run(job, spark=self.spark, clock=ManualClock(1_700_000_000_000), handle_signals=False)
        found = tm.memory_table(table)
        tm.clear_memory(table)
        return {} if found is None else {row["k"]: row["rules"] for row in found.to_pylist()}


TYPES = [("INT", "STRING"), ("STRING", "INT"), ("BIGINT", "INT"), ("FLOAT", "DOUBLE")]


# Types are compared in one place: functions over elements show that they ask there.
@pytest.mark.parametrize(
    ("before", "now", "keyed"),
    [
        *((*types, True) for types in TYPES),
        (*TYPES[0], False),
        *(pytest.param(*types, False, marks=only_long) for types in TYPES[1:]),
    ],
)
def test_keys_of_another_type_are_refused(spark: SparkSession, tmp_path: Path, before: str, now: str, *, keyed: bool) -> None:
    rules = Rules(spark, tmp_path, keyed=keyed)
    first = rules.run(before, RULE, ELEMENT)
    assert list(first) == ["a"]
    for rows in ((ELEMENT,), (RULE,)):
        with pytest.raises(StateMismatchError, match=f"keys of the broadcast map 'rules' were {before} and are now {now}") as refused:
            rules.run(now, *rows)
        assert (refused.value.job, refused.value.uid) == ("job", "w")
        assert f"CAST(id AS {before})" in str(refused.value)
        rules.epochs.pop()
    assert rules.run(before, ELEMENT) == first


def test_so_are_those_that_only_a_row_shows(spark: SparkSession, tmp_path: Path) -> None:
    rules = Rules(spark, tmp_path, hidden=True)
    rules.run("INT", RULE)
    with pytest.raises(StateMismatchError, match="were INT and are now STRING"):
        rules.run("STRING", RULE)


def test_wider_keys_go_on(spark: SparkSession, tmp_path: Path) -> None:
    rules = Rules(spark, tmp_path)
    rules.run("INT", RULE)
    assert rules.run("BIGINT", ELEMENT) == {"a": "{7: 1}"}
    assert rules.run("BIGINT", (None, 8, 2), (None, 7, 3), ELEMENT) == {"a": "{7: 3, 8: 2}"}
    assert rules.run("DECIMAL(20, 0)", ELEMENT) == {"a": "{7: 3, 8: 2}"}


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "elements"])
def test_values_with_more_columns_go_on(spark: SparkSession, tmp_path: Path, *, keyed: bool) -> None:
    rules = Rules(spark, tmp_path, keyed=keyed)
    rules.run("INT", RULE)
    rules.value = "s STRUCT<deep: INT>, v INT"
    assert rules.run("INT", ELEMENT) == {"a": "{7: {'s': None, 'v': 1}}"}
    entries = tm.savepoint("job", store=str(tmp_path / "store")).tables("w", spark)
    (stored,) = next(each for each in entries.values() if "value" in each.columns).collect()
    assert stored["value"].asDict() == {"s": None, "v": 1}
    assert rules.run("INT", (None, 8, 2), ELEMENT) == {"a": "{7: {'s': None, 'v': 1}, 8: {'s': {'deep': 2}, 'v': 2}}"}
