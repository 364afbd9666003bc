"""Windows of local days in Spark: its local times against Python's, a zone of each row, and rows without a zone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.engine.lab import Lab, Ran, elements
from tidemark.errors import UserCodeError
from tidemark.semantics.reference.reference import Epoch, ReferenceJob, run_reference
from tidemark.semantics.reference.reference_results import Element, Fold
from tidemark.semantics.watermarks.watermark_generators import Ascending
from tidemark.semantics.watermarks.watermarks import WatermarkStrategy
from tidemark.semantics.windows.local_time import LocalClock, local_clock, zone_names
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.spark.operators.aligned.local import ZONE_NAME
from tidemark.spark.operators.aligned.local_time import first_instant, reading, zone_literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR, DAY = 3_600_000, 86_400_000
EPOCH_0 = datetime(1970, 1, 1, tzinfo=UTC)
SCHEMA = "k STRING, t BIGINT, z STRING"
KEYS = "abcdefgh"
ZONES = ["Europe/Berlin", "Europe/Paris", "America/New_York", "America/Puerto_Rico", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"]
NOON = 1_679_745_600_000  # 2023-03-25 12:00 UTC, the day before clocks are set forward in Europe


def with_changes(clock: LocalClock, first: int, last: int) -> list[int]:
    """Return the begins of the times of sixty days in which clocks change."""
    offsets = [(at, clock.offset(at)) for at in range(first, last + 60 * DAY, 60 * DAY)]
    return [at for (at, offset), (end, later) in pairwise(offsets) if at < last and offset != later]


def change_behind(clock: LocalClock, begin: int) -> int:
    """Return the instant at which clocks change within sixty days."""
    low, high, before = begin, begin + 60 * DAY, clock.offset(begin)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if clock.offset(middle) == before else (low, middle)
    return high


def moments(random: Random) -> Iterator[tuple[str, int]]:
    """Yield instants in all zones: any, and about changes of clocks."""
    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000 for year in (1972, 2037))
    for zone in sorted(zone_names()):
        clock = local_clock(zone)
        found = with_changes(clock, first, last)
        for _ in range(2):
            yield zone, random.randrange(first, last)
        for begin in random.sample(found, min(4, len(found))):
            change = change_behind(clock, begin)
            for near in (-1, 0, random.randrange(-2 * HOUR, 2 * HOUR), random.randrange(-DAY, DAY)):
                yield zone, change + near


@pytest.mark.spark
def test_local_times_of_all_zones_are_those_of_python(spark: SparkSession) -> None:
    random, zones = Random(24), set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())  # type: ignore[union-attr]  # noqa: SLF001
    given = [
        (zone, at, at + random.choice([0, -HOUR // 2, -HOUR, HOUR, 2 * HOUR]) + local_clock(zone).offset(at))
        for zone, at in moments(random)
    ]
    rows = spark.createDataFrame([each for each in given if each[0] in zones], "zone STRING, at BIGINT, local BIGINT")
    times = f"sequence(at - {26 * HOUR}, at + {26 * HOUR}, {HOUR})"
    offsets = f"transform({times}, t -> unix_millis(from_utc_timestamp(timestamp_millis(t), zone)) - t)"
    texts = (f"{reading('at', 'zone')} AS reading", f"{first_instant('local', 'zone')} AS first", f"{offsets} AS offsets")
    found = rows.selectExpr("zone", "at", "local", *texts).collect()
    # The databases of Java and Python may be of different years.
    same = [row for row in found if row.offsets == [local_clock(row.zone).offset(row.at + hours * HOUR) for hours in range(-26, 27)]]
    # The first instant is found by what it is, since looking for it takes Python seconds; tests/semantics/test_local_windows.py has that.
    wrong = [
        (row.zone, row.at, row.local)
        for row in same
        for clock in [local_clock(row.zone)]
        if row.reading != clock.reading(row.at) or not clock.reading(row.first - 1) < row.local <= clock.reading(row.first)
    ]
    assert len(same) > 0.95 * len(given) > 4_000
    assert not wrong, (len(wrong), sorted({zone for zone, _, _ in wrong}), wrong[:5])


@pytest.mark.spark
def test_a_zone_may_be_a_text(spark: SparkSession) -> None:
    zones = ["America/St_Johns", "Africa/Monrovia", "Europe/Berlin"]
    rows = spark.range(1_700_000_000_000, 1_700_000_000_000 + 400 * DAY, DAY // 3).withColumnRenamed("id", "at")
    found = rows.selectExpr("at", *(f"{reading('at', zone_literal(zone))} AS `{zone}`" for zone in zones)).collect()
    for zone in zones:
        assert [row[zone] for row in found] == [local_clock(zone).reading(row.at) for row in found], zone


def count() -> Fold[int]:
    return Fold(create=lambda: 0, add=lambda n, _value, _time, _position: n + 1, result=lambda n: n)


def instant(milliseconds: int) -> datetime:
    return EPOCH_0 + timedelta(milliseconds=milliseconds)


def rows_of(epochs: int, seed: int) -> list[list[tuple[str, int, str]]]:
    random = Random(seed)
    return [
        [(random.choice("ab"), NOON + epoch * 20 * HOUR + random.randrange(-30 * HOUR, 30 * HOUR), random.choice(ZONES)) for _ in range(60)]
        for epoch in range(epochs)
    ]


@pytest.mark.spark
def test_each_row_has_its_own_zone_and_windows_go_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    windows: dict[str, LocalWindows] = {
        "tumbling": tm.tumbling("1 day", zone_by="z"),
        "sliding": tm.sliding("2 days", "1 day", offset="90 minutes", zone_by="concat(z, '')"),
        "cumulative": tm.cumulative("1 day", "3 hours", zone_by="z"),
    }
    epochs = rows_of(3, 7)

    def streams(read: int) -> dict[str, tm.Stream]:
        found, keyed = dict[str, tm.Stream](), elements(*epochs[:read], schema=SCHEMA).key_by("k")
        for name, assigner in windows.items():
            late = tm.OutputTag(f"late-{name}")
            counted = keyed.window(assigner).allowed_lateness("2 hours").late_to(late).aggregate(n=tm.count()).uid(name)
            found |= {name: counted, late.name: counted.side_output(late)}
        return found

    lab = Lab(spark, tmp_path)
    parts = [lab.run(streams(read), end_of_input=read == 3) for read in (1, 3)]
    assert [len(part.epochs) for part in parts] == [1, 3]
    columns = ("k", "window_start", "window_end", "pane_timing", "pane_index", "n")
    for name, assigner in windows.items():
        expected, late_rows = expected_panes(epochs, assigner, 2 * HOUR)
        shown = [row for part in parts for row in part.of(name, *columns)]
        assert sorted(shown, key=str) == sorted(expected, key=str), name
        assert any(timing == "LATE" for _, _, _, timing, _, _ in shown), name
        assert sum(len(part.rows[f"late-{name}"]) for part in parts) == late_rows > 0, name


def expected_panes(
    epochs: Sequence[Sequence[tuple[str, int, str]]], windows: LocalWindows, lateness: int
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the panes that the reference shows, and how many rows are late."""
    made = [
        tuple(Element((k,), t, position=(number, place), zone=z) for place, (k, t, z) in enumerate(rows))
        for number, rows in enumerate(epochs)
    ]
    strategy = WatermarkStrategy("t", Ascending(), max_future_skew_ms=None)
    job = ReferenceJob({"source": strategy}, windows, count(), lateness)
    expected = run_reference(job, [*(Epoch(rows) for rows in made), Epoch(end_of_input=True)])
    shown = [
        (*pane.key, instant(pane.window.start), instant(pane.window.end), pane.timing, pane.index, pane.result)
        for epoch in expected
        for pane in epoch.panes
    ]
    return shown, sum(len(epoch.late) for epoch in expected)


