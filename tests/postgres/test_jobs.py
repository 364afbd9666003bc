"""Jobs that write to Postgres: every type, appends, upserts with deletes, sessions; and values that it cannot hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.changelog_sinks.test_tables import Contents, applied, changes, operations, visible
from tests.postgres.rig import VARIABLE
from tests.postgres.server import NEEDS_POSTGRES, Server
from tests.seeds import PROFILE, new_seeds
from tidemark.errors import SinkError, TidemarkError
from tidemark.spark.sinks.postgres.staging import INDEX_ROW_BYTES
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_POSTGRES, pytest.mark.spark]

START = 1_700_000_000_000
INSTANT = datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
TYPES = (
    "t BIGINT, b BOOLEAN, i1 TINYINT, i2 SMALLINT, i4 INT, i8 BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20, 5), s STRING, x BINARY, day DATE, "
    "at TIMESTAMP, local TIMESTAMP_NTZ, bs ARRAY<BOOLEAN>, ns ARRAY<INT>, fs ARRAY<DOUBLE>, ms ARRAY<DECIMAL(10, 2)>, ss ARRAY<STRING>, "
    "xs ARRAY<BINARY>, days ARRAY<DATE>, ats ARRAY<TIMESTAMP>, locals ARRAY<TIMESTAMP_NTZ>"
)
ODD = ["", " ", "NULL", "null", '"', "\\", "\\.", "{a,b}", "a,b\n\r\tc", "é \U0001f600", "'; DROP TABLE x; --", "\\x00", "%s"]


def every_type() -> list[dict[str, Any]]:
    """Return a row with ordinary values, one with odd ones, one without any."""
    local = INSTANT.replace(tzinfo=None)
    first: dict[str, Any] = {
        "t": 1, "b": True, "i1": -128, "i2": 32767, "i4": -(2**31), "i8": 2**63 - 1, "f": 0.5, "d": 0.1,
        "m": Decimal("123456789012345.67891"),
        "s": "text", "x": b"\x00\xff", "day": date(1, 1, 1), "at": INSTANT, "local": local, "bs": [True, False, None], "ns": [1, None, -3],
        "fs": [0.1, float("inf"), None], "ms": [Decimal("0.01"), None], "ss": [*ODD, None], "xs": [b"", b"\x00\\", None],
        "days": [date(9999, 12, 31), None], "ats": [INSTANT, None, datetime(1900, 1, 1, tzinfo=UTC)], "locals": [local, None],
    }  # fmt: skip
    odd: dict[str, Any] = {
        **dict.fromkeys(first),
        "t": 2,
        "d": float("-inf"),
        "s": "".join(ODD),
        "x": b"",
        "ss": [],
        "ns": [],
        "day": date(9999, 12, 31),
    }
    return [first, odd, {**dict.fromkeys(first), "t": 3}]


def test_every_type(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> None:
    given = every_type()
    rows = tm.source("rows", tm.from_elements(epochs=[given], schema=TYPES), watermarks=tm.ascending(timestamp="t"))
    job = tm.Job(f"types-{schema}", {"types": tm.postgres(rows, table=f"{schema}.types", dsn_env=VARIABLE)}, store=str(tmp_path / "store"))
    tm.run(job, spark=spark)
    names = list(given[0])
    found = server.query(f"SELECT {', '.join(names)} FROM {schema}.types ORDER BY t")
    assert [dict(zip(names, row, strict=True)) for row in found] == given
    query = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = 'types'"
    kinds = dict(server.query(query, schema))
    assert (kinds["at"], kinds["local"], kinds["m"], kinds["x"]) == (
        "timestamp with time zone",
        "timestamp without time zone",
        "numeric",
        "bytea",
    )


@pytest.mark.parametrize("seed", new_seeds("changelogs in postgres"))
def test_a_table_holds_what_the_changelog_says(spark: SparkSession, server: Server, schema: str, tmp_path: Path, seed: int) -> None:
    given = list(changes(Random(seed), 5 if PROFILE == "long" else 3))
    source = "k STRING, v INT, tags MAP<STRING, INT>, op STRING, t BIGINT"
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=source), watermarks=tm.ascending(timestamp="t"))
    log = rows.as_changelog(["k"], operation="op").select("k", "v")
    few = log.filter("v >= 2")
    job = tm.Job(
        f"log-{schema}",
        {
            "rows": tm.postgres(log, table=f"{schema}.rows", dsn_env=VARIABLE, mode="upsert"),
            "few": tm.postgres(few, table=f"{schema}.few", dsn_env=VARIABLE, mode="upsert", keys=["K"]),
            "history": tm.postgres(few, table=f"{schema}.history", dsn_env=VARIABLE),
        },
        store=str(tmp_path / "store"),
    )
    contents, history = Contents(), list[tuple[Any, ...]]()
    for epoch, found in enumerate(given):
        ran = tm.run(job, spark=spark, clock=ManualClock(START + 1_000 * epoch), max_epochs=1)
        after = applied(contents, found)
        before_few, after_few = visible(contents), visible(after)
        net = operations(before_few, after_few)
        history += [(key, value, operation, epoch) for key, value, operation in net]
        assert read(server, f"SELECT k, v FROM {schema}.rows") == sorted(after.items(), key=repr)
        assert read(server, f"SELECT k, v FROM {schema}.few") == sorted(after_few.items(), key=repr)
        assert read(server, f"SELECT k, v, operation, epoch FROM {schema}.history") == sorted(history, key=repr)
        assert sum(ran.epochs[0].outputs["history"].changes.values()) == len(net)
        contents = after


def read(server: Server, query: str) -> list[tuple[Any, ...]]:
    return sorted(server.query(query), key=repr)


def test_windows_and_sessions_are_upserted_as_in_delta(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> None:
    random = Random(5)
    given = [
        [{"k": random.choice([None, "a", "b"]), "v": random.randint(1, 9), "t": START + 1_000 * random.randint(0, 200)} for _ in range(12)]
        for _ in range(6 if PROFILE == "long" else 3)
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema="k STRING, v INT, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    keyed = rows.key_by("k")
    sessions = keyed.window(tm.session("5 seconds")).allowed_lateness("1 hour").aggregate(total=tm.sum("v")).uid("sessions")
    hourly = keyed.window(tm.tumbling("20 seconds")).allowed_lateness("1 hour").aggregate(total=tm.sum("v")).uid("hourly")
    streams = {"sessions": sessions, "hourly": hourly}
    by_start = tm.postgres(sessions, table=f"{schema}.starts", dsn_env=VARIABLE, mode="upsert", keys=["k", "window_start"])
    job = tm.Job(
        f"windows-{schema}",
        {
            **{name: tm.postgres(stream, table=f"{schema}.{name}", dsn_env=VARIABLE, mode="upsert") for name, stream in streams.items()},
            **{f"{name}-delta": tm.delta(stream, str(tmp_path / name), mode="upsert") for name, stream in streams.items()},
            "starts": by_start,
            "starts-delta": tm.delta(sessions, str(tmp_path / "starts"), mode="upsert", keys=["k", "window_start"]),
        },
        store=str(tmp_path / "store"),
    )
    replaced: list[int] = []

    def compare(_: object) -> None:
        for name in (*streams, "starts"):
            columns = ["k", "window_start", "window_end", "total", "pane_index"]
            table = DeltaTable(str(tmp_path / name)).to_pyarrow_table(columns=columns).to_pylist()
            wanted = sorted((tuple(row[column] for column in columns) for row in table), key=repr)
            found = server.query(f"SELECT {', '.join(columns)} FROM {schema}.{name}")
            assert normal(found) == normal(wanted)
        replaced.append(server.query(f"SELECT count(*) FROM {schema}.sessions WHERE jsonb_array_length(replaces) > 0")[0][0])

    tm.run(job, spark=spark, max_epochs=len(given), end_of_input=True, on_epoch=compare)
    assert len(replaced) == len(given)
    assert any(replaced), "no session replaced another"


def normal(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(value.timestamp() if isinstance(value, datetime) else value for value in row) for row in rows), key=repr)


@pytest.mark.parametrize(
    "case",
    [
        ("v", "concat('a', char(0), 'b')", "column 'v' has a text with the character 0, or bytes that are no UTF-8"),
        ("v", "CAST(unhex('ff') AS STRING)", "column 'v' has a text with the character 0, or bytes that are no UTF-8"),
        ("v", "array('a', concat(char(0)))", "column 'v' has a text with the character 0"),
        ("v", "timestamp_millis(t * 1000000000000000)", "column 'v' has a year outside 1 to 9999"),
        ("n", "CAST(NULL AS STRING)", "column 'n' is null"),
    ],
)
def test_a_value_that_postgres_cannot_hold_fails_before_the_commit(
    spark: SparkSession, server: Server, schema: str, tmp_path: Path, case: tuple[str, str, str]
) -> None:
    column, expression, message = case
    rows = tm.source("rows", tm.from_elements(epochs=[[{"t": 1}]], schema="t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    if column == "n":
        server.query(f"CREATE TABLE {schema}.bad (t bigint, n text NOT NULL)")
    output = tm.postgres(rows.with_columns(**{column: expression}), table=f"{schema}.bad", dsn_env=VARIABLE)
    job = tm.Job(f"bad-{schema}", {"bad": output}, store=str(tmp_path / "store"))
    with pytest.raises(TidemarkError) as raised:
        tm.run(job, spark=spark)
    assert message in str(raised.value)
    assert not server.query(f"SELECT * FROM {schema}.bad")
    assert tm.savepoints_of(job).pins.log.load().epoch is None


@pytest.mark.parametrize("kind", ["STRING", "ARRAY<STRING>"])
def test_keys_that_no_index_holds_fail_before_the_commit(
    spark: SparkSession, server: Server, schema: str, tmp_path: Path, kind: str
) -> None:
    room = INDEX_ROW_BYTES - 16 - 2 * 32 - (12 if kind != "STRING" else 0)
    # Texts that Postgres cannot compress.
    longest = Random(kind).randbytes(2 * room).hex()[:room]

    def wide(text: str) -> object:
        return text if kind == "STRING" else [text]

    given: list[list[dict[str, object]]] = [
        [{"k": wide(longest), "n": 1, "t": 1}, {"k": None, "n": 1, "t": 2}],
        [{"k": wide(f"{longest}x"), "n": 1, "t": 3}],
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema=f"k {kind}, n INT, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    output = tm.postgres(rows, table=f"{schema}.keyed", dsn_env=VARIABLE, mode="upsert", keys=["n", "k"])
    job = tm.Job(f"keyed-{schema}", {"keyed": output}, store=str(tmp_path / "store"))
    with pytest.raises(TidemarkError, match=r"column 'k' is part of a key of more than 2624 bytes, .*upsert by shorter keys"):
        tm.run(job, spark=spark)
    assert server.query(f"SELECT t FROM {schema}.keyed ORDER BY t") == [(1,), (2,)]
    head = tm.savepoints_of(job).pins.log.load().epoch
    assert head is not None
    assert head.epoch == 0


def test_types_that_only_spark_knows_are_refused_before_the_commit(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    rows = tm.source("rows", tm.from_elements(epochs=[[{"t": 1}]], schema="t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    output = tm.postgres(rows.with_columns(m="map('a', t)"), table=f"{schema}.bad", dsn_env=VARIABLE)
    job = tm.Job(f"maps-{schema}", {"bad": output}, store=str(tmp_path / "store"))
    with pytest.raises(SinkError, match=r"no type for the values of column 'm', MAP<STRING, BIGINT>.*Fix: .*to_json\(m\)"):
        tm.run(job, spark=spark)


def test_a_stream_with_keys_has_its_newest_rows(spark: SparkSession, server: Server, schema: str, tmp_path: Path) -> None:
    given: list[list[dict[str, object]]] = [
        [{"k": "a", "v": 1, "t": 1}, {"k": "a", "v": 2, "t": 2}, {"k": None, "v": 3, "t": 3}],
        [{"k": None, "v": 4, "t": 4}],
    ]
    rows = tm.source("rows", tm.from_elements(epochs=given, schema="k STRING, v INT, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    output = tm.postgres(rows.select("k", "v"), table=f"{schema}.newest", dsn_env=VARIABLE, mode="upsert", keys=["k"])
    job = tm.Job(f"keys-{schema}", {"newest": output}, store=str(tmp_path / "store"))
    ran = tm.run(job, spark=spark)
    assert read(server, f"SELECT k, v FROM {schema}.newest") == sorted([("a", 2), (None, 4)], key=repr)
    assert sum(epoch.outputs["newest"].rows for epoch in ran.epochs) == 4
    columns = server.query("SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 'newest'", schema)
    assert sorted(name for (name,) in columns) == ["k", "v"]
