from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from tidemark.errors import CorruptStoreError
from tidemark.locations import Location
from tidemark.state.log.parquet_files import ParquetSummary, describe_parquet, parquet_schema
from tidemark.state.store.store import JobStore


def parquet(columns: dict[str, object], **options: object) -> bytes:
    sink = BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def described(columns: dict[str, object], time_column: str | None = None, **options: object) -> ParquetSummary:
    store = JobStore(Location.parse("/memory"), MemoryStore())
    store.put("a.parquet", parquet(columns, **options))
    return describe_parquet(store, ["a.parquet"], time_column)[0]


def test_describes_rows_bytes_times_and_statistics(root: JobStore) -> None:
    data = parquet({"at": pa.array([5, -3, None], pa.int64()), "zone": ["b", "a", None], "fare": [1.5, 2.5, 0.5]})
    root.put("state/u/a.parquet", data)
    summary = describe_parquet(root, ["state/u/a.parquet"], "at")[0]
    assert summary == ParquetSummary(
        "state/u/a.parquet",
        3,
        len(data),
        -3,
        5,
        {
            "numRecords": 3,
            "minValues": {"at": -3, "zone": "a", "fare": 0.5},
            "maxValues": {"at": 5, "zone": "b"},
            "nullCount": {"at": 1, "zone": 1, "fare": 0},
        },
    )
    assert summary.as_state_file(7).epoch == 7
    assert summary.as_staged_file().stats == summary.stats
    json.dumps(summary.stats, allow_nan=False)


def test_many_files_keep_their_order(root: JobStore) -> None:
    paths = [f"f{number}" for number in range(40)]
    for number, path in enumerate(paths):
        root.put(path, parquet({"x": list(range(number + 1))}))
    assert [(item.path, item.rows) for item in describe_parquet(root, paths)] == [(path, n + 1) for n, path in enumerate(paths)]
    assert describe_parquet(root, []) == []


