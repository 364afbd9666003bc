"""Changelogs of explicit changes, the newest row of each key and the best rows of groups: each epoch leaves the content of a batch.

Random programs are packed as keys of few runs, and cut into epochs at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import tidemark as tm
from tests.changelog.changes import Histories, Row, contents_of, random_changes, sorted_rows, stream_of
from tests.seeds import PROFILE, only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id INT, zone STRING, price DOUBLE, sold INT, op STRING"
EPOCHS = 3


def sale(random: Random) -> Row:
    """Return a row of one of few keys, with nulls and equal values."""
    return {
        "id": random.choice([None, *range(25)]),
        "zone": random.choice(["north", "south", None]),
        "price": random.choice([None, float("nan"), 1.5, 2.5, 2.5, -0.5]),
        "sold": random.randrange(4),
    }


@contextmanager
def large_state(parallelism: int) -> Iterator[None]:
    """Have operators look up stored rows, and drop outdated ones, as where there are many; not in one task."""
    if parallelism == 1:
        yield
        return
    base = "tidemark.spark.operators"
    few = ("changelog.contents.MANY_ROWS", "changelog.contents.MAX_GARBAGE", "changelog.pairs.MANY_ROWS")
    with ExitStack() as stack:
        for name in few:
            stack.enter_context(mock.patch(f"{base}.{name}", -1))
        # Some epochs change few keys, of which only the pages are read; others more.
        stack.enter_context(mock.patch(f"{base}.changelog.contents.LARGE_TABLE", 0))
        stack.enter_context(mock.patch(f"{base}.changelog.contents.FEW_KEYS", 12))
        yield


def without(streams: Mapping[str, tm.Stream], *names: str) -> dict[str, tm.Stream]:
    """Return streams without some that show what others do; in the long profile all."""
    return {name: stream for name, stream in streams.items() if PROFILE == "long" or name not in names}


def first(rows: Sequence[Row], n: int, by: Sequence[str], order: Callable[[Row], Any], rank: str = "") -> list[Row]:
    """Return the first rows of each group: a computation over all rows that are there."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    best = ((place, row) for members in groups.values() for place, row in enumerate(sorted(members, key=order)[:n], 1))
    return [{**row, rank: place} if rank else row for place, row in best]


def descending(value: float | None) -> tuple[int, float]:
    """Return a number by which values are sorted as ``DESC`` does: NaN, numbers, null."""
    if value is None:
        return (2, 0.0)
    return (0, 0.0) if value != value else (1, -value)  # noqa: PLR0124 - that is NaN


def ascending(value: Any) -> tuple[bool, Any]:
    """Return a key by which values are sorted as ``ASC`` does: null first."""
    return (value is not None, 0 if value is None else value)


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=only_long), 7])
def test_the_content_after_each_epoch_is_that_of_a_batch(spark: SparkSession, tmp_path: Path, parallelism: int) -> None:
    changes, contents = random_changes(parallelism, ["id"], sale, epochs=EPOCHS, each=16)
    given = stream_of(changes, SCHEMA).as_changelog(["id"], operation="op").select("id", "zone", "price", "sold")
    dear, other = tm.OutputTag("dear"), tm.OutputTag("other")
    split = given.split({dear: "price > 2"}, otherwise=other)
    streams = {
        "all": given,
        "dear": given.filter("price > 2"),
        "renamed": given.select(no="id", cents="price * 100"),
        "wider": given.filter("sold > 0").with_columns(sold="sold % 2", double="price * 2"),
        "split": split.side_output(dear),
        "rest": split.side_output(other),
        "top": given.top_n(3, by=["zone"], order="price DESC, sold", rank="place").uid("top"),
        "best": given.top_n(2, by=["zone"], order="price DESC, sold").uid("best"),
        "few": given.filter("sold < 3").top_n(2, order="sold DESC", rank="r").uid("few").filter("r = 2"),
    }
    # ``renamed`` has each row as well, and ``wider`` and ``split`` are filters, too.
    streams = without(streams, "all", "dear")
    with large_state(parallelism):
        histories = Histories(spark, tmp_path).run(streams, parallelism=parallelism)

    def expected(name: str, rows: list[Row]) -> list[Row]:
        in_order = lambda row: (descending(row["price"]), ascending(row["sold"]), ascending(row["id"]))  # noqa: E731
        over = [row for row in rows if row["price"] is not None and (row["price"] > 2 or row["price"] != row["price"])]
        match name:
            case "dear" | "split":
                return over
            case "rest":
                return [row for row in rows if row not in over]
            case "renamed":
                return [{"no": row["id"], "cents": times(100, row["price"])} for row in rows]
            case "wider":
                return [{**row, "sold": row["sold"] % 2, "double": times(2, row["price"])} for row in rows if row["sold"] > 0]
            case "top":
                return first(rows, 3, ["zone"], in_order, "place")
            case "best":
                return first(rows, 2, ["zone"], in_order)
            case "few":
                kept = first([row for row in rows if row["sold"] < 3], 2, [], lambda row: (-row["sold"], ascending(row["id"])), "r")
                return [row for row in kept if row["r"] == 2]
        return rows

    keys = {"renamed": ["no"], "top": ["zone", "place"], "few": ["r"]}
    for name, history in histories.items():
        found = contents_of(map(comparable, history), keys.get(name, ["id"]))
        assert found[: len(contents)] == [sorted_rows(comparable(expected(name, rows))) for rows in contents], name


