"""Jobs that write to MariaDB and SQLite: every type, upserts with deletes, sessions; and values that they cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

import tidemark as tm
from tests.changelog_sinks.test_tables import Contents, applied, changes, operations, visible
from tests.postgres.rig import VARIABLE
from tests.seeds import new_seeds, only_long
from tests.sql_tables.place import ON_MARIADB, ON_SQLITE, Database, Place, columns
from tests.sql_tables.server import NEEDS_MARIADB
from tidemark.errors import TidemarkError
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

START = 1_700_000_000_000
INSTANT = datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
TYPES = (
    "t BIGINT, b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20, 5), s STRING, x BINARY, day DATE, "
    "at TIMESTAMP, local TIMESTAMP_NTZ"
)
ODD = ["", " ", "NULL", '"', "\\", "\\.", "{a,b}", "a,b\n\r\tc", "é \U0001f600", "'; DROP TABLE x; --", "\\x00", "%s", "?", "end "]


def every_type() -> list[dict[str, Any]]:
    """Return a row with ordinary values, one with odd ones, one without any."""
    first: dict[str, Any] = {
        "t": 1, "b": True, "i1": -128, "i2": 32767, "i4": -(2**31), "i8": 2**63 - 1, "f": 0.5, "d": 0.1,
        "m": Decimal("123456789012345.67891"),
        "s": "text", "x": b"\x00\xff'\\", "day": date(1000, 1, 1), "at": INSTANT, "local": INSTANT.replace(tzinfo=None),
    }  # fmt: skip
    odd: dict[str, Any] = {
        **dict.fromkeys(first),
        "t": 2,
        "i8": -(2**63),
        "f": 3.4028234663852886e38,
        "d": -2.2250738585072014e-308,
        "m": Decimal("-0.00001"),
        "s": "".join(ODD),
        "x": b"",
        "day": date(9999, 12, 31),
        "at": datetime(1900, 1, 1, tzinfo=UTC),
    }
    return [first, odd, {**dict.fromkeys(first), "t": 3}]


def as_read(place: Place, value: object) -> object:
    """Return a value as the database's driver reads it."""
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
        return value.isoformat(" ", "microseconds") if place.database == "sqlite" else value
    if place.database == "sqlite" and isinstance(value, date | Decimal):
        return format(value, "f") if isinstance(value, Decimal) else value.isoformat()
    return value


def test_every_type(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    given = every_type()
    rows = tm.source("rows", tm.from_elements(epochs=[given], schema=TYPES), watermarks=tm.ascending(timestamp="t"))
    output = tm.sql_table(rows, database=place.database, table="types", dsn_env=VARIABLE)
    tm.run(tm.Job("types", {"types": output}, store=str(tmp_path / "store")), spark=spark)
    names = list(given[0])
    found = place.query(f"SELECT {', '.join(names)} FROM types ORDER BY t")
    assert [dict(zip(names, row, strict=True)) for row in found] == [
        {name: as_read(place, value) for name, value in row.items()} for row in given
    ]
    kinds = columns(place, "types")
    wanted = {"mariadb": ("decimal(20,5)", "longblob", "datetime(6)"), "sqlite": ("TEXT", "BLOB", "TEXT")}
    assert (kinds["m"], kinds["x"], kinds["at"]) == wanted[place.database]


@pytest.mark.parametrize("place", ON_MARIADB, indirect=True)
@pytest.mark.parametrize("seed", new_seeds("changelogs in sql tables"))
def test_a_table_holds_what_the_changelog_says(spark: SparkSession, place: Place, tmp_path: Path, seed: int) -> None:
    given = list(changes(Random(seed), 3))
    source = "k STRING, v INT, tags MAP<STRING, INT>, op STRING, t BIGINT"
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=source), watermarks=tm.ascending(timestamp="t"))
    log = rows.as_changelog(["k"], operation="op").select("k", "v")
    few = log.filter("v >= 2")
    job = tm.Job(
        "log",
        {
            "few": tm.sql_table(few, database=place.database, table="few", dsn_env=VARIABLE, mode="upsert", keys=["K"]),
            "history": tm.sql_table(few, database=place.database, table="history", dsn_env=VARIABLE),
        },
        store=str(tmp_path / "store"),
    )
    contents, history = Contents(), list[tuple[Any, ...]]()
    for epoch, found in enumerate(given):
        tm.run(job, spark=spark, clock=ManualClock(START + 1_000 * epoch), max_epochs=1)
        after = applied(contents, found)
        before_few, after_few = visible(contents), visible(after)
        history += [(key, value, operation, epoch) for key, value, operation in operations(before_few, after_few)]
        assert read(place, "SELECT k, v FROM few") == sorted(after_few.items(), key=repr)
        assert read(place, "SELECT k, v, operation, epoch FROM history") == sorted(history, key=repr)
        contents = after