def blanks() -> dict[str, tm.Stream]:
    """Return windows whose zones have blanks behind them, as in a column of type CHAR."""
    rows = [("a", NOON, "Asia/Tokyo"), ("a", NOON + DAY, "Europe/London")]
    windows = elements(rows, schema=SCHEMA, name="blanks").key_by("k").window(tm.tumbling("1 day", zone_by="rpad(z, 30, ' ')"))
    return {"blanks": windows.aggregate(n=tm.count()).uid("blanks")}


def filtered() -> dict[str, tm.Stream]:
    """Return windows of rows some of which are filtered before the first watermark."""
    first = [("a", NOON, "1"), ("a", NOON + HOUR, "-1"), ("b", NOON, "-1"), ("b", None, "1"), ("b", NOON - 20 * HOUR, "1")]
    second = [("a", NOON + DAY, "1"), ("a", NOON, "-1")]
    rows = elements(first, second, schema=SCHEMA, name="filtered", malformed_to=tm.OutputTag("bad"))
    windows = rows.filter("CAST(z AS INT) >= 0").key_by("k").window(tm.tumbling("1 day", zone="Asia/Tokyo"))
    return {"filtered": windows.aggregate(n=tm.count()).uid("filtered")}


def ending_together() -> dict[str, tm.Stream]:
    """Return the days of London and of Algiers, and what lists those of a key: of 2023-03-26 London has 23 hours and Algiers 24."""
    rows = [(key, NOON + DAY, zone) for key in KEYS for zone in ("Europe/London", "Africa/Algiers")]
    days = elements(rows, schema=SCHEMA, name="together").key_by("k").window(tm.tumbling("1 day", zone_by="z"))
    panes = days.aggregate(n=tm.count()).uid("together")
    starts = tm.collect_list("unix_millis(window_start)")
    return {"listed": panes.key_by("k").window(tm.tumbling("1 day")).aggregate(starts=starts).uid("listed")}


