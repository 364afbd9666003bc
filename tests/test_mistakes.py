"""The mistakes of the first hours: none is silent, none ends in a bare Python error, and docs/reference/faults.md shows each."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

import tidemark as tm
from tests.refused_commands import RefusedError, command, started_with
from tests.savepoints.delta_jobs import job_with_tables, run_epoch
from tests.upgrade.upgrade_worlds import fits
from tidemark.control.forks import forks
from tidemark.control.rewind.rewind_job import Rewinder
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = Path(__file__).parent.parent / "docs" / "reference" / "faults.md"
HEADING: Final = "## Mistakes and their messages"
HOUR: Final = 3_600_000
ROWS: Final = [("ann", 1 * HOUR, 4.0), ("bob", 2 * HOUR, 1.5)]
LATER: Final = [("ann", 5 * HOUR, 2.0)]
SCHEMA: Final = "user STRING, at BIGINT, amount DOUBLE"
LATE: Final = tm.OutputTag("late")
TIMED: Final = tm.bounded_out_of_orderness("1 second", timestamp="at")

pytestmark = pytest.mark.spark


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


def amount_column() -> Any:
    from pyspark.sql import functions as F

    return F.col("amount")


def timed_by(timestamp: str) -> tm.Stream:
    return tm.source("p", tm.from_elements(ROWS, schema=SCHEMA), watermarks=tm.ascending(timestamp=timestamp))


@dataclass
class Place:
    """A folder with a job that has run once, and what runs and stores it."""

    folder: Path
    spark: SparkSession

    def at(self, name: str) -> str:
        return str(self.folder / name)

    def rows(self, name: str = "payments") -> tm.Stream:
        return tm.source(name, tm.from_elements(epochs=[ROWS], schema=SCHEMA), watermarks=TIMED)

    def keyed(self) -> tm.KeyedStream:
        return self.rows().key_by("user")

    def hourly(
        self, stream: tm.Stream | None = None, *, size: str = "1 hour", uid: str = "hourly", **aggregates: tm.Aggregate
    ) -> tm.Stream:
        windows = (self.rows() if stream is None else stream).key_by("user").window(tm.tumbling(size))
        return windows.aggregate(**(aggregates or {"total": tm.sum("amount")})).uid(uid)

    def job(self, stream: tm.Stream, *, name: str = "pay", path: str = "table", store: str = "jobs") -> tm.Job:
        return tm.Job(name, outputs={"hourly": tm.delta(stream, self.at(path))}, store=self.at(store))

    def run(self, job: tm.Job, **options: Any) -> tm.RunResult:
        return tm.run(job, spark=self.spark, **options)

    def runs(self, stream: tm.Stream, *, name: str, **options: Any) -> tm.RunResult:
        return self.run(self.job(stream, name=name, path=name), **options)

    def copied_store(self, name: str) -> Path:
        return Path(shutil.copytree(self.folder / "jobs", self.folder / name)) / "pay"


def cannot_know(row: dict[str, object]) -> dict[str, object]:
    return {"user": row["nope"]}


def timed_rows(rows: list[tuple[object, ...]]) -> tm.Stream:
    return tm.source("payments", tm.from_elements(rows, schema=f"{SCHEMA} NOT NULL"), watermarks=TIMED)


def nothing(_: dict[str, object]) -> dict[str, object]:
    return {"amount": None}


def without_cents(batch: pa.RecordBatch) -> pa.RecordBatch:
    paid = pa.array([{"cents": None}] * batch.num_rows, pa.struct([("cents", pa.int64())]))
    return pa.RecordBatch.from_arrays([paid], names=["paid"])


def not_a_number(_: dict[str, object]) -> dict[str, object]:
    return {"amount": "four"}


def text_for_a_number() -> tm.Aggregate:
    return tm.python_aggregate(
        int, lambda n, _: n + 1, lambda a, b: a + b, lambda n: f"{n} rows", arguments=["user"], state="BIGINT", returns="DOUBLE"
    )


def foreign_table(place: Place) -> object:
    place.runs(place.rows().select("user", "at"), name="foreign")
    return place.run(place.job(place.hourly(), name="other", path="foreign"), end_of_input=True)


def file_in_the_way(place: Place) -> object:
    Path(place.at("file")).write_text("not a folder")
    return place.run(place.job(place.rows(), name="blocked", path="file/table"))


def store_in_the_way(place: Place) -> object:
    Path(place.at("plain")).write_text("not a folder")
    return place.run(place.job(place.rows(), name="stored", store="plain/jobs"))


def changed(place: Place, stream: tm.Stream, **job: str) -> object:
    tm.check(place.job(stream, **job)).require()
    return None


def state_file_deleted(place: Place) -> object:
    next((place.copied_store("without-state") / "state").rglob("*.parquet")).unlink()
    more = tm.source("payments", tm.from_elements(epochs=[ROWS, LATER], schema=SCHEMA), watermarks=TIMED)
    return place.run(place.job(place.hourly(more), store="without-state", path="without-state-table"), end_of_input=True)


def record_overwritten(place: Place) -> object:
    newest = max((place.copied_store("with-oops") / "log").glob("*.json"))
    newest.write_text("{oops")
    return place.run(place.job(place.hourly(), store="with-oops", path="with-oops-table"))


def rewound_while_it_runs(place: Place) -> object:
    stored = job_with_tables(place.folder / "running")
    run_epoch(stored)
    stored.savepoints.take("good")
    # The driver is not released: it runs.
    return Rewinder(stored.root, {}, 1000, clock=stored.clock).rewind("taxi", "good", stop=False)


def fork_compared_too_early(place: Place) -> object:
    stored = job_with_tables(place.folder / "forked")
    run_epoch(stored)
    stored.savepoints.take("a")
    forks.fork(stored.root, "taxi", "a", name="taxi-what-if", code="m:j", start=False, clock=stored.clock, judge=fits)
    return forks.diff_output(stored.root, "taxi", "taxi-what-if", "hourly")


Mistake = tuple[str, Callable[[Place], object], str]

MISTAKES: tuple[Mistake, ...] = (
    ('`sum("amont")`', lambda p: p.hourly(total=tm.sum("amont")), "TM101"),
    ('`key_by("usr")`', lambda p: p.rows().key_by("usr"), "TM101"),
    (
        '`timestamp="att"`',
        lambda _: tm.source("p", tm.from_elements(ROWS, schema=SCHEMA), watermarks=tm.ascending(timestamp="att")),
        "TM101",
    ),
    ('`tumbling("1 hr")`', lambda _: tm.tumbling("1 hr"), "TM103"),
    ('`tumbling("-1 hour")`', lambda _: tm.tumbling("-1 hour"), "TM103"),
    ('`tumbling("1 month")`', lambda _: tm.tumbling("1 month"), "TM103"),
    ("`tumbling(3600)`", lambda _: tm.tumbling(wrong(3600)), "TM103"),
    ('`sum("user")` of a STRING', lambda p: p.hourly(total=tm.sum("user")), "TM102"),
    ("a function that Spark does not have", lambda p: p.job(p.rows().filter("frobnicate(amount) > 1")), "TM102"),
    ("no `.uid(...)`", lambda p: p.job(p.keyed().window(tm.tumbling("1 hour")).aggregate(n=tm.count())), "TM100"),
    ("one uid twice", lambda p: p.job(p.hourly(p.hourly().select("user", amount="total"))), "TM100"),
    ("one path twice", lambda p: tm.Job("j", outputs={"a": tm.delta(p.rows(), "t"), "b": tm.delta(p.rows("q"), "t")}), "TM100"),
    ("no `.aggregate(...)`", lambda p: tm.delta(wrong(p.keyed().window(tm.tumbling("1 hour"))), "t"), "TM100"),
    ("no `.key_by(...)`", lambda p: wrong(p.rows()).aggregate(n=tm.count()), "TM100"),
    ("`late_to` after `aggregate`", lambda p: wrong(p.hourly()).late_to(LATE), "TM100"),
    ("`allowed_lateness` after `aggregate`", lambda p: wrong(p.hourly()).allowed_lateness("1 hour"), "TM100"),
    ("Spark's `groupBy`", lambda p: wrong(p.rows()).groupBy("user"), "TM100"),
    ("Spark's `where`", lambda p: wrong(p.rows()).where("amount > 0"), "TM100"),
    ("`with_watermark`", lambda p: wrong(p.rows()).with_watermark("at", "1 minute"), "TM100"),
    ("an upsert without keys", lambda p: tm.delta(p.rows(), "t", mode="upsert"), "TM100"),
    ("an upsert by a key that is not there", lambda p: tm.delta(p.rows(), "t", mode="upsert", keys=["usr"]), "TM101"),
    ('`mode="merge"`', lambda p: tm.delta(p.rows(), "t", mode=wrong("merge")), "TM100"),
    ("a schema with `STRNG`", lambda _: tm.from_elements([], schema="user STRNG"), "TM100"),
    ('`format="jsn"`', lambda _: tm.files("landing", format=wrong("jsn"), schema=SCHEMA), "TM100"),
    ('`late_to("late")`', lambda p: p.keyed().window(tm.tumbling("1 hour")).late_to(wrong("late")).aggregate(n=tm.count()), "TM100"),
    ('`filter("amount + 1")`', lambda p: p.rows().filter("amount + 1"), "TM102"),
    ('`filter("amount >")`', lambda p: p.rows().filter("amount >"), "TM102"),
    ("`filter(lambda row: …)`", lambda p: p.rows().filter(wrong(lambda row: row)), "TM102"),
    ("`tm.run(stream)`", lambda p: tm.run(wrong(p.rows())), "TM100"),
    ("`tm.delta(path, stream)`", lambda p: tm.delta(wrong("tables/x"), wrong(p.rows())), "TM100"),
    ("`outputs=[…]`", lambda p: tm.Job("j", outputs=wrong([tm.delta(p.rows(), "t")])), "TM100"),
    ("`max_epochs=0`", lambda p: p.run(p.job(p.rows()), max_epochs=0), "TM100"),
    ("percentile `95`", lambda _: tm.approx_percentile("amount", 95), "TM100"),
    ("`tm.source(...)` without watermarks", lambda _: wrong(tm).source("p", tm.rate(rows_per_second=1)), "TM100"),
    ("`tm.delta(stream)`", lambda p: wrong(tm).delta(p.rows()), "TM100"),
    ("`map(f)` without `returns`", lambda p: wrong(p.rows()).map(dict), "TM100"),
    ("Spark's `stream['amount']`", lambda p: wrong(p.rows())["amount"], "TM100"),
    ("a Column, `filter(F.col('amount') > 1)`", lambda p: p.rows().filter(wrong(amount_column() > 1)), "TM102"),
    ("a Column in `select`", lambda p: p.rows().select(wrong(amount_column())), "TM102"),
    ("a Column in `sum`", lambda _: tm.sum(wrong(amount_column())), "TM100"),
    ("`key_by(['user'])`", lambda p: p.rows().key_by(wrong(["user"])), "TM102"),
    ("a Column as `timestamp`", lambda _: timed_by(wrong(amount_column())), "TM102"),
    ('`session("amount * 2")`', lambda _: tm.session("amount * 2"), "TM103"),
    ("`tm.Job(outputs, name)`", lambda p: tm.Job(wrong({"a": tm.delta(p.rows(), "t")}), wrong("j")), "TM104"),
    ("`maxepochs=3`", lambda p: wrong(tm).run(p.job(p.rows()), maxepochs=3), "TM100"),
    ('`spark="local[2]"`', lambda p: tm.run(p.job(p.rows()), spark=wrong("local[2]")), "TM100"),
    ("`stream + stream`", lambda p: wrong(p.rows()) + p.rows("q"), "TM100"),
    ("`len(stream)`", lambda p: len(wrong(p.rows())), "TM100"),
    ("`if stream:`", lambda p: bool(wrong(p.rows())), "TM100"),
    ('`sum("amount") / count()`', lambda _: wrong(tm.sum("amount")) / tm.count(), "TM100"),
    ("`job + job`", lambda p: wrong(p.job(p.rows())) + p.job(p.rows("q")), "TM100"),
    ('`job["hourly"]`', lambda p: wrong(p.job(p.rows()))["hourly"], "TM100"),
    ('`restore="good"`', lambda p: p.run(p.job(p.rows()), restore="good"), "TM100"),
    ("a `Path` as `store`", lambda p: p.run(p.job(p.rows()), store=Path("jobs")), "TM100"),
    ('`clock="now"`', lambda p: p.run(p.job(p.rows()), clock="now"), "TM100"),
    ("`run_id=5`", lambda p: p.run(p.job(p.rows()), run_id=5), "TM100"),
    ("options in a list", lambda _: tm.streaming_format("kafka", options=wrong(["subscribe"])), "TM100"),
    ("a `transform` that returns nothing", lambda p: p.runs(p.rows().transform(wrong(lambda _: None)), name="nothing"), "TM501"),
    ("`assert_true` that fails", lambda p: p.runs(p.rows().select("at", ok="assert_true(amount > 2)"), name="asserts"), "TM501"),
    (
        "a folder that is not there",
        lambda p: p.runs(tm.source("f", tm.files(p.at("nowhere"), format="json", schema=SCHEMA), watermarks=TIMED), name="folderless"),
        "TM200",
    ),
    ("a file where the table's folder is to be", file_in_the_way, "TM300"),
    ("a file where the store is to be", store_in_the_way, "TM400"),
    ("another table at the path", foreign_table, "TM300"),
    ("a Python function that raises", lambda p: p.runs(p.rows().map(cannot_know, returns="user STRING"), name="raises"), "TM501"),
    (
        "a Python function that returns a wrong type",
        lambda p: p.runs(p.rows().map(not_a_number, returns="amount DOUBLE"), name="wrong"),
        "TM501",
    ),
    (
        "a fraction for a BIGINT",
        lambda p: p.runs(p.rows().map(lambda row: {"cents": row["amount"] / 3}, returns="cents BIGINT"), name="cents"),
        "TM501",
    ),
    (
        "an element without a `NOT NULL` value",
        lambda p: p.runs(timed_rows([("ann", 1 * HOUR, None)]), name="lacking"),
        "TM100",
    ),
    (
        "a function that returns no `NOT NULL` value",
        lambda p: p.runs(p.rows().map(nothing, returns="amount DOUBLE NOT NULL"), name="nulls"),
        "TM501",
    ),
    (
        "a batch without a `NOT NULL` field",
        lambda p: p.runs(p.rows().map(without_cents, returns="paid STRUCT<cents: BIGINT NOT NULL>", batches=True), name="batch"),
        "TM501",
    ),
    (
        "a `python_aggregate` that returns a wrong type",
        lambda p: p.runs(p.hourly(said=text_for_a_number()), name="counted", end_of_input=True),
        "TM501",
    ),
    ("an expression that fails on the data", lambda p: p.runs(p.rows().select("at", n="CAST(user AS INT)"), name="fails"), "TM501"),
    ("another aggregate", lambda p: changed(p, p.hourly(total=tm.max("amount"))), "TM413"),
    ("an aggregate renamed", lambda p: changed(p, p.hourly(sum=tm.sum("amount"))), "TM413"),
    ("a uid changed", lambda p: changed(p, p.hourly(uid="per-hour")), "TM413"),
    ("another window size", lambda p: changed(p, p.hourly(size="2 hours")), "TM413"),
    ("two jobs of one name", lambda p: changed(p, p.hourly(p.rows("clicks"), uid="clicks")), "TM413"),
    ("a state file deleted", state_file_deleted, "TM401"),
    ("a log record overwritten", record_overwritten, "TM401"),
    ("memory that Java does not understand", started_with("spark.driver.memory=lots"), "TM600"),
    ("an option that Java does not take", started_with("spark.driver.extraJavaOptions=-XX:MaxRAMPercentage=abc"), "TM600"),
    ("a secret in `--env`", command("submit", "paying:job", "--name", "p", "--env", "TOKEN_SECRET=hunter2", "--store", "STORE"), "TM100"),
    ("a secret in a path", lambda p: tm.Job("j", outputs={"a": tm.delta(p.rows(), "s3://me:hunter2@bucket/t")}), "TM100"),
    ("a module that is not there", command("run", "no.such.module:job"), "TM100"),
    ("a job that the module does not have", command("graph", "paying:jop"), "TM100"),
    ("a job that the store does not have", command("status", "pya", "--store", "STORE"), "TM414"),
    ("a store that is not there", command("list", "--store", "STOREs"), "TM404"),
    ("a savepoint that is not there", command("savepoint", "show", "pay", "goood", "--store", "STORE"), "TM420"),
    ("`--trigger soon`", command("run", "paying:job", "--trigger", "soon"), "TM103"),
    ("`rewind` of a running job", rewound_while_it_runs, "TM410"),
    ("`diff` right after the fork", fork_compared_too_early, "TM416"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("mistakes"), spark)
    made.run(made.job(made.hourly()))
    code = made.folder / "code"
    code.mkdir()
    (code / "paying.py").write_text(
        textwrap.dedent("""
            import tidemark as tm

            rows = tm.source("r", tm.rate(rows_per_second=1), watermarks=tm.ingestion_time())
            job = tm.Job("paying", outputs={"rows": tm.memory(rows, "rows")})
        """)
    )
    sys.path.insert(0, str(code))
    yield made
    sys.path.remove(str(code))


@pytest.fixture(scope="module")
def messages(place: Place) -> dict[str, str]:
    """The whole message of each mistake."""
    return {name: said_of(act, place) for name, act, _ in MISTAKES}


def said_of(act: Callable[[Place], object], place: Place) -> str:
    try:
        act(place)
    except TidemarkError as error:
        return str(error)
    except RefusedError as line:
        return str(line).removeprefix("tidemark: ")
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is shown
        return f"{type(error).__name__}: {error}"
    return "nothing at all"


def shown(message: str, place: Place) -> str:
    """Return a message as the page shows it: folders, lines, processes and the rest of long fixes left out."""
    text = message.replace(str(place.folder), "…").replace(f"{Path(__file__)}", "job.py").replace("|", "\\|")
    text = re.sub(r"job\.py:\d+", "job.py:8", text)
    text = re.sub(r"process \d+ on host '[^']*'", "process 8410 on host 'vm'", text)
    text = re.sub(r"last heartbeat is \w+ old", "last heartbeat is 2s old", text)
    text = re.sub(r"spark-[\dTZ-]+\.log", "spark-2024-01-01T00-00-00-000Z-8410.log", text)
    text = re.sub(r"state/hourly/\S+\.parquet", "state/hourly/000000000000-a1b2c3d4e5f6/part-0.parquet", text)
    what, _, fix = text.partition(" Fix: ")
    return f"{_cut(what, 260)} Fix: {_cut(fix, 160)}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 2].rsplit(" ", 1)[0] + " …"


@pytest.mark.parametrize(("name", "code"), [(name, code) for name, _, code in MISTAKES], ids=[name for name, _, _ in MISTAKES])
def test_a_mistake_has_a_message_with_a_code_and_a_fix_in_one_line(name: str, code: str, messages: dict[str, str]) -> None:
    message = messages[name]
    assert message.startswith(f"[{code}] "), message
    assert " Fix: " in message
    assert len(message.splitlines()) == 1
    assert len(message) < 1_200, message
    assert "hunter2" not in message
    for leak in ("Traceback", "py4j", "object at 0x", "SourceNode(", '{"kind"', "_ms="):
        assert leak not in message, message


IN_THE_PROGRAM = ("TM100", "TM101", "TM102", "TM103", "TM501")


@pytest.mark.parametrize("name", [name for name, act, code in MISTAKES if code in IN_THE_PROGRAM and act.__qualname__.endswith("<lambda>")])
def test_a_mistake_in_the_program_names_the_user_s_line(name: str, messages: dict[str, str]) -> None:
    assert re.search(rf"at {re.escape(__file__)}:\d+\)", messages[name]), messages[name]


def test_the_page_shows_the_message_of_each_mistake(messages: dict[str, str], place: Place) -> None:
    expected = [f"| {name} | {shown(message, place)} |" for name, message in messages.items()]
    section = PAGE.read_text(encoding="utf-8").partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| mistake |")]
    assert found == expected, "the table is to be:\n" + "\n".join(expected)


def test_a_savepoint_of_a_job_with_a_damaged_log_is_restored_under_another_name(place: Place) -> None:
    folder = place.copied_store("rescued")
    tm.savepoints_of("pay", store=place.at("rescued")).take("good")
    newest = max((folder / "log").glob("*.json"))
    newest.write_text("{oops")
    rescued = place.job(place.hourly(), name="rescued", path="rescued-table", store="rescued")
    result = place.run(rescued, restore=tm.Restore("good", job="pay"), end_of_input=True)
    assert result.head is not None
    assert result.head.end_of_input