def read(place: Place, query: str) -> list[tuple[Any, ...]]:
    return sorted(place.query(query), key=repr)


@pytest.mark.parametrize("place", ON_SQLITE, indirect=True)
def test_sessions_that_merge_replace_each_other(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    given: list[list[dict[str, Any]]] = [
        [{"k": None, "v": 1, "t": START}, {"k": None, "v": 2, "t": START + 8_000}, {"k": "a", "v": 3, "t": START + 20_000}],
        [{"k": None, "v": 4, "t": START + 4_000}],
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema="k STRING, v INT, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    sessions = rows.key_by("k").window(tm.session("5 seconds")).allowed_lateness("1 hour").aggregate(total=tm.sum("v")).uid("sessions")
    output = tm.sql_table(sessions, database=place.database, table="sessions", dsn_env=VARIABLE, mode="upsert")
    job = tm.Job("sessions", {"sessions": output}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark, max_epochs=1)
    assert read(place, "SELECT k, total FROM sessions") == [(None, 1), (None, 2)]
    tm.run(job, spark=spark, max_epochs=1)
    assert read(place, "SELECT k, total FROM sessions") == [(None, 7)]


BAD_VALUES: Final = (
    ("both", "v", "concat('a', char(0), 'b')", "column 'v' has a text with the character 0, or bytes that are no UTF-8"),
    ("both", "v", "CAST(unhex('ff') AS STRING)", "column 'v' has a text with the character 0, or bytes that are no UTF-8"),
    ("both", "v", "timestamp_millis(t * 1000000000000000)", "column 'v' has a year outside 1"),
    ("mariadb", "v", "DATE'0999-12-31'", "column 'v' has a year outside 1000 to 9999"),
    ("both", "v", "double('NaN')", "column 'v' is NaN"),
    ("mariadb", "v", "float('-inf')", "column 'v' is NaN or infinite"),
    ("both", "n", "CAST(NULL AS STRING)", "column 'n' is null"),
    ("mariadb", "n", "repeat('é', 10)", "column 'n' is longer than 9 characters or 36 bytes"),
)
"""Which databases cannot hold it, its column, the value, and what is said of it."""


def placed_values() -> Iterator[pytest.ParameterSet]:
    """Give each value with a database that cannot hold it; with the other one, too, in the long profile."""
    for number, case in enumerate(BAD_VALUES):
        first: Database = "mariadb" if case[0] == "mariadb" or number % 2 else "sqlite"
        for database in ("mariadb", "sqlite") if case[0] == "both" else (first,):
            marks = [NEEDS_MARIADB] if database == "mariadb" else []
            yield pytest.param(database, case, marks=[*marks, *([] if database == first else [only_long])])


@pytest.mark.parametrize(("place", "case"), list(placed_values()), indirect=["place"])
def test_a_value_that_a_database_cannot_hold_fails_before_the_commit(
    spark: SparkSession, place: Place, tmp_path: Path, case: tuple[str, str, str, str]
) -> None:
    _, column, expression, message = case
    rows = tm.source("rows", tm.from_elements(epochs=[[{"t": 1}]], schema="t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    if column == "n":
        place.query(f"CREATE TABLE bad (t bigint, n varchar(9) {'' if place.database == 'sqlite' else 'CHARACTER SET utf8mb4 '}NOT NULL)")
    output = tm.sql_table(rows.with_columns(**{column: expression}), database=place.database, table="bad", dsn_env=VARIABLE)
    job = tm.Job("bad", {"bad": output}, store=str(tmp_path / "store"))
    with pytest.raises(TidemarkError) as raised:
        tm.run(job, spark=spark)
    assert message in str(raised.value)
    assert not place.query("SELECT * FROM bad")
    assert tm.savepoints_of(job).pins.log.load().epoch is None


@pytest.mark.parametrize("place", ON_MARIADB, indirect=True)
def test_keys_that_no_index_of_mariadb_holds_fail_before_the_commit(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    given: list[list[dict[str, object]]] = [
        [{"k": "é" * 255, "n": 1, "t": 1}, {"k": None, "n": 1, "t": 2}],
        [{"k": "é" * 256, "n": 1, "t": 3}],
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema="k STRING, n INT, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    output = tm.sql_table(rows, database=place.database, table="keyed", dsn_env=VARIABLE, mode="upsert", keys=["n", "k"])
    job = tm.Job("keyed", {"keyed": output}, store=str(tmp_path / "store"))
    if place.database == "sqlite":
        tm.run(job, spark=spark)
        assert place.query("SELECT t FROM keyed ORDER BY t") == [(1,), (2,), (3,)]
        return
    with pytest.raises(TidemarkError, match=r"column 'k' is longer than 255 characters or 1020 bytes"):
        tm.run(job, spark=spark)
    assert place.query("SELECT t FROM keyed ORDER BY t") == [(1,), (2,)]
