"""Methods that streams do not have, as users of Spark and Flink write them: what to write instead, and the user's line."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import DefinitionError, UnknownMemberError

trips = tm.source(
    "trips",
    tm.files("landing", format="json", schema="zone INT, at TIMESTAMP, fare DOUBLE"),
    watermarks=tm.bounded_out_of_orderness("5 minutes", timestamp="at"),
)
keyed = trips.key_by("zone")
windowed = keyed.window(tm.tumbling("1 hour"))
hourly = windowed.aggregate(n=tm.count()).uid("hourly")
job = tm.Job("taxi", outputs={"hourly": tm.delta(hourly, "warehouse/hourly")})

SPARK = (
    "groupBy groupby where withColumn withColumns withColumnRenamed withWatermark with_watermark selectExpr drop agg writeStream write "
    "dropDuplicates distinct orderBy sort limit leftJoin unionByName unionAll mapInPandas foreachBatch repartition cache show printSchema "
    "columns collect toPandas"
)
FLINK = (
    "keyBy key_By flatMap timeWindow timeWindowAll windowAll countWindow assignTimestampsAndWatermarks addSink sinkTo getSideOutput "
    "sideOutputLateData allowedLateness coGroup setParallelism name rebalance execute print"
)


@pytest.mark.parametrize("name", [*SPARK.split(), *FLINK.split()])
@pytest.mark.parametrize("owner", [trips, keyed, windowed, hourly], ids=["stream", "keyed", "windowed", "results"])
def test_names_of_spark_and_flink_say_what_to_write(owner: Any, name: str) -> None:
    with pytest.raises(UnknownMemberError) as caught:
        getattr(owner, name)
    assert caught.value.code == "TM100"
    assert repr(name) in caught.value.what
    assert (caught.value.place or "").startswith(__file__)
    assert "use one of its names" not in caught.value.fix or name in {"windowAll", "flatMap"}


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "aggregate of nothing": (lambda: wrong(keyed).aggregate(), ".aggregate(trips=tm.count())"),
    "aggregate of a stream": (lambda: wrong(trips).aggregate(n=tm.count()), "after .window(...)"),
    "deduplicate without keys": (lambda: wrong(trips).deduplicate(within="1 hour"), ".key_by('zone').deduplicate(...)"),
    "running results without keys": (lambda: wrong(trips).running_aggregate(n=tm.count()), ".key_by('zone').running_aggregate(...)"),
    "window without keys": (lambda: wrong(trips).window(tm.tumbling("1 hour")), ".window_all("),
    "late_to after aggregate": (lambda: wrong(hourly).late_to(tm.OutputTag("late")), "before .aggregate(...)"),
    "lateness after aggregate": (lambda: wrong(hourly).allowed_lateness("1 hour"), "before .aggregate(...)"),
    "trigger of a keyed stream": (lambda: wrong(keyed).trigger(tm.count_trigger(3)), "after .window(...)"),
    "filter of a keyed stream": (lambda: wrong(keyed).filter("fare > 0"), "before .key_by(...)"),
    "connect of windows": (lambda: wrong(windowed).connect(keyed), ".key_by('id').connect(other.key_by('id'))"),
    "filter of windows": (lambda: wrong(windowed).filter("fare > 0"), "before .key_by(...)"),
    "join of a keyed stream": (lambda: wrong(keyed).join(trips, on="zone"), "before .key_by(...)"),
    "key twice": (lambda: wrong(keyed).key_by("at"), ".key_by('zone', 'vendor')"),
    "window twice": (lambda: wrong(windowed).window(tm.tumbling("1 day")), "on the results"),
    "uid of windows": (lambda: wrong(windowed).uid("w"), "after .aggregate(...)"),
    "side output of windows": (lambda: wrong(windowed).side_output(tm.OutputTag("late")), "after .aggregate(...)"),
    "filter of a sink": (lambda: wrong(tm.delta(trips, "x")).filter("fare > 0"), "before that is bound to a sink"),
    "mistyped": (lambda: wrong(trips).with_colums(a="1"), "write 'with_columns'"),
    "unheard of": (lambda: wrong(trips).frobnicate(), "use one of its names: a stream has "),
    "run of a job": (lambda: wrong(job).run(), "tm.run(job)"),
    "job's outpts": (lambda: wrong(job).outpts, "write 'outputs'"),
    "mean": (lambda: wrong(tm).mean("fare"), "tm.avg('fare')"),
    "mistyped function": (lambda: wrong(tm).tumblig("1 hour"), "tm.tumbling"),
}


def wrong(value: object) -> Any:
    """Pass for any type, as a caller without a type checker would."""
    return value


@pytest.mark.parametrize(("call", "fix"), CALLS.values(), ids=CALLS)
def test_what_is_called_in_the_wrong_place_says_where_it_goes(call: Callable[[], object], fix: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        call()
    assert fix in caught.value.fix, str(caught.value)
    assert caught.value.place == f"{__file__}:{inspect.getsourcelines(call)[1]}"


def test_a_type_checker_still_finds_them() -> None:
    # An unused "type: ignore" is an error to mypy: these say that it sees what is missing.
    with pytest.raises(AttributeError):
        trips.groupBy  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        keyed.trigger  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        windowed.filter  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        job.run  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("owner", [trips, keyed, windowed, hourly, job, tm.delta(trips, "x")])
def test_python_s_own_machinery_finds_an_attribute_error(owner: Any) -> None:
    assert not hasattr(owner, "__wrapped__")
    assert not hasattr(owner, "to_dict")
    assert getattr(owner, "missing", 7) == 7
    assert type(copy.copy(owner)) is type(owner)
    assert len(repr(owner)) < 160


def test_reprs_are_short_and_hold_no_rows_and_no_options() -> None:
    options = {"kafka.sasl.jaas.config": "password"}
    spec = tm.streaming_format("kafka", options=options)
    rows = tm.source("rows", tm.from_elements([(n,) for n in range(1000)], schema="t BIGINT"), watermarks=tm.ingestion_time())
    assert "password" not in repr(spec)
    assert repr(rows) == "<Stream: source rows: 1000 elements in 1 epochs>"
    assert repr(windowed) == "<WindowedStream tumbling 1h: source trips: json files in landing>"
    assert repr(keyed) == "<KeyedStream by zone: source trips: json files in landing>"
    assert repr(job) == "<Job taxi: hourly>"
