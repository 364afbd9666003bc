"""Functions over streams without keys in jobs: the order of rows, sinks that upsert, stored maps, errors, opening and closing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.async_map.test_in_engine import DAYS, NOW, elements, epoch_of, noted, rows_of
from tidemark.cli.program.main import main
from tidemark.errors import TidemarkError
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = Mapping[str, Any]
SEEN, FAILED = tm.OutputTag("seen"), tm.OutputTag("refused")


def run(job: tm.Job, spark: SparkSession, **settings: Any) -> list[EpochProgress]:
    found: list[EpochProgress] = []
    tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=found.append, handle_signals=False, **settings)
    return found


@dataclass
class Step:
    """A row of the function below."""

    half: int
    step: int


def steps(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    """Yield three rows of one key."""
    for number in range(3):
        yield {"half": element["id"] // 2, "step": 10 * element["id"] + number}
    ctx.output(SEEN, {"id": element["id"], "watermark": ctx.current_watermark(), "now": ctx.current_processing_time()})


def test_an_upserting_sink_keeps_the_row_that_was_emitted_last_of_the_last_element(spark: SparkSession, tmp_path: Path) -> None:
    backwards = [(number, NOW - DAYS + number) for number in reversed(range(40))]
    stream = elements(backwards, epoch_of(40, 10)).process(
        steps, returns=Step, side_outputs={SEEN: "id BIGINT, watermark BIGINT, now BIGINT"}
    )
    outputs = {
        "newest": tm.delta(stream, str(tmp_path / "newest"), mode="upsert", keys=["half"]),
        "seen": tm.memory(stream.side_output(SEEN), f"{tmp_path}/seen"),
    }
    progress = run(tm.Job("steps", outputs=outputs, store=str(tmp_path / "store")), spark)
    newest = spark.read.parquet(*tm_files(tmp_path / "newest")).collect()
    # An element's rows are later than those of the elements before it, by position; here that is against their times.
    assert {row["half"]: row["step"] % 10 for row in newest} == dict.fromkeys(range(25), 2)
    seen = rows_of(f"{tmp_path}/seen")
    assert {row["now"] for row in seen} == {NOW}
    first = {row["watermark"] for row in seen if row["id"] < 40}
    assert first == {-(2**63)}, "the watermark is the one that the epoch began with"
    assert {row["watermark"] for row in seen if row["id"] >= 40} == {NOW - DAYS + 39 - 1_000 - 1}
    (operators,) = {tuple(epoch.operators) for epoch in progress}
    assert operators[0].startswith("element_process-")


def tm_files(folder: Path) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(str(folder)).file_uris()


class Opened:
    """Notes when it is opened and closed, and fails in between for one element."""

    def __init__(self, folder: Path, *, fails: bool) -> None:
        self.folder = str(folder)
        self.fails = fails

    def open(self, ctx: tm.ProcessContext) -> None:
        del ctx
        self._note("opened")

    def close(self) -> None:
        self._note("closed")

    def _note(self, name: str) -> None:
        with Path(self.folder, name).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        if self.fails and element["id"] == 3:
            raise ZeroDivisionError("three")  # the line that is shown
        yield {"id": element["id"]}


@pytest.mark.parametrize("fails", [False, True])
def test_a_function_is_opened_once_per_task_and_closed_also_where_it_fails(spark: SparkSession, tmp_path: Path, *, fails: bool) -> None:
    stream = elements(epoch_of(0, 30)).process(Opened(tmp_path, fails=fails), returns="id BIGINT").uid("opened")
    job = tm.Job("opening", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "store"))
    if fails:
        with pytest.raises(TidemarkError) as caught:
            run(job, spark)
        assert "Opened raised ZeroDivisionError: three in `raise ZeroDivisionError(" in caught.value.what
        assert "element {'id': 3" in caught.value.what
        assert (caught.value.job, caught.value.uid) == ("opening", "opened")
        assert (caught.value.place or "").startswith(__file__)
    else:
        run(job, spark)
        assert sorted(row["id"] for row in rows_of(f"{tmp_path}/o")) == list(range(30))
    opened = Counter(noted(tmp_path, "opened"))
    assert opened
    assert opened == Counter(noted(tmp_path, "closed"))


def priced(element: Row, ctx: tm.ProcessContext) -> Row:
    price = ctx.broadcast["prices"].get(element["id"] % 3)
    return {"id": element["id"], "price": price["at"] if price else None}


def passed_on(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    del ctx
    yield {"id": element["id"]}


def kept(element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
    yield {"id": element["id"], "known": len(ctx.broadcast["prices"])}


def test_a_broadcast_map_is_a_table_of_the_state_and_survives_restores(spark: SparkSession, tmp_path: Path) -> None:
    rides = elements(epoch_of(0, 6), epoch_of(6, 6))
    prices = rides.filter("id < 3").broadcast("prices", key="id", value="at BIGINT")
    streams = {
        "priced": rides.filter("id >= 3").connect(prices).map(priced, returns="id BIGINT, price BIGINT").uid("priced"),
        "plain": rides.process(passed_on, returns="id BIGINT").uid("plain"),
        "kept": rides.key_by("id").connect(prices).process(kept, returns="id BIGINT, known BIGINT").uid("kept"),
    }
    outputs = {name: tm.memory(stream, f"{tmp_path}/{name}") for name, stream in streams.items()}
    job = tm.Job("prices", outputs=outputs, store=str(tmp_path / "store"))
    run(job, spark, max_epochs=1)
    state = tm.savepoint(job, store=str(tmp_path / "store"))
    for uid in ("priced", "kept"):
        stored = state.tables(uid, spark)["broadcast"].collect()
        assert {row["key"]: row["value"]["at"] for row in stored} == {number: NOW - DAYS + number for number in range(3)}
    assert list(state.tables("priced", spark)) == ["broadcast"]
    assert (state.operators["plain"].keeps, dict(state.tables("plain", spark))) == ("nothing", {})
    assert sorted(state.register(spark, "of_prices_")) == ["kept", "priced"]
    shown = CliRunner().invoke(main, ["state", "show", "prices", "--store", str(tmp_path / "store")])
    assert "nothing" in shown.output
    refused = CliRunner().invoke(main, ["state", "show", "prices", "plain", "--store", str(tmp_path / "store")])
    assert refused.exit_code
    assert "'plain' of prices keeps no state: its kind is element_process" in refused.output
    tm.savepoints_of("prices", store=str(tmp_path / "store")).take("one")
    rows_of(f"{tmp_path}/priced")
    rows_of(f"{tmp_path}/kept")
    run(job, spark, restore=tm.Restore("one"))
    assert {row["id"]: row["price"] for row in rows_of(f"{tmp_path}/priced")} == {n: NOW - DAYS + n % 3 for n in range(6, 12)}
    assert {row["known"] for row in rows_of(f"{tmp_path}/kept")} == {3}


def test_other_values_of_a_broadcast_map_do_not_fit_its_state(spark: SparkSession, tmp_path: Path) -> None:
    def job(value: str) -> tm.Job:
        rides = elements(epoch_of(0, 6), epoch_of(6, 6))
        prices = rides.filter("id < 3").broadcast("prices", key="id", value=value)
        stream = rides.connect(prices).filter(lambda element, ctx: element["id"] in ctx.broadcast["prices"]).uid("known")
        return tm.Job("prices", outputs={"o": tm.memory(stream, f"{tmp_path}/o")}, store=str(tmp_path / "store"))

    run(job("at BIGINT"), spark, max_epochs=1)
    with pytest.raises(TidemarkError, match="the broadcast map 'prices' has other keys or values") as caught:
        run(job("id BIGINT"), spark)
    assert caught.value.code == "TM413"
    rows_of(f"{tmp_path}/o")


def test_a_job_explains_and_schedules_its_functions(tmp_path: Path) -> None:
    async def named(row: Row) -> Row:
        return row

    rides = elements(epoch_of(0, 6))
    stream = rides.process(steps, returns=Step, side_outputs={SEEN: "id BIGINT"}, on_error=FAILED)
    job = tm.Job(
        "explained",
        outputs={
            "o": tm.memory(stream.async_map(named, returns=Step, ordered=False, retries=0), "o"),
            "seen": tm.memory(stream.side_output(SEEN), "seen"),
            "refused": tm.memory(stream.side_output(FAILED), "refused"),
        },
        store=str(tmp_path / "store"),
    )
    text = job.explain()
    assert "process with steps, returns `half` BIGINT, `step` BIGINT" in text
    assert "async_map with named" in text
    assert "100 at once, in any order, within 30s, 0 retries" in text
