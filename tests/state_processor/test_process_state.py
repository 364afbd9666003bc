"""The state of process functions as tables: a column per state, timers with their times, the map of a broadcast stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import tidemark as tm
from tidemark.cli.program.main import main
from tidemark.errors import CorruptStoreError, DefinitionError, StateMismatchError
from tidemark.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = [[("a", 1_000, 5), ("b", 2_000, 7), ("it's", 2_500, 2), ("a", 3_000, 1)], [("a", 9_000, 50), ("c", 9_500, 3)]]


class Watch:
    """Keeps the sum and the values of a key, some for five seconds, and says when none has come for ten."""

    total = tm.value_state("BIGINT", default=0)
    recent = tm.map_state("BIGINT", "STRING", ttl=tm.state_ttl("5 seconds", domain="event"))

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterator[Mapping[str, Any]]:
        limit = ctx.broadcast["limits"].get("all", {"v": 100})["v"]
        if element["v"] > limit:
            raise ValueError("above the limit")
        self.total.update(self.total.value() + element["v"])
        self.recent.put(element["v"], element["k"])
        ctx.timer_service().register_event_time_timer(ctx.timestamp + 10_000, "quiet")
        if element["v"] == 7:
            ctx.timer_service().register_processing_time_timer(ctx.current_processing_time() + 60_000)
        yield {"k": element["k"], "total": self.total.value()}

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        del timestamp, ctx
        self.total.clear()


def job_of(store: Path, *, epochs: int = 2) -> tm.Job:
    read = tm.source(
        "e", tm.from_elements(epochs=ROWS[:epochs], schema="k STRING, t BIGINT, v BIGINT"), watermarks=tm.ascending(timestamp="t")
    )
    limits = read.filter("v = 3 OR v = 7").with_columns(all="'all'", v="40L").broadcast("limits", key="all", value="v BIGINT")
    watch = read.key_by("k").connect(limits).process(Watch, returns="k STRING, total BIGINT", on_error=tm.OutputTag("failed")).uid("watch")
    hourly = read.key_by("k").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hourly")
    outputs = {
        "watch": tm.memory(watch, f"{store}/watch"),
        "failed": tm.memory(watch.side_output(tm.OutputTag("failed")), f"{store}/failed"),
        "hourly": tm.memory(hourly, f"{store}/hourly"),
    }
    return tm.Job("job", outputs=outputs, store=str(store))


def test_the_tables_and_the_command(spark: SparkSession, tmp_path: Path) -> None:
    result = tm.run(job_of(tmp_path), spark=spark, clock=ManualClock(1_700_000_000_000), handle_signals=False)
    (progress,) = (epoch.operators["watch"] for epoch in result.epochs[-1:])
    assert (progress.kind, progress.keys, progress.timers) == ("broadcast_process", 4, 5)
    assert dict(progress.counters) == {"failed": 1}
    found = tm.savepoint("job", store=str(tmp_path))
    operator = found.operators["watch"]
    assert (operator.kind, operator.keys, operator.states) == ("broadcast_process", ("k",), ("total", "recent"))
    tables = found.tables("watch", spark)
    assert list(tables) == ["keys", "timers", "broadcast"]
    keys = {row["k"]: (row["total"], row["recent"]) for row in tables["keys"].collect()}
    # The watermark is at 9.499 s: what was put before 4.499 has expired.
    assert keys == {"a": (6, None), "b": (7, None), "it's": (2, None), "c": (3, {3: "c"})}
    timers = [(row["k"], row["domain"], row["due"].astimezone(UTC), row["name"]) for row in found.timers("watch", spark).collect()]
    assert sorted(timer[:2] for timer in timers) == [("a", "event"), ("b", "event"), ("b", "processing"), ("c", "event"), ("it's", "event")]
    assert ("a", "event", datetime.fromtimestamp(13, UTC), "quiet") in timers
    assert ("b", "processing", datetime.fromtimestamp(1_700_000_060, UTC), None) in timers
    assert [(row["key"], row["value"]["v"]) for row in tables["broadcast"].collect()] == [("all", 40)]
    with pytest.raises(StateMismatchError, match="is a broadcast_process operator, and has no windows"):
        found.read_window("watch", spark)

    def shown(*more: str) -> list[dict[str, Any]]:
        done = CliRunner().invoke(main, ["state", "show", "job", "watch", "--store", str(tmp_path), "--json", *more])
        assert done.exit_code == 0, done.output
        assert ("--table shows others: " in done.stderr) != bool(set(more) & {"--timers", "--table", "--broadcast"})
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert shown("--key", "k=it's") == [{"k": "it's", "total": 2, "recent": None}]
    assert [row["k"] for row in shown("--where", "total > 2 OR total < 0", "--key", "k=b")] == ["b"]
    assert shown("--timers", "--key", "k=a") == [{"k": "a", "domain": "event", "due": "1970-01-01T00:00:13+00:00", "name": "quiet"}]
    (with_map,) = shown("--key", "k=c")
    assert with_map == {"k": "c", "total": 3, "recent": {"3": "c"}}
    assert shown("--table", "broadcast") == shown("--broadcast") == [{"key": "all", "value": {"v": 40}}]
    listed = CliRunner().invoke(main, ["state", "show", "job", "--store", str(tmp_path)])
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith("watch"))
    assert line.split()[:6] == ["watch", "states", "broadcast_process", "k", "total,", "recent"]


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of the job after one epoch."""
    found = tmp_path_factory.mktemp("store")
    tm.run(job_of(found, epochs=1), spark=spark, clock=ManualClock(1_700_000_000_000), handle_signals=False)
    return found


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("watch", "--key", "absent=1"), "give NAME=VALUE with one of the keys: k"),
        (("watch", "--key", "k"), "give NAME=VALUE"),
        (("watch", "--timers", "--broadcast"), "--timers and --broadcast are two tables"),
        (("hourly", "--broadcast"), "hourly has no broadcast table: its kind is window; it has: windows"),
        (("hourly", "--table", "keys"), "hourly has no keys table: its kind is window; it has: windows"),
        (("hourly", "--timers"), "hourly has no timers table: its windows fire by rules over their bounds; it has: windows"),
        (("watch", "--table", "key"), "watch has no key table: its kind is broadcast_process; it has: keys, timers, broadcast"),
        (("--timers",), "--timers shows rows of one operator: name it, as in `tidemark state show job"),
        (("--key", "k=a"), "--key shows rows of one operator"),
        (("watch", "--elements"), "has no windows"),
    ],
)
def test_what_there_is_not(store: Path, more: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.env.session.build_session", lambda *_, **__: pytest.fail("Spark is started"))
    done = CliRunner().invoke(main, ["state", "show", "job", *more, "--store", str(store)])
    assert done.exit_code != 0
    assert says in " ".join(str(done.output).split() + str(done.exception).split())


def test_a_savepoint_with_fewer_keys_is_restored(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    tm.run(job_of(tmp_path / "store"), spark=spark, clock=clock, handle_signals=False)
    changed = tm.changed_savepoint(str(tmp_path / "made"), tm.savepoint("job", store=str(tmp_path / "store")), spark=spark)
    with pytest.raises(DefinitionError, match="SQL over the keys of 'watch': k"):
        changed.filter("watch", "total > 3")
    changed.filter("watch", "k IN ('a', 'b')")
    changed.map("watch", lambda rows: rows.withColumn("total__value", rows["total__value"] * 10))
    with pytest.raises(CorruptStoreError, match="rows"):
        changed.map("watch", lambda rows: rows.where("total__value > 60"))
    changed.write("made")
    made = tm.savepoint(f"{tmp_path}/made/")
    tables = made.tables("watch", spark)
    assert {row["k"]: row["total"] for row in tables["keys"].collect()} == {"a": 60, "b": 70}
    assert (tables["timers"].count(), tables["broadcast"].count()) == (3, 1)

    job = job_of(tmp_path / "store")
    tm.import_savepoint(job, f"{tmp_path}/made")
    tm.clear_memory(f"{tmp_path}/store/watch")
    result = tm.run(job, spark=spark, clock=clock, handle_signals=False, restore=tm.Restore("made"), end_of_input=True)
    last = result.epochs[-1].operators["watch"]
    # Only the timer of processing time still waits.
    assert (last.timers_fired, last.keys, last.timers) == (2, 1, 1)