def tagged(rows: Iterable[dict[str, Any]], context: tm.WindowContext) -> Iterator[dict[str, int]]:
    assert context.window is not None
    yield {"n": len(list(rows)), "hours": (context.window.end - context.window.start) // HOUR}


def with_functions() -> dict[str, tm.Stream]:
    """Return windows of functions over local days."""
    times: Sequence[int] = [NOON + hours * HOUR for hours in (0, 1, 13, 20, 35, 60)]
    keyed = elements([("a", t, "") for t in times], schema=SCHEMA, name="times").key_by("k")
    windows = keyed.window(tm.tumbling("1 day", zone="Europe/Berlin"))
    return {
        "all": windows.process(tagged, returns="n INT, hours INT").uid("all"),
        "one": windows.aggregate(tm.window_function(lambda rows, _: rows, "n BIGINT"), n=tm.count()).uid("one"),
        "sum": windows.reduce(t="a.t + b.t").uid("sum"),
    }


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What one job does with streams of their own, at each of which a test looks."""
    streams = blanks() | filtered() | ending_together() | with_functions()
    return Lab(spark, tmp_path_factory.mktemp("local-days")).run(streams)


@pytest.mark.spark
def test_blanks_after_a_zone_do_not_count(ran: Ran) -> None:
    assert [(end - start) // timedelta(hours=1) for start, end in ran.of("blanks", "window_start", "window_end")] == [24, 23]


def test_the_pattern_of_names_has_all_of_the_database_and_no_distance() -> None:
    assert [name for name in zone_names() if not re.search(ZONE_NAME, name)] == []
    others = ["+01:00", "-5", "Z", "UTC+1", "UTC+01:00", "GMT-10", "UT+1", "PST", "IST", "", " UTC", "1:00", "Europe Berlin"]
    assert [name for name in others if re.search(ZONE_NAME, name)] == []


@pytest.mark.spark
@pytest.mark.parametrize(
    ("zone", "says"),
    [
        (None, "the zone z of an element of w is null"),
        ("Mars/Olympus", "the zone z of an element of w is 'Mars/Olympus', which is no time zone"),
        ("+01:00", "the zone z of an element of w is '+01:00', no name in the IANA database"),
    ],
)
def test_a_row_without_a_known_zone_ends_the_job(zone: str | None, says: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", NOON, "Asia/Tokyo"), ("a", NOON, zone)]
    windows = elements(rows, schema=SCHEMA).key_by("k").window(tm.tumbling("1 day", zone_by="z"))
    with pytest.raises(UserCodeError) as caught:
        Lab(spark, tmp_path).run({"panes": windows.aggregate(n=tm.count()).uid("w")})
    assert says in str(caught.value)
    assert caught.value.uid == "w"
    assert str(caught.value.place).startswith(__file__)
    condition = re.search(r'Fix: .*\.filter\("(.*?)", rejects_to=', str(caught.value))
    assert condition is not None
    require_known_zones_only(spark, condition[1])


@cache
def require_known_zones_only(spark: SparkSession, condition: str) -> None:
    """Require that the condition that an error tells is true of names in the database, and of no other text; once of each condition."""
    names = [*sorted(zone_names() - {"GMT"}), "Asia/Tokyo ", "Mars/Olympus", "+01:00", "UTC+01:00", "PST", None]
    known = spark.createDataFrame([(name,) for name in names], "z STRING").where(condition).collect()
    slashed = {name for name in zone_names() if "/" in name or name == "UTC"}
    assert len(slashed - {row.z for row in known}) <= 5, "zones that are newer than Java's database"
    assert not {"Mars/Olympus", "+01:00", "UTC+01:00", "PST", None} & {row.z for row in known}


@pytest.mark.spark
def test_rows_that_are_filtered_before_the_first_watermark_are_in_no_window(ran: Ran) -> None:
    assert [epoch.operators["filtered"].rows_accepted for epoch in ran.epochs[:2]] == [2, 1]
    assert ran.epochs[0].sources["filtered"].rows_malformed == ran.epochs[0].rows_malformed == 1
    days = {day: instant(NOON + 3 * HOUR + day * DAY) for day in (-1, 0, 1)}  # midnight in Tokyo is at 15:00 UTC
    assert ran.of("filtered", "k", "window_start", "window_end", "n") == [
        ("a", days[-1], days[0], 1),
        ("a", days[0], days[1], 1),
        ("b", days[-1], days[0], 1),
    ]


@pytest.mark.spark
def test_windows_of_a_key_that_end_together_have_an_order(spark: SparkSession, ran: Ran) -> None:
    """Both days end at 23:00 UTC."""
    found = dict(ran.of("listed", "k", "starts"))
    starts = [NOON + DAY - 12 * HOUR, NOON + DAY - 13 * HOUR]
    positions = spark.createDataFrame([(key, start) for key in KEYS for start in starts], "k STRING, start BIGINT")
    ordered = positions.selectExpr("k", "start", "xxhash64(xxhash64(k), start) AS row").orderBy("row").collect()
    assert found == {key: [row.start for row in ordered if row.k == key] for key in KEYS}
    assert len(set(map(tuple, found.values()))) == 2, "not the order of the starts, which is that of values at one position"


@pytest.mark.spark
def test_functions_get_local_days(ran: Ran) -> None:
    assert ran.of("all", "n", "hours") == [(1, 24), (1, 24), (2, 23), (2, 24)]
    assert ran.of("one", "n") == [1, 1, 2, 2]
    assert ran.of("one", "window_start") == ran.of("all", "window_start") == ran.of("sum", "window_start")