def times(factor: int, price: float | None) -> float | None:
    """Return a multiple of a price."""
    return None if price is None else price * factor


def comparable(rows: Sequence[Row]) -> list[Row]:
    """Return rows in which NaN is equal to itself."""
    return [{name: "NaN" if value != value else value for name, value in row.items()} for row in rows]  # noqa: PLR0124 - that is NaN


def element(random: Random) -> Row:
    """Return an element of one of few keys."""
    return {
        "id": random.choice([None, *range(12)]),
        "zone": random.choice(["north", "south", None]),
        "version": random.choice([None, *range(8)]),
        "price": random.choice([None, 1.5, 2.5, 2.5, -0.5]),
        "gone": random.random() < 0.25,
    }


@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=only_long), 7])
def test_the_newest_and_the_best_rows_of_elements(spark: SparkSession, tmp_path: Path, parallelism: int) -> None:
    random = Random(parallelism)
    epochs = [[element(random) for _ in range(random.choice([1, 1, 9, 30]))] for _ in range(EPOCHS)]
    given = stream_of(epochs, "id INT, zone STRING, version INT, price DOUBLE, gone BOOLEAN")
    latest = given.latest(by=["id"], deleted="gone").uid("latest")
    newer = given.latest(by=["id", "zone"], sequence="version", deleted="gone").uid("newer")
    streams = {
        "latest": latest,
        "last": given.key_by("zone", "price").deduplicate(keep="last").uid("last"),
        "newer": newer,
        "top": given.top_n(3, by=["zone"], order="version DESC NULLS FIRST, price", rank="place").uid("top"),
        "best": given.top_n(2, by=["id"], order="price DESC", key=["n"]).uid("best"),
        "chain": latest.top_n(2, by=["zone"], order="version", rank="place").uid("chain"),
    }
    # The last element of each key is its newest row: one definition.
    streams = without(streams, "last")
    runs = Histories(spark, tmp_path)
    with large_state(parallelism):
        histories = runs.run(streams, parallelism=parallelism)
    keys = {"last": ["zone", "price"], "newer": ["id", "zone"], "top": ["zone", "place"], "best": ["n"], "chain": ["zone", "place"]}
    numbered = [{"n": n, **row} for n, row in enumerate((row for epoch in epochs for row in epoch), 1)]
    so_far, expected = 0, {name: list[list[Row]]() for name in streams}
    for epoch in epochs:
        so_far += len(epoch)
        content = batch(numbered[:so_far])
        for name, rows in expected.items():
            rows.append(sorted_rows(content[name]))
    for name, history in histories.items():
        assert contents_of(history, keys.get(name, ["id"]))[: len(epochs)] == expected[name], name
    outdated = sum(epoch.operators["newer"].counters.get("outdated", 0) for epoch in runs.result.epochs)
    assert outdated == outdated_of(numbered) > 0


def batch(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the content of each output, computed from all elements so far."""
    newest = {row["id"]: row for row in rows}
    greatest: dict[object, Row] = {}
    for row in rows:
        key = (row["id"], row["zone"])
        if key not in greatest or ascending(row["version"]) >= ascending(greatest[key]["version"]):
            greatest[key] = row
    latest = [row for row in newest.values() if not row["gone"]]
    return {
        "latest": latest,
        "last": list({(row["zone"], row["price"]): row for row in rows}.values()),
        "newer": [row for row in greatest.values() if not row["gone"]],
        "top": first(
            rows, 3, ["zone"], lambda row: (row["version"] is not None, -(row["version"] or 0), ascending(row["price"]), row["n"]), "place"
        ),
        "best": first(rows, 2, ["id"], lambda row: (descending(row["price"]), row["n"])),
        "chain": first(latest, 2, ["zone"], lambda row: (ascending(row["version"]), ascending(row["id"])), "place"),
    }


def outdated_of(rows: Sequence[Row]) -> int:
    """Return how many elements have a lesser version than one of their key that came before."""
    greatest: dict[object, tuple[bool, Any]] = {}
    found = 0
    for row in rows:
        key, version = (row["id"], row["zone"]), ascending(row["version"])
        found += key in greatest and version < greatest[key]
        greatest[key] = max(version, greatest.get(key, version))
    return found
