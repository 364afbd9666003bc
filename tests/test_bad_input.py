"""Bad input: the message says what, where and how to mend it; nothing is committed, nothing is half-visible."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import tidemark as tm
from tests.bad_inputs import (
    HOUR,
    ROWS,
    SCHEMA,
    Act,
    BadInput,
    Lab,
    fails,
    newest_record,
    rewrite,
    state_files,
    without_engine_columns,
)
from tidemark.cli.program.main import main
from tidemark.errors import (
    ColumnError,
    CorruptStoreError,
    DefinitionError,
    DurationError,
    ExpressionError,
    FormatError,
    InvalidNameError,
    JobRunningError,
    SinkError,
    SourceError,
    StateMismatchError,
    TidemarkError,
    UnusablePlaceError,
    UserCodeError,
)
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

HERE = f"at {__file__}:"
"""The place of what a case declares, up to the line."""

AT_DEFINITION: list[BadInput] = []
AT_RUN: list[BadInput] = []


def at_definition(error: type[TidemarkError], *says: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    def register(act: Callable[[], object]) -> Callable[[], object]:
        AT_DEFINITION.append(BadInput(act.__name__, error, says, lambda _: act))
        return act

    return register


def at_run(error: type[TidemarkError], *says: str) -> Callable[[Callable[[Lab], Act]], Callable[[Lab], Act]]:
    def register(prepare: Callable[[Lab], Act]) -> Callable[[Lab], Act]:
        AT_RUN.append(BadInput(prepare.__name__, error, says, prepare))
        return prepare

    return register


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


def with_tags(lab: Lab) -> tm.Stream:
    return lab.source([("x", 1, {"a": 1})], schema="zone STRING, at BIGINT, tags MAP<STRING, INT>")


# ---------------------------------------------------------------------------------------------------------- at definition


def stream() -> tm.Stream:
    elements = tm.from_elements(ROWS, schema=SCHEMA)
    return tm.source("fares", elements, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="at"))


def windowed() -> tm.WindowedStream:
    return stream().key_by("zone").window(tm.tumbling("1 hour"))


@at_definition(ColumnError, "'fair'", "fare", "test_bad_input.py")
def unknown_column() -> object:
    return stream().filter("fair > 0")


@at_definition(ColumnError, "'tip'", "test_bad_input.py")
def unknown_column_of_an_aggregate() -> object:
    return tm.Job("j", outputs={"o": tm.delta(windowed().aggregate(tips=tm.sum("tip")).uid("u"), "o")})


@at_definition(ColumnError, "'moment'", "'fares'")
def unknown_timestamp_column() -> object:
    elements = tm.from_elements(ROWS, schema=SCHEMA)
    return tm.source("fares", elements, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="moment"))


@at_definition(ExpressionError, "'at'", "DOUBLE", "'fares'", "CAST(at AS TIMESTAMP)")
def timestamp_of_a_wrong_type() -> object:
    elements = tm.from_elements([("a", 1.5, 1)], schema="zone STRING, at DOUBLE, fare BIGINT")
    return tm.source("fares", elements, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="at"))


@at_definition(ExpressionError, "key 'tags'", "MAP<STRING, INT>", "to_json", "test_bad_input.py")
def map_as_a_key() -> object:
    elements = tm.from_elements([], schema="at BIGINT, tags MAP<STRING, INT>")
    return tm.source("tagged", elements, watermarks=tm.ascending(timestamp="at")).key_by("tags")


@at_definition(ExpressionError, "'fare > (1'", "test_bad_input.py")
def expression_that_is_not_sql() -> object:
    return stream().filter("fare > (1")


@at_definition(DurationError, "'1 fortnight'", "size")
def bad_duration() -> object:
    return tm.tumbling("1 fortnight")


@at_definition(DurationError, "'-5 minutes'", "at least")
def negative_lateness() -> object:
    return windowed().allowed_lateness("-5 minutes")


@at_definition(DefinitionError, "'same'", "uid", "test_bad_input.py")
def duplicate_uid() -> object:
    hourly = windowed()
    first, second = (hourly.aggregate(n=tm.count()).uid("same") for _ in range(2))
    return tm.Job("j", outputs={"a": tm.delta(first, "a"), "b": tm.delta(second.union(first), "b")})


@at_definition(DefinitionError, "uid", ".uid(")
def missing_uid() -> object:
    return tm.Job("j", outputs={"o": tm.delta(windowed().aggregate(n=tm.count()), "o")})


@at_definition(InvalidNameError, "'../fares'")
def job_name_that_leads_elsewhere() -> object:
    return tm.Job("../fares", outputs={"o": tm.delta(stream(), "o")})


@at_definition(InvalidNameError, "'a/b'")
def output_name_with_a_slash() -> object:
    return tm.Job("j", outputs={"a/b": tm.delta(stream(), "o")})


@at_definition(InvalidNameError, "'..'")
def uid_that_leads_elsewhere() -> object:
    return tm.Job("j", outputs={"o": tm.delta(windowed().aggregate(n=tm.count()).uid(".."), "o")})


@at_definition(DefinitionError, "'a'", "'b'", "'same/place'")
def two_outputs_at_one_place() -> object:
    return tm.Job("j", outputs={"a": tm.delta(stream(), "same/place"), "b": tm.delta(stream(), "./same/place/")})


@at_definition(DefinitionError, "2 values for 3 columns", "zone, at, fare")
def element_with_too_few_values() -> object:
    return tm.from_elements([("a", 1)], schema=SCHEMA)


@at_definition(DefinitionError, "'avro'", "parquet")
def unknown_file_format() -> object:
    return tm.files("landing", format="avro", schema=SCHEMA)  # type: ignore[arg-type]


@at_definition(DefinitionError, "end_of_input=True", "trigger=")
def trigger_and_end_of_input() -> object:
    return tm.run(tm.Job("j", outputs={"o": tm.delta(stream(), "o")}), trigger="10 seconds", end_of_input=True)


@at_definition(DurationError, "'soon'", "trigger")
def bad_trigger() -> object:
    return tm.run(tm.Job("j", outputs={"o": tm.delta(stream(), "o")}), trigger="soon")


@at_definition(DefinitionError, "'ftp'", "s3://")
def store_of_an_unknown_kind() -> object:
    return tm.run(tm.Job("j", outputs={"o": tm.delta(stream(), "o")}), store="ftp://host/jobs")


@pytest.mark.parametrize("case", AT_DEFINITION, ids=lambda case: case.name)
def test_bad_definitions_are_refused_at_once(case: BadInput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_message(case, failure_of(case.prepare(None)))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [], "a definition leaves nothing behind"


# ------------------------------------------------------------------------------------------------------ sources and rows


@at_run(SourceError, "landing", "'fares'", "create it")
def missing_folder(lab: Lab) -> Act:
    return lab.rows_out(lab.files("json"))


@at_run(SourceError, "cut.parquet")
def truncated_parquet_file(lab: Lab) -> Act:
    lab.spark.createDataFrame(ROWS, SCHEMA).coalesce(1).write.parquet(lab.path("whole"))
    whole = next((lab.folder / "whole").glob("*.parquet")).read_bytes()
    (lab.folder / "landing").mkdir()
    (lab.folder / "landing" / "cut.parquet").write_bytes(whole[:-20])
    return lab.rows_out(lab.files("parquet"))


@at_run(SourceError, "fare", ".parquet")
def parquet_file_with_other_types(lab: Lab) -> Act:
    lab.spark.createDataFrame(ROWS, SCHEMA).write.parquet(lab.path("landing"))
    return lab.rows_out(lab.files("parquet", "zone STRING, at BIGINT, fare ARRAY<STRING>"))


@at_run(SourceError, "nonsense", "'fares'", "test_bad_input.py")
def unknown_streaming_format(lab: Lab) -> Act:
    spec = tm.streaming_format("nonsense", schema=SCHEMA)
    return lab.rows_out(tm.source("fares", spec, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="at")))


@at_run(DefinitionError, "'fares'", "epoch 1", "'four'")
def element_that_does_not_fit(lab: Lab) -> Act:
    return lab.rows_out(lab.source(ROWS, [("a", HOUR, "four")]))


# ------------------------------------------------------------------------------------------------------------- user code


@at_run(UserCodeError, "DIVIDE_BY_ZERO", "try_divide", "with_columns column 'share' = '100 / fare'", HERE)
def division_by_zero(lab: Lab) -> Act:
    return lab.rows_out(lab.source().with_columns(share="100 / fare"))


@at_run(UserCodeError, "CAST_INVALID_INPUT", "try_cast", "'number' = 'cast(zone AS INT)'", HERE)
def cast_that_fails(lab: Lab) -> Act:
    return lab.rows_out(lab.source().with_columns(number="cast(zone AS INT)"))


@at_run(UserCodeError, "CANNOT_PARSE_TIMESTAMP", "try_to_timestamp", "timestamp of source 'fares'")
def timestamp_that_cannot_be_parsed(lab: Lab) -> Act:
    return lab.rows_out(lab.source(timestamp="to_timestamp(zone, 'yyyy')"))


@at_run(UserCodeError, "DIVIDE_BY_ZERO", "filter condition '100 / fare > 2'", HERE)
def filter_that_fails(lab: Lab) -> Act:
    return lab.rows_out(lab.source().filter("100 / fare > 2"))


@at_run(UserCodeError, "ValueError: fare 4 is not to my liking", "in map 'fails'", "bad_inputs.py:")
def failing_python_function(lab: Lab) -> Act:
    return lab.rows_out(lab.source().map(fails, returns="fare BIGINT"))


@at_run(UserCodeError, "returned int, not a row", "return a dict", HERE)
def python_function_that_returns_no_row(lab: Lab) -> Act:
    return lab.rows_out(lab.source().map(lambda _: 7, returns="fare BIGINT"))


@at_run(UserCodeError, "returned int, not a row", "iterable of such dicts", HERE)
def python_function_that_returns_no_rows(lab: Lab) -> Act:
    return lab.rows_out(lab.source().flat_map(lambda _: 7, returns="fare BIGINT"))


@at_run(UserCodeError, "'four' (str) as 'fare', which does not fit BIGINT", "returns=", HERE)
def python_function_with_a_wrong_value(lab: Lab) -> Act:
    return lab.rows_out(lab.source().map(lambda _: {"fare": "four"}, returns="fare BIGINT"))


@at_run(UserCodeError, "returned RecordBatch of 0 rows for a batch of", "one row for each input row")
def batch_function_that_loses_rows(lab: Lab) -> Act:
    return lab.rows_out(lab.source().map(lambda batch: batch.slice(0, 0), returns=SCHEMA, batches=True))


@at_run(UserCodeError, "__tm_meta", "event time", "keep it", "test_bad_input.py")
def transform_that_loses_the_event_time(lab: Lab) -> Act:
    return lab.rows_out(lab.source().transform(without_engine_columns))


@at_run(UserCodeError, "ValueError: fare 4 is not to my liking", "test_bad_input.py")
def failing_transform(lab: Lab) -> Act:
    return lab.rows_out(lab.source().transform(fails))  # type: ignore[arg-type]


@at_run(UserCodeError, "transform returned nothing, not a DataFrame", "'spoilt'", "return rows.where", HERE)
def transform_that_returns_nothing(lab: Lab) -> Act:
    return lab.rows_out(lab.source().transform(wrong(lambda _: None)).uid("spoilt"))


@at_run(UserCodeError, "transform returned a GroupedData, not a DataFrame", HERE)
def transform_that_returns_something_else(lab: Lab) -> Act:
    return lab.rows_out(lab.source().transform(wrong(lambda frame: frame.groupBy("zone"))))


@at_run(UserCodeError, "INVALID_EXTRACT_BASE_FIELD_TYPE", "select column 'z' = 'tags.a.z'", HERE)
def field_of_a_map_s_value_that_has_none(lab: Lab) -> Act:
    return lab.rows_out(with_tags(lab).select("at", z="tags.a.z"))


@at_run(UserCodeError, "INVALID_EXTRACT_BASE_FIELD_TYPE", "filter condition 'tags.a.z > 1'", HERE)
def field_of_a_map_s_value_in_a_condition(lab: Lab) -> Act:
    return lab.rows_out(with_tags(lab).filter("tags.a.z > 1"))


@at_run(UserCodeError, "FIELD_NOT_FOUND", "select column 'z' = 'tags.a.b'", HERE)
def field_that_a_map_s_structs_do_not_have(lab: Lab) -> Act:
    schema = "zone STRING, at BIGINT, tags MAP<STRING, STRUCT<a: INT>>"
    return lab.rows_out(lab.source([("x", 1, {"a": {"a": 1}})], schema=schema).select("at", z="tags.a.b"))


@at_run(UserCodeError, "DATATYPE_MISMATCH", "select column 'z' = 'date_add(tags, 1)'", HERE)
def function_of_a_map(lab: Lab) -> Act:
    return lab.rows_out(with_tags(lab).select("at", z="date_add(tags, 1)"))


@at_run(UserCodeError, "'(fare > 3)' is not true!", "with_columns column 'z' = 'assert_true(fare > 3)'", "rejects_to", HERE)
def assertion_that_does_not_hold(lab: Lab) -> Act:
    return lab.rows_out(lab.source().with_columns(z="assert_true(fare > 3)"))


@at_run(UserCodeError, "no such fare", "filter condition 'raising()'", HERE)
def error_that_a_column_made_in_python_raises(lab: Lab) -> Act:
    def raising() -> Column:
        from pyspark.sql import functions as F

        return F.when(F.col("fare") > 3, F.raise_error("no such fare")).otherwise(F.lit(True))

    return lab.rows_out(lab.source().filter(raising))


@at_run(UserCodeError, "None as 'fare'", "NOT NULL", "returns=", HERE)
def python_function_that_returns_a_null_where_there_is_none(lab: Lab) -> Act:
    return lab.rows_out(lab.source().map(lambda _: {"fare": None}, returns="fare BIGINT NOT NULL"))


@at_run(DefinitionError, "'fares' (epoch 0) has no 'fare'", "NOT NULL", "bad_inputs.py:")
def element_without_a_value_that_is_not_null(lab: Lab) -> Act:
    return lab.rows_out(lab.source([("a", 1, None)], schema="zone STRING, at BIGINT, fare BIGINT NOT NULL"))


@at_run(SourceError, "landing/day.json' of source 'fares' is a file", "landing/*.json", HERE)
def file_in_place_of_a_folder(lab: Lab) -> Act:
    (lab.folder / "landing").mkdir()
    (lab.folder / "landing" / "day.json").write_text("{}")
    spec = tm.files(lab.path("landing/day.json"), format="json", schema=SCHEMA)
    return lab.rows_out(tm.source("fares", spec, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="at")))


@at_run(UserCodeError, "fair")
def transform_with_an_unknown_column(lab: Lab) -> Act:
    return lab.rows_out(lab.source().transform(lambda frame: frame.where("fair > 1")))


@at_run(UserCodeError, "nowhere")
def transform_that_does_not_make_its_columns(lab: Lab) -> Act:
    return lab.rows_out(lab.source().transform(lambda frame: frame, columns=["nowhere"]))


@at_run(UserCodeError, "PARSE_SYNTAX_ERROR", "filter condition 'fare > > 1'", HERE)
def expression_that_only_spark_refuses(lab: Lab) -> Act:
    return lab.rows_out(lab.source().filter("fare > > 1"))


@at_run(UserCodeError, "no_such_function", "with_columns column 'number' = 'no_such_function(fare)'", HERE)
def sql_function_that_is_declared_and_not_there(lab: Lab) -> Act:
    stream = lab.source().with_columns(number="no_such_function(fare)")
    job = tm.Job("fares", outputs={"rows": tm.delta(stream, lab.path("out"))}, store=lab.path("store"), functions=["no_such_function"])
    return lambda: lab.run(job)


@at_run(UserCodeError, "no_such_function", HERE)
def unknown_function_of_a_column_made_in_python(lab: Lab) -> Act:
    def made() -> Column:
        from pyspark.sql import functions as F

        return F.call_function("no_such_function", F.col("fare"))

    return lab.rows_out(lab.source().with_columns(number=made))


@at_run(UserCodeError, "CAST_INVALID_INPUT", "aggregate 'total' = 'CAST(zone AS INT)'", "'hourly'", "bad_inputs.py:")
def aggregate_that_fails(lab: Lab) -> Act:
    job = lab.windows_out(lab.hourly(total=tm.sum("CAST(zone AS INT)")))
    return lambda: lab.run(job)


@at_run(UserCodeError, "DIVIDE_BY_ZERO", "aggregate 'x' = '1 / ({s} - {s})'", "'hourly'")
def result_of_one_s_own_aggregate_that_fails(lab: Lab) -> Act:
    own = tm.sql_aggregate({"s": ("sum(fare)", "sum({s})")}, "1 / ({s} - {s})")
    job = lab.windows_out(lab.hourly(x=own))
    return lambda: lab.run(job, end_of_input=True)


def wants_more(rows: list[dict[str, object]], _: object) -> list[dict[str, object]]:
    return [{"n": row["nope"]} for row in rows]


@at_run(UserCodeError, "KeyError: 'nope'", HERE, "'own'")
def window_function_that_fails(lab: Lab) -> Act:
    windows = lab.source().key_by("zone").window(tm.tumbling("1 hour"))
    job = lab.windows_out(windows.process(wants_more, returns="n INT").uid("own"))
    return lambda: lab.run(job, end_of_input=True)


# ----------------------------------------------------------------------------------------------------------------- sinks


@at_run(SinkError, "'rows'", "column 'fare' is BIGINT in the output and STRING in the table", "out")
def delta_table_with_other_types(lab: Lab) -> Act:
    lab.run(lab.job(rows=tm.delta(lab.source().select("zone", "at", fare="zone"), lab.path("out"))))
    lab.name = "other"
    return lab.rows_out(lab.source())


@at_run(SinkError, "'rows'", "lacks column 'fare'")
def delta_table_without_a_column(lab: Lab) -> Act:
    lab.run(lab.job(rows=tm.delta(lab.source().select("zone", "at"), lab.path("out"))))
    lab.name = "other"
    return lab.rows_out(lab.source())


@at_run(SinkError, "'rows'", "fare", "does not fit the files in", "part-")
def parquet_folder_with_other_types(lab: Lab) -> Act:
    lab.run(lab.job(rows=tm.parquet(lab.source().select("zone", "at", fare="zone"), lab.path("out"))))
    lab.name = "other"
    job = lab.job(rows=tm.parquet(lab.source(), lab.path("out")))
    return lambda: lab.run(job)


@at_run(SinkError, "'rows'", "out", "path")
def sink_that_is_a_file(lab: Lab) -> Act:
    (lab.folder / "out").write_text("something else")
    return lab.rows_out(lab.source())


@at_run(SinkError, "'rows'", "cannot be read")
def delta_table_with_a_damaged_log(lab: Lab) -> Act:
    (lab.folder / "out" / "_delta_log").mkdir(parents=True)
    (lab.folder / "out" / "_delta_log" / "00000000000000000000.json").write_text("{broken")
    return lab.rows_out(lab.source())


# ----------------------------------------------------------------------------------------------------------------- state


@at_run(StateMismatchError, "'hourly'", "total")
def changed_aggregate(lab: Lab) -> Act:
    lab.ran()
    job = lab.windows_out(lab.hourly(total=tm.max("fare")))
    return lambda: lab.run(job)


@at_run(StateMismatchError, "'hourly'", "key")
def changed_key(lab: Lab) -> Act:
    lab.ran()
    job = lab.windows_out(lab.hourly(by="fare"))
    return lambda: lab.run(job)


@at_run(StateMismatchError, "hourly", "uids back")
def removed_operator(lab: Lab) -> Act:
    lab.ran()
    job = lab.windows_out(lab.hourly(uid="renamed"))
    return lambda: lab.run(job)


@at_run(CorruptStoreError, "log/", ".json", "nothing was changed")
def corrupt_newest_record(lab: Lab) -> Act:
    record = newest_record(lab.ran())
    record.write_bytes(record.read_bytes()[:-30])
    return lambda: lab.run(lab.windows_out(lab.hourly()))


@at_run(CorruptStoreError, "log/", "checksum")
def tampered_newest_record(lab: Lab) -> Act:
    record = newest_record(lab.ran())
    rewrite(record, lambda plain: {**plain, "body": {**plain["body"], "epoch": 7}})
    return lambda: lab.run(lab.windows_out(lab.hourly()))


@at_run(CorruptStoreError, "missing")
def missing_record(lab: Lab) -> Act:
    newest_record(lab.ran()).unlink()
    return lambda: lab.run(lab.windows_out(lab.hourly()))


@at_run(FormatError, "format 99", "this release reads up to 1")
def newer_record_format(lab: Lab) -> Act:
    rewrite(newest_record(lab.ran()), lambda plain: {**plain, "format": 99})
    return lambda: lab.run(lab.windows_out(lab.hourly()))


@at_run(CorruptStoreError, "state/hourly/", ".parquet", "'fares'")
def missing_state_file(lab: Lab) -> Act:
    for file in state_files(lab.ran()):
        file.unlink()
    return lambda: lab.run(lab.windows_out(lab.hourly()), end_of_input=True)


@at_run(CorruptStoreError, "state/hourly/", ".parquet", "'fares'")
def truncated_state_file(lab: Lab) -> Act:
    for file in state_files(lab.ran()):
        file.write_bytes(file.read_bytes()[:-20])
        (file.parent / f".{file.name}.crc").unlink()
    return lambda: lab.run(lab.windows_out(lab.hourly()), end_of_input=True)


@at_run(CorruptStoreError, "'fares'", "sources/fares/")
def damaged_copy_of_a_source_log(lab: Lab) -> Act:
    for file in (lab.ran() / "sources").rglob("*"):
        if file.is_file():
            file.write_text("v1\n")
    return lambda: lab.run(lab.windows_out(lab.hourly()))


@at_run(CorruptStoreError, "'fares'", "sources/fares/")
def missing_copy_of_a_source_log(lab: Lab) -> Act:
    for file in (lab.ran() / "sources").rglob("*"):
        if file.is_file():
            file.unlink()
    return lambda: lab.run(lab.windows_out(lab.hourly()))


# ------------------------------------------------------------------------------------------------------------- the store


@at_run(UnusablePlaceError, "store", "may be read and written")
def store_that_is_a_file(lab: Lab) -> Act:
    (lab.folder / "store").write_text("something else")
    return lab.rows_out(lab.source())


@at_run(UnusablePlaceError, "store", "may be read and written")
def store_without_permission(lab: Lab) -> Act:
    # A folder that even root cannot write to.
    job = tm.Job("fares", outputs={"rows": tm.delta(lab.source(), lab.path("out"))}, store="/proc/store")
    return lambda: lab.run(job)


@at_run(JobRunningError, "process", "heartbeat", "takeover=True")
def second_run_of_the_job(lab: Lab) -> Act:
    log = JobLog(JobStore.open(lab.path("store")).at("fares"), "fares")
    log.acquire(current_owner("first"))
    return lab.rows_out(lab.source())


@pytest.mark.spark
@pytest.mark.parametrize("case", AT_RUN, ids=lambda case: case.name)
def test_bad_input_commits_nothing(case: BadInput, spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(tmp_path, spark)
    act = case.prepare(lab)
    before = committed(tmp_path)
    check_message(case, failure_of(act))
    assert committed(tmp_path) == before


@pytest.mark.spark
def test_a_map_as_a_key_whose_type_only_spark_knows_is_named(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(tmp_path, spark)
    unknown = with_tags(lab).transform(lambda frame: frame)
    job = lab.windows_out(unknown.key_by("tags").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hourly"))
    says = ("a key is a MAP", "key 'tags'", "to_json", "'hourly'", HERE)
    check_message(BadInput("map", UserCodeError, says, lambda _: lambda: None), failure_of(lambda: lab.run(job, end_of_input=True)))


# ------------------------------------------------------------------------------------------------------ the command line


@dataclass(frozen=True)
class BadCommand:
    arguments: tuple[str, ...]
    says: tuple[str, ...]


COMMANDS = {
    "job without a name": BadCommand(("run", "examples.taxi.job"), ("does not name a job", "MODULE:JOB")),
    "file for a module": BadCommand(("run", "./jobs/rides.py:job"), ("names a file, not a module", "write jobs.rides:job")),
    "module that does not exist": BadCommand(("run", "no.such.module:job"), ("'no.such.module'", "cannot be imported")),
    "name that does not exist": BadCommand(("graph", "tests.test_bad_input:no_such_job"), ("'no_such_job'", "is missing")),
    "something that is no job": BadCommand(("graph", "tests.bad_inputs:HOUR"), ("'HOUR'", "int, not a job")),
    "bad trigger": BadCommand(("run", "tests.bad_inputs:HOUR", "--trigger", "soon"), ("'soon'", "trigger")),
    "status of an unknown job": BadCommand(("status", "nobody", "--store", "store"), ("'nobody'", "--store")),
    "history of an unknown job": BadCommand(("history", "nobody", "--store", "store"), ("'nobody'", "--store")),
    "name that leads elsewhere": BadCommand(("status", "../nobody", "--store", "store"), ("'../nobody'",)),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_bad_commands_end_with_one_line(command: BadCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    done = CliRunner().invoke(main, list(command.arguments))
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.stderr.startswith("tidemark: [TM")
    assert len(done.stderr.strip().splitlines()) == 1
    for text in (*command.says, "Fix:"):
        assert text in done.stderr


# -------------------------------------------------------------------------------------------------------------- checking


def test_the_table_is_long_enough() -> None:
    assert len({case.name for case in (*AT_DEFINITION, *AT_RUN)}) + len(COMMANDS) >= 50


def failure_of(act: Act) -> BaseException:
    try:
        act()
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is looked at
        return error
    pytest.fail("the bad input was taken")


def check_message(case: BadInput, error: BaseException) -> None:
    assert type(error) is case.error, "".join(traceback.format_exception(error))
    message = str(error)
    for text in (*case.says, "Fix: "):
        assert text in message, message
    assert len(message.splitlines()) == 1, message
    for leak in ("Traceback", "\tat ", "py4j", "java.lang", "An error occurred while calling", "JVM stacktrace"):
        assert leak not in message, message


def committed(folder: Path) -> tuple[dict[str, str], Counter[str]]:
    """Return the records of all epochs, by place, and the rows that readers see."""
    records = {str(path): path.read_text() for path in folder.rglob("log/*.json")}
    epochs = {path: text for path, text in records.items() if '"kind":"term"' not in text}
    place = folder / "out"
    if (place / "_delta_log").is_dir():
        try:
            files = [place / str(path) for path in DeltaTable(str(place)).get_add_actions()["path"].to_pylist()]
        except DeltaError:
            files = []  # a case damaged the table
    else:
        files = list(place.glob("*.parquet"))
    return epochs, Counter(str(row) for file in files for row in pq.ParquetFile(file).read().to_pylist())
