"""Process functions at odd times and with odd values, in the harness: before 1970, without a watermark, NaN, values that are changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

import tidemark as tm
from tidemark.graph.expressions.expressions import Site
from tidemark.semantics.user_rows import rows_of
from tidemark.testing import OperatorHarness
from tidemark.testing.sql_values import sql_value

Row = Mapping[str, Any]
FAILED, ASIDE = tm.OutputTag("failed"), tm.OutputTag("aside")
READ = tm.source("rides", tm.files("in", format="json", schema="k STRING, at TIMESTAMP, v BIGINT"), watermarks=tm.ascending(timestamp="at"))
NO_WATERMARK = -(2**63)


def harness(function: object, returns: str = "v BIGINT") -> OperatorHarness:
    return OperatorHarness(READ.key_by("k").process(function, returns=returns, on_error=FAILED).uid("odd"))


class Last:
    """Keeps the last value for a second of the watermark, and emits the one before."""

    last = tm.value_state("BIGINT", ttl=tm.state_ttl("1 second", domain="event"))
    all = tm.list_state("BIGINT", ttl=tm.state_ttl("1 second", domain="event"))
    by_value = tm.map_state("BIGINT", "BIGINT", ttl=tm.state_ttl("1 second", domain="event"))

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        yield {"v": self.last.value()}
        self.last.update(element["v"])
        self.all.add(element["v"])
        self.by_value.put(element["v"], 1)


def test_state_expires_before_1970_too() -> None:
    ended = harness(Last())
    ended.process({"k": "a", "v": 1}, at=-100_000)
    ended.advance_watermark(-100_000)
    assert ended.state() == [{"k": "a", "last": 1, "all": [1], "by_value": {1: 1}}]
    # The watermark at the element was one less than its time.
    ended.advance_watermark(-99_002)
    assert len(ended.state()) == 1
    ended.advance_watermark(-99_001)
    assert ended.state() == []


def test_state_that_was_written_before_there_was_a_watermark_lives_from_the_first_one() -> None:
    waiting = harness(Last())
    for number in (1, 2):
        waiting.process({"k": "a", "v": number}, at=5_000 + number)
        waiting.advance_watermark(NO_WATERMARK)
    waiting.process({"k": "a", "v": 3}, at=10_000)
    assert waiting.advance_watermark(10_500) == [{"v": 2}]
    assert waiting.state() == [{"k": "a", "last": 3, "all": [1, 2, 3], "by_value": {1: 1, 2: 1, 3: 1}}]
    # The third was written at 9,999, the others live from 10,500.
    waiting.advance_watermark(11_499)
    assert waiting.state() == [{"k": "a", "last": None, "all": [1, 2], "by_value": {1: 1, 2: 1}}]
    waiting.advance_watermark(11_500)
    assert waiting.state() == []


def test_so_does_what_other_kinds_keep() -> None:
    counts = OperatorHarness(READ.key_by("k").running_aggregate(n=tm.count(), ttl=tm.state_ttl("1 second", domain="event")).uid("counts"))
    for at in (5_000, 6_000):
        counts.process({"k": "a", "v": 1}, at=at)
        counts.advance_watermark(NO_WATERMARK)
    counts.process({"k": "a", "v": 1}, at=10_000)
    assert counts.advance_watermark(10_500) == [{"k": "a", "n": 3}]
    counts.advance_watermark(10_999)
    assert counts.state() == []


class Keeps:
    """Has a key for each of its elements."""

    seen = tm.map_state("DOUBLE", "BIGINT")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        self.seen.put(float("nan"), element["v"])
        yield {"v": len(list(self.seen.keys())) * 10 + self.seen.get(float("nan"))}


def test_nan_is_one_key_of_a_map() -> None:
    nan = harness(Keeps())
    for number in range(2):
        nan.process({"k": "a", "v": number}, at=number)
    assert nan.advance_watermark(5) == [{"v": 10}, {"v": 11}]


class Counts:
    """Counts the elements of a key."""

    n = tm.value_state("BIGINT", default=0)

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del element, ctx
        self.n.update(self.n.value() + 1)
        yield {"n": self.n.value()}


def test_nan_is_one_key_of_a_stream_and_so_are_both_zeros() -> None:
    read = tm.source("numbers", tm.files("in", format="json", schema="at TIMESTAMP, v DOUBLE"), watermarks=tm.ascending(timestamp="at"))
    made = (read.key_by("v").process(Counts, returns="n BIGINT"), read.key_by("v").running_aggregate(n=tm.count()))
    for each in made:
        counted = OperatorHarness(each.uid("counted"))
        found = []
        for number, value in enumerate([float("nan"), 0.0, None, float("nan"), -0.0, None]):
            counted.process({"v": value}, at=number)
            found += [row["n"] for row in counted.advance_watermark(number)]
        assert found == [1, 1, 1, 2, 2, 2]


class Nested:
    """Changes what it reads."""

    tags = tm.value_state("MAP<STRING, ARRAY<BIGINT>>")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        if element["v"] == 0:
            self.tags.update({"a": [1]})
        dict(self.tags.value())["a"].append(2)
        yield {"v": len(dict(self.tags.value())["a"])}


def test_a_change_of_a_list_in_a_map_changes_no_state() -> None:
    nested = harness(Nested())
    for number in range(3):
        nested.process({"k": "a", "v": number}, at=number)
    assert nested.advance_watermark(5) == [{"v": 1}] * 3


class OneDict:
    """Emits the same dict again and again, with other values."""

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del element
        row = {"v": 0}
        for number in range(3):
            row["v"] = number
            ctx.output(ASIDE, row)
            yield row


@pytest.mark.parametrize("on_error", [None, FAILED])
def test_a_row_is_what_it_was_when_it_was_emitted(on_error: tm.OutputTag | None) -> None:
    made = READ.key_by("k").process(OneDict, returns="v BIGINT", side_outputs={ASIDE: "v BIGINT"}, on_error=on_error)
    again = OperatorHarness(made.uid("again"))
    again.process({"k": "a", "v": 7}, at=1)
    expected = [{"v": 0}, {"v": 1}, {"v": 2}]
    assert again.advance_watermark(5) == expected
    assert again.side_output(ASIDE) == expected
    # A task of the engine writes rows later than they are emitted.
    rows = [*rows_of(OneDict().process({}, cast("tm.ProcessContext", Ignored())), "process")]
    assert rows == expected


class Ignored:
    """A context that takes nothing."""

    def output(self, tag: tm.OutputTag, row: Row) -> None:
        """Take nothing."""


class Spoils:
    """Changes its element, and fails."""

    def process(self, element: dict[str, Any], ctx: tm.ProcessContext) -> None:
        del ctx
        element["v"] = -1
        raise ValueError("refused")


def test_a_failed_element_is_as_it_came() -> None:
    spoils = harness(Spoils())
    spoils.process({"k": "a", "v": 7}, at=1)
    spoils.advance_watermark(5)
    (failed,) = spoils.side_output(FAILED)
    assert (failed["k"], failed["v"]) == ("a", 7)
    assert spoils.counts == {"in": 1, "accepted": 0, "failed": 1}


def test_a_filter_that_changes_its_element_lets_it_pass_as_it_came() -> None:
    def spoiled(element: Any, ctx: tm.ProcessContext) -> bool:
        del ctx
        element["v"] = -1
        return True

    passing = OperatorHarness(READ.connect(READ.broadcast("rules", key="k", value="v BIGINT")).filter(spoiled).uid("passing"))
    passing.process({"k": "a", "v": 7}, at=1, port="elements")
    assert passing.advance_watermark(5) == [{"k": "a", "v": 7}]


def test_what_is_no_row_of_an_asynchronous_function_is_put_aside() -> None:
    async def invoked(row: Row) -> Any:
        return row["v"]

    wrong = OperatorHarness(READ.async_map(invoked, returns="v BIGINT", on_error=FAILED))
    wrong.process({"k": "a", "v": 7}, at=1)
    assert wrong.advance_watermark(5) == []
    assert wrong.counts == {"in": 1, "accepted": 0, "failed": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v = v", True),
        ("v > 1e300", True),
        ("v < 1.0", False),
        ("v <=> v", True),
        ("nullif(v, v)", None),
        ("n % 10", 9),
        ("-n % 10", -9),
        ("n % -10", 9),
        ("-7.5 % 2", -1.5),
    ],
)
def test_the_harness_compares_and_divides_as_spark_does(text: str, expected: object) -> None:
    assert sql_value(text, {"v": float("nan"), "n": 10**18 + 999}, Site("example", "")) == expected
