"""Regular joins at random: at each epoch's end the content is the join of both contents, however changes come."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.engine.early_compaction import compact_early
from tests.joins.changelog_programs import Program, changelog, contents_of, joined, keyed, random_program, run_history
from tests.seeds import PROFILE, only_long
from tidemark.spark.operators.changelog import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EPOCHS = 5 if PROFILE == "long" else 3
PROGRAMS = 12
LEFT = "p INT, id INT, z STRING, x INT"
RIGHT = "p INT, rid INT, z STRING, y DOUBLE"
HOWS = ("inner", "left", "right", "full", "semi", "anti")


def programs(seed: int, *, epochs: int = EPOCHS, steps: int = 60) -> tuple[Program, Program]:
    """Return changes of two tables that hold several independent ones, by ``p``; some keys have many partners, some none."""
    drawn = random.Random(seed)
    zones = ["a", "b", "c", "d", None]

    def left() -> dict[str, object]:
        return {"p": drawn.randrange(PROGRAMS), "id": drawn.randrange(5), "z": drawn.choice(zones), "x": drawn.choice([None, 1, 2])}

    def right() -> dict[str, object]:
        y = drawn.choice([None, 0.0, float("inf"), 2.5])
        return {"p": drawn.randrange(PROGRAMS), "rid": drawn.randrange(3), "z": drawn.choice(zones), "y": y}

    return (
        random_program(drawn, ["p", "id"], left, lambda row: {**left(), "p": row["p"], "id": row["id"]}, epochs=epochs, steps=steps),
        random_program(drawn, ["p", "rid"], right, lambda row: {**right(), "p": row["p"], "rid": row["rid"]}, epochs=epochs, steps=steps),
    )


@pytest.mark.parametrize(
    ("parallelism", "hows", "few"),
    [
        (1, ("left", "right", "anti"), True),
        pytest.param(1, HOWS, True, marks=only_long),
        pytest.param(2, ("left", "anti"), False, marks=only_long),
        (7, ("inner", "full", "semi"), False),
    ],
)
def test_the_content_is_the_join_of_both_contents(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallelism: int, hows: Sequence[str], *, few: bool
) -> None:
    one, other = programs(parallelism)
    left, right = changelog("left", one, LEFT, ["p", "id"]), changelog("right", other, RIGHT, ["p", "rid"])
    streams = {how: left.join(right, on=["p", "z"], how=how).uid(how) for how in hows}  # type: ignore[arg-type]
    limit = 50_000 if few else -1
    if not few:
        # Every epoch merges what it finds; of one run all files, whose marks are dropped.
        compact_early(monkeypatch, contents)
        monkeypatch.setattr(contents, "MAX_GARBAGE", 0 if parallelism > 2 else contents.MAX_GARBAGE)
        # Those with up to 20 changes read the pages of their keys.
        monkeypatch.setattr(contents, "LARGE_TABLE", 0)
        monkeypatch.setattr(contents, "FEW_KEYS", 20)
    with (
        mock.patch("tidemark.spark.operators.regular_join.concerned.FEW_ROWS", limit),
        mock.patch("tidemark.spark.operators.base.staged_rows.FEW_ROWS", limit),
        mock.patch("tidemark.spark.operators.base.tables.FEW_ROWS", limit),
    ):
        ran = run_history(spark, tmp_path, streams, parallelism=parallelism)
    for how, history in ran.items():
        alone = how in {"semi", "anti"}
        keys = ["p", "id"] if alone else ["p", "id", "rid"]
        columns = ["p", "id", "z", "x"] if alone else ["p", "id", "z", "x", "rid", "y"]
        assert history, how
        for epoch, found in enumerate(contents_of(history, keys, EPOCHS)):
            expected = joined(one.contents[epoch].values(), other.contents[epoch].values(), [("p", "p"), ("z", "z")], how)
            assert found == keyed(expected, keys, columns), (how, epoch)
