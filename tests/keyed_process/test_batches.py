"""Functions that take elements in batches: equal to those that take one after the other, wherever both can be written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tidemark.errors import DefinitionError, UserCodeError
from tidemark.testing import OperatorHarness

LARGE, FAILED = tm.OutputTag("large"), tm.OutputTag("failed")
READ = tm.source("rides", tm.files("in", format="json", schema="k STRING, at TIMESTAMP, v BIGINT"), watermarks=tm.ascending(timestamp="at"))
RETURNS = "v BIGINT, total BIGINT, late BOOLEAN"
Row = Mapping[str, Any]


class OneByOne:
    """A running total per key, which timers that were set beforehand begin again; elements above a limit are emitted aside."""

    total = tm.value_state("BIGINT", default=0)
    seen = tm.list_state("BIGINT", ttl=tm.state_ttl("5 seconds"))

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        refuse(element["v"])
        self.total.update(self.total.value() + element["v"])
        self.seen.add(element["v"])
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 1_000)
        if element["v"] > 80:
            ctx.output(LARGE, {"v": element["v"]})
        yield {"v": element["v"], "total": self.total.value(), "late": ctx.timestamp <= ctx.current_watermark()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        yield {"v": timestamp, "total": self.total.value(), "late": ctx.time_domain == "event"}
        self.total.clear()
        if ctx.time_domain == "processing":
            ctx.timer_service().register_event_time_timer(timestamp // 20)
        elif timestamp < 300:
            ctx.timer_service().register_event_time_timer(timestamp + 70)


class InBatches(OneByOne):
    """The same, of many elements at once."""

    process = None  # type: ignore[assignment]

    def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> Iterator[object]:
        values = elements.column("v")
        for value in values.to_pylist():
            refuse(value)
        totals = pc.cumulative_sum(values, start=self.total.value())
        self.total.update(totals[-1].as_py())
        self.seen.add_all(values.to_pylist())
        ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 1_000)
        large = pc.greater(values, 80)
        ctx.output(LARGE, elements.select(["v"]).filter(large))
        late = pc.less_equal(ctx.timestamps, ctx.current_watermark())
        yield pa.RecordBatch.from_arrays([late, totals, values], names=["late", "total", "v"]), ctx.timestamps


def refuse(value: int) -> None:
    if value % 19 == 0:
        raise ValueError("refused")


def harness(function: object) -> OperatorHarness:
    stream = READ.key_by("k").process(function, returns=RETURNS, side_outputs={LARGE: "v BIGINT"}, on_error=FAILED)
    return OperatorHarness(stream.uid("totals"))


def elements() -> st.SearchStrategy[list[list[tuple[str, int, int]]]]:
    element = st.tuples(st.sampled_from("ab"), st.integers(0, 400), st.integers(1, 100))
    return st.lists(st.lists(element, max_size=12), min_size=1, max_size=4)


def outcomes(function: object, epochs: Sequence[Sequence[tuple[str, int, int]]]) -> list[object]:
    run = harness(function)
    found: list[object] = []
    for number, epoch in enumerate(epochs, start=1):
        run.set_processing_time(2_000 * number)
        for key, at, value in epoch:
            run.process({"k": key, "at": at, "v": value}, at=at)
        run.advance_watermark(110 * number)
        failed = sorted((str(row["k"]), row["v"], row["error"]) for row in run.side_output(FAILED))
        found.append((list(run.emitted), run.side_output(LARGE), failed, run.state(), run.timers(), dict(run.counts)))
    return found


@given(elements())
def test_both_emit_the_same_and_keep_the_same(epochs: list[list[tuple[str, int, int]]]) -> None:
    one, other = outcomes(OneByOne(), epochs), outcomes(InBatches(), epochs)
    for before, after in zip(one, other, strict=True):
        assert without_lines(before) == without_lines(after)


def without_lines(found: Any) -> list[object]:
    emitted, large, failed, state, timers, counts = found
    return [emitted, large, [(key, value) for key, value, _ in failed], state, timers, counts]


class Calls:
    """Emits a row for each call, and sets timers."""

    def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> Iterator[Row]:
        yield {"v": elements.num_rows, "total": ctx.timestamp, "late": ctx.timestamps[0].as_py() <= ctx.current_watermark()}
        ctx.timer_service().register_event_time_timer(250)
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 100, "later")

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        yield {"v": 0, "total": timestamp, "late": ctx.time_domain == "event"}


def test_a_batch_ends_before_an_element_at_which_a_timer_is_due() -> None:
    run = harness(Calls())
    for at in (100, 200):
        run.process({"k": "a", "at": at, "v": 1}, at=at)
    assert [(row["v"], row["total"]) for row in run.advance_watermark(200)] == [(2, 200)]
    for at in (240, 251, 252, 290, 301, 400):
        run.process({"k": "a", "at": at, "v": 1}, at=at)
    rows = [(row["v"], row["total"]) for row in run.advance_watermark(350)]
    # The watermark is 250 at 251, and 350 at 400; each call sets the timer of 250 again, and moves the other.
    assert rows == [(1, 240), (0, 250), (4, 301), (0, 250), (1, 400), (0, 250)]


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (7, "process_batch returned 7, not rows"),
        ([7], "process_batch emitted 7 as a row"),
        (pa.record_batch({"v": [1]}), "a batch whose columns are v, and not v, total, late"),
        (pa.record_batch({"v": ["x"], "total": [1], "late": [True]}), "column 'v' is of type STRING and does not fit BIGINT"),
        ((pa.record_batch({"v": [1], "total": [1], "late": [True]}), pa.array([1, 2])), "1 rows with 2 values of int64 as their times"),
        ((pa.record_batch({"v": [1], "total": [1], "late": [True]}), pa.array([1.5])), "1 rows with 1 values of double as their times"),
    ],
)
def test_what_is_no_batch_is_refused(returned: object, what: str) -> None:
    class Returns:
        def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> object:
            del elements, ctx
            return returned

    run = OperatorHarness(READ.key_by("k").process(Returns(), returns=RETURNS).uid("totals"))
    run.process({"k": "a", "at": 1, "v": 1}, at=1)
    with pytest.raises(UserCodeError) as caught:
        run.advance_watermark(10)
    assert what in caught.value.what
    assert caught.value.fix


def test_a_table_is_a_batch_whose_rows_have_the_time_of_the_last_element() -> None:
    class Doubles:
        def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> list[object]:
            del ctx
            table = pa.table({"v": elements.column("v"), "total": pa.nulls(2, pa.int64()), "late": pa.nulls(2, pa.bool_())})
            return [pa.concat_tables([table, table]), table.slice(0, 0)]

    run = OperatorHarness(READ.key_by("k").process(Doubles(), returns=RETURNS).uid("totals"))
    for at in (3, 5):
        run.process({"k": "a", "at": at, "v": at}, at=at)
    assert [row["v"] for row in run.advance_watermark(10)] == [3, 5, 3, 5]
    assert {each.time for each in run.emitted} == {5}


def test_a_function_takes_elements_in_one_way() -> None:
    class Both:
        def process(self, element: Row, ctx: tm.ProcessContext) -> None: ...

        def process_batch(self, elements: pa.RecordBatch, ctx: tm.ProcessContext) -> None: ...

    with pytest.raises(DefinitionError, match="both process and process_batch"):
        tm.check(job_of(READ.key_by("k").process(Both(), returns=RETURNS).uid("totals")))


def job_of(stream: tm.Stream) -> tm.Job:
    return tm.Job("totals", outputs={"totals": tm.memory(stream, "totals")})