def test_a_footer_larger_than_the_first_read_is_read_again(root: JobStore) -> None:
    root.put("wide", parquet({f"column_{n:05d}": [n] for n in range(2000)}))
    assert describe_parquet(root, ["wide"], "column_01999")[0].max_time == 1999


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("unit", ["ms", "us"])
def test_timestamps_become_milliseconds_rounded_outwards(unit: str, zone: str | None) -> None:
    instants = [datetime(1969, 12, 31, 23, 59, 59, 999_500 if unit == "us" else 999_000, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)]
    if unit == "us":
        instants[1] += timedelta(microseconds=1)
    micros = [int((instant - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) for instant in instants]
    scale = 1 if unit == "us" else 1000
    values = pa.array([micro // scale for micro in micros], pa.int64()).cast(pa.timestamp(unit, zone))
    summary = described({"at": values}, "at")
    assert summary.min_time == -1
    assert summary.max_time == 1_709_164_800_000 + (unit == "us")


def test_dates_are_their_first_moment() -> None:
    summary = described({"day": pa.array([date(1970, 1, 2), date(1969, 12, 31)])}, "day")
    assert (summary.min_time, summary.max_time) == (-86_400_000, 86_400_000)
    assert summary.stats["minValues"] == {"day": "1969-12-31"}


def test_delta_timestamps_are_exact_text() -> None:
    at = pa.array([datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert described({"at": at}).stats["maxValues"] == {"at": "2024-01-01T00:00:00.123456Z"}


def test_what_has_no_exact_bounds_has_none() -> None:
    stats = described(
        {
            "nan": [float("nan"), float("nan")],
            "inf": [1.0, float("inf")],
            "yes": [True, False],
            "price": pa.array([Decimal("1.10"), Decimal("2.20")]),
            "raw": [b"a", b"b"],
            "none": pa.array([None, None], pa.int64()),
            "tags": [["a"], ["b"]],
            "point": [{"x": 1}, {"x": 2}],
        }
    ).stats
    assert stats["minValues"] == stats["maxValues"] == {}
    assert stats["nullCount"] == {"nan": 0, "inf": 0, "yes": 0, "price": 0, "raw": 0, "none": 2}


def test_bytes_that_are_no_text_have_no_bounds() -> None:
    """As of a file in Latin-1 that Spark reads as text."""
    lines = pa.Array.from_buffers(pa.string(), 1, [None, pa.array([0, 4], pa.int32()).buffers()[1], pa.py_buffer(b"caf\xe9")])
    summary = described({"line": lines, "at": [7]}, "at")
    assert (summary.rows, summary.min_time, summary.max_time) == (1, 7, 7)
    assert summary.stats == {"numRecords": 1, "minValues": {"at": 7}, "maxValues": {"at": 7}, "nullCount": {"line": 0, "at": 0}}


def test_a_hidden_nan_is_not_ruled_out() -> None:
    stats = described({"x": [1.0, float("nan"), 3.0]}).stats
    assert (stats["minValues"], stats["maxValues"]) == ({"x": 1.0}, {})


def test_only_the_first_columns_have_statistics() -> None:
    stats = described({f"c{n}": [n] for n in range(40)}).stats
    assert set(stats["nullCount"]) == {f"c{n}" for n in range(32)}  # type: ignore[call-overload]


def test_row_groups_are_taken_together() -> None:
    summary = described({"at": [5, 1, 9, None, None, 3]}, "at", row_group_size=2)
    assert (summary.min_time, summary.max_time, summary.stats["nullCount"]) == (1, 9, {"at": 2})


def test_without_statistics_nothing_is_claimed() -> None:
    summary = described({"at": [5, 1]}, "at", write_statistics=False)
    assert (summary.min_time, summary.max_time) == (None, None)
    assert summary.stats == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}}


def test_a_file_without_rows_has_no_bounds() -> None:
    summary = described({"at": pa.array([], pa.int64())}, "at")
    assert (summary.rows, summary.min_time, summary.max_time) == (0, None, None)


@given(st.lists(st.one_of(st.text(max_size=40), st.text(min_size=33, max_size=40)), min_size=1, max_size=5))
@example(["z" * 33])
@example(["\U0010ffff" * 40])
def test_text_bounds_hold_for_every_value(values: list[str]) -> None:
    try:
        stats = described({"x": values}).stats
    except UnicodeEncodeError:
        return  # a lone surrogate is no Parquet text
    low, high = stats["minValues"].get("x"), stats["maxValues"].get("x")  # type: ignore[attr-defined]
    assert (low is None) == (high is None)
    if low is not None:
        assert all(low.encode() <= value.encode() <= high.encode() for value in values)
        assert len(low) <= 32
        assert len(high) <= 33


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "is empty"),
        (lambda data: data[:7], "is cut short"),
        (lambda data: data[:-1], "is cut short"),
        (lambda data: data[: len(data) // 2], "is cut short"),
        (lambda _: b"id,fare\n1,2.50\n", "is cut short, or not a Parquet file"),
        (lambda _: b"\xff\xff\xff\x7fPAR1", "has a footer larger than itself"),
        (lambda data: data[:-200] + bytes(192) + data[-8:], "has a damaged footer"),
        (lambda data: data[:4] + data[-len(data) // 3 :], "is shorter than its footer says|damaged footer|larger than itself"),
    ],
)
def test_damaged_files_are_refused_and_named(damage: object, message: str, root: JobStore) -> None:
    data = parquet({"x": list(range(1000)), "y": [str(n) for n in range(1000)]})
    root.put("state/u/good.parquet", data)
    root.put("state/u/bad.parquet", damage(data))  # type: ignore[operator]
    with pytest.raises(CorruptStoreError, match=message) as caught:
        describe_parquet(root, ["state/u/good.parquet", "state/u/bad.parquet"])
    assert "state/u/bad.parquet" in str(caught.value)


def test_a_file_that_lost_its_middle_is_refused(root: JobStore) -> None:
    data = parquet({"x": list(range(100_000))})
    root.put("a", data[:4] + data[-2_000:])
    with pytest.raises(CorruptStoreError, match="is shorter than its footer says"):
        describe_parquet(root, ["a"])


def test_a_missing_file_and_a_missing_column_are_errors(root: JobStore) -> None:
    root.put("a", parquet({"x": [1]}))
    with pytest.raises(CorruptStoreError, match="b is missing"):
        describe_parquet(root, ["a", "b"])
    with pytest.raises(CorruptStoreError, match="a has no column 'at'"):
        describe_parquet(root, ["a"], "at")


def test_the_schema_is_read_from_the_end_alone(root: JobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC")), "zone": ["a"]}).replace_schema_metadata({"writer": "somebody"})
    sink = BytesIO()
    pq.write_table(table, sink)
    root.put("a.parquet", sink.getvalue())
    root.put("b.parquet", b"PAR1")
    monkeypatch.delattr(JobStore, "get")
    found = parquet_schema(root, "a.parquet")
    assert found.equals(table.schema, check_metadata=True)
    for path in ("b.parquet", "c.parquet"):
        with pytest.raises(CorruptStoreError, match=path):
            parquet_schema(root, path)
