"""Sums and means over changelogs of decimals that leave no digit for a sum: exact, or an error that names the aggregate."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import tidemark as tm
from tests.group_aggregate.worlds import fold
from tidemark.errors import StateMismatchError, UserCodeError
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 3
SCALES = {"a": 37, "b": 38}
SCHEMA = ", ".join(["t BIGINT", "op STRING", "id INT", "g INT", *(f"{name} DECIMAL(38, {scale})" for name, scale in SCALES.items())])

Values = tuple[Decimal | None, ...]
Group = dict[int, Values]


def value(drawn: random.Random, scale: int) -> Decimal | None:
    """Return a value with digits up to the last one, near the greatest, the least, or zero."""
    if drawn.random() < 0.1:
        return None
    digits = drawn.choice([1, 2, 19, 36, 37, 38, 38, 38])
    return drawn.choice([-1, 1]) * Decimal(drawn.randrange(10**digits)).scaleb(-scale)


def group(drawn: random.Random, ids: Sequence[int]) -> Group:
    """Return rows whose sums and means have types that hold them."""
    while True:
        found = {number: tuple(value(drawn, scale) for scale in SCALES.values()) for number in ids}
        if all(fits(found, place, scale) for place, scale in enumerate(SCALES.values())):
            return found


def fits(rows: Group, place: int, scale: int) -> bool:
    some = [values[place] for values in rows.values() if values[place] is not None]
    total = sum((each for each in some if each is not None), Decimal())
    # The type of a mean has four digits more after the point, as far as there are so many.
    greatest = min(10 ** (38 - scale), max(1, len(some)) * 10 ** (38 - min(38, scale + 4)))
    return bool(abs(total) < greatest)


def programs(seed: int, groups: int) -> list[list[Group]]:
    """Return the content of some groups after each epoch."""
    drawn = random.Random(seed)
    return [[group(drawn, drawn.sample(range(8), drawn.randrange(6))) for _ in range(groups)] for _ in range(EPOCHS)]


def changes(contents: Sequence[Sequence[Group]]) -> list[list[tuple[Any, ...]]]:
    """Return the changes from each content to the next: all rows go, and others come, in an order that may have great sums between."""
    before: Sequence[Group] = [{} for _ in contents[0]]
    epochs = []
    for number, content in enumerate(contents):
        rows: list[tuple[Any, ...]] = [
            (number, "insert", 8 * at + each, at, *values) for at, rows in enumerate(content) for each, values in rows.items()
        ]
        gone: list[tuple[Any, ...]] = [
            (number, "delete", 8 * at + each, at, *values) for at, rows in enumerate(before) for each, values in rows.items()
        ]
        both = {row[2] for row in rows} & {row[2] for row in gone}
        named = [(("update_before", "delete"), gone), (("update_after", "insert"), rows)]
        epochs.append([(row[0], update if row[2] in both else alone, *row[2:]) for (update, alone), some in named for row in some])
        before = content
    return epochs


def aggregates() -> dict[str, tm.Aggregate]:
    return {"n": tm.count()} | {f"sum_{name}": tm.sum(name) for name in SCALES} | {f"avg_{name}": tm.avg(name) for name in SCALES}


def stream(epochs: Sequence[Sequence[tuple[Any, ...]]], chosen: Mapping[str, Any]) -> tm.Stream:
    given = tm.source("changes", tm.from_elements(epochs=epochs, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    return given.as_changelog(key=["id"], operation="op").key_by("g").aggregate(**chosen).uid("sums")


def wanted(rows: Group) -> Mapping[str, Any]:
    """Return the aggregates of a group."""
    found: dict[str, Any] = {"n": len(rows)}
    for place, (name, scale) in enumerate(SCALES.items()):
        some = [values[place] for values in rows.values() if values[place] is not None]
        total = sum((each for each in some if each is not None), Decimal())
        found[f"sum_{name}"] = total if some else None
        found[f"avg_{name}"] = (total / len(some)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP) if some else None
    return found


def run(
    folder: Path, spark: SparkSession, epochs: Sequence[Sequence[tuple[Any, ...]]], chosen: Mapping[str, tm.Aggregate]
) -> list[dict[str, Any]]:
    name = f"{folder}/sums"
    job = tm.Job("greatest", outputs={"sums": tm.memory(stream(epochs, chosen), name)}, store=str(folder / "store"), parallelism=2)
    try:
        tm.run(job, spark=spark, clock=ManualClock(1_800_000_000_000), handle_signals=False)
        table = tm.memory_table(name)
        assert table is not None
        found: list[dict[str, Any]] = table.to_pylist()
        return found
    finally:
        tm.clear_memory(name)


def test_sums_and_means_are_those_of_the_content(spark: SparkSession, tmp_path: Path) -> None:
    with localcontext() as context:
        context.prec = 120
        contents = programs(7, groups=60)
        history = run(tmp_path, spark, changes(contents), aggregates())
        for epoch, content in enumerate(contents):
            found = fold(history, ["g"], epoch)
            groups = {(number,): {"g": number, **wanted(rows)} for number, rows in enumerate(content) if rows}
            assert set(found) == set(groups), epoch
            for key, row in groups.items():
                assert found[key] == row, (epoch, key, content[key[0]])


@pytest.mark.parametrize(("kind", "value", "epoch"), [("sum", Decimal("5.5"), 1), ("avg", Decimal("1.5"), 0)])
def test_what_its_type_does_not_hold_is_refused(
    spark: SparkSession, tmp_path: Path, kind: Literal["sum", "avg"], value: Decimal, epoch: int
) -> None:
    values = [value, None]
    epochs = [[(0, "insert", 1, 5, *values)], [(1, "insert", 2, 5, *values)]]
    with pytest.raises(UserCodeError) as caught:
        run(tmp_path, spark, epochs, {"most": getattr(tm, kind)("a"), "n": tm.count()})
    assert (caught.value.job, caught.value.uid, caught.value.epoch) == ("greatest", "sums", epoch)
    assert f"'most' = {kind}(a)" in str(caught.value)
    assert "DECIMAL(28, 18)" in str(caught.value.fix)


def test_sums_that_an_earlier_release_stored_are_refused_with_what_helps(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = [[(0, "insert", 1, 5, Decimal("1.5"), None)]]
    chosen = {"n": tm.count(), "total": tm.sum("a")}
    with monkeypatch.context() as earlier:
        # Earlier releases kept these sums as those of other decimals.
        earlier.setattr("tidemark.spark.operators.group_aggregate.signed_sums.is_fine", lambda _: False)
        run(tmp_path, spark, epochs, chosen)
    epochs.append([(1, "insert", 2, 5, Decimal("1.5"), None)])
    for again in range(2):
        # The first start knows the types when it has rows; the next one compares them before.
        with pytest.raises(StateMismatchError) as caught:
            run(tmp_path, spark, epochs, chosen)
        assert (caught.value.job, caught.value.uid) == ("greatest", "sums"), again
        assert "the state of the aggregate 'total'" in str(caught.value)
        assert "was stored by an earlier release" in str(caught.value)
        assert "read the input again from its beginning" in str(caught.value.fix)
        assert "a rewind does not help" in str(caught.value.fix)
        assert "start the job again" not in str(caught.value.fix)
        assert "cast it" not in str(caught.value.fix)
