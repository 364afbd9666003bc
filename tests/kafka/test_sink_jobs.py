"""Jobs that publish to topics: what their records are, and that each row is there once, also when the driver is killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.kafka.broker import NEEDS_JARS, Broker
from tests.kafka.sink_jobs import EPOCHS, expected_totals, make_job, trips
from tests.kafka.topic_records import Read, create_topic, read
from tests.killed import kill_at
from tests.seeds import only_long
from tidemark.errors import PublishError, SinkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]

_names = count()
SCHEMA = "k STRING, v INT, at TIMESTAMP, op STRING, t BIGINT"
START = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
def topic(broker: Broker) -> str:
    return create_topic(broker.address, f"sink{next(_names)}")


def stream(*epochs: list[dict[str, Any]]) -> tm.Stream:
    rows = [[{"at": None, "op": "insert", **row} for row in epoch] for epoch in epochs]
    return tm.source("rows", tm.from_elements(epochs=rows, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))


CHANGES: tuple[list[dict[str, Any]], ...] = (
    [{"k": "a", "v": 1, "t": 1}, {"k": "b", "v": 2, "t": 2}],
    [
        {"k": "a", "v": 1, "op": "update_before", "t": 3},
        {"k": "a", "v": 5, "op": "update_after", "t": 4},
        {"k": "b", "v": 2, "op": "delete", "t": 5},
        {"k": None, "v": 9, "t": 6},
    ],
)


def changelog() -> tm.Stream:
    return stream(*CHANGES).as_changelog(["k"], operation="op").select("k", "v")


def run(output: tm.Output, spark: SparkSession, folder: Path, **options: Any) -> tm.RunResult:
    return tm.run(tm.Job("sinks", outputs={"out": output}), spark=spark, store=str(folder / "store"), handle_signals=False, **options)


def records(broker: Broker, topic: str) -> list[tuple[Any, Any]]:
    """Return keys and values, those that are JSON as what they say."""
    return [(_said(record.key), _said(record.value)) for record in read(broker.address, topic)]


def _said(text: str | None) -> Any:
    return json.loads(text) if text is not None and text.startswith("{") else text


def test_rows_of_a_stream_are_plain_records(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = stream([{"k": "a", "v": 1, "t": 1}, {"k": None, "v": None, "t": 2}], [{"k": "a", "v": 3, "t": 3}])
    timed = rows.with_columns(at="timestamp_micros(1700000000123456)", trace="concat('t-', v)")
    output = tm.kafka_sink(timed, servers=broker.address, topic=topic, key=["k"], key_format="text", headers={"trace-id": "trace"})
    result = run(output, spark, tmp_path)
    assert sum(epoch.outputs["out"].rows for epoch in result.epochs) == 3
    found = read(broker.address, topic)
    assert Counter((record.key, record.headers) for record in found) == Counter(
        [("a", (("trace-id", b"t-1"),)), (None, (("trace-id", None),)), ("a", (("trace-id", b"t-3"),))]
    )
    values = [json.loads(record.value or "") for record in found if record.key == "a"]
    assert [value["v"] for value in values] == [1, 3], "records of one key are in one partition, in the order of the epochs"
    assert values[0] == {"k": "a", "v": 1, "at": "2023-11-14T22:13:20.123456Z", "op": "insert", "t": 1, "trace": "t-1"}
    (empty,) = [json.loads(record.value or "") for record in found if record.key is None]
    assert (empty["k"], empty["v"], empty["trace"]) == (None, None, None), "nulls are written"


def test_a_changelog_as_upserts_as_envelopes_of_debezium_and_as_its_history(
    broker: Broker, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    upserts, history = (create_topic(broker.address, f"{topic}-{name}") for name in ("upserts", "history"))
    log = changelog()
    outputs = {
        "out": tm.kafka_sink(log, servers=broker.address, topic=topic, format="debezium-json"),
        "upserts": tm.kafka_sink(log, servers=broker.address, topic=upserts, mode="upsert"),
        "history": tm.kafka_sink(log, servers=broker.address, topic=history),
    }
    result = tm.run(tm.Job("sinks", outputs=outputs), spark=spark, store=str(tmp_path / "store"), handle_signals=False)
    require_upserts(records(broker, upserts))
    require_envelopes(records(broker, topic), {epoch.epoch: epoch.processing_time for epoch in result.epochs})
    changes = [(key["k"], value["operation"], value["v"]) for key, value in records(broker, history)]
    inserts = [("a", "insert", 1), ("b", "insert", 2), (None, "insert", 9)]
    assert Counter(changes) == Counter([*inserts, ("a", "update", 5), ("b", "delete", 2)])


def require_upserts(found: list[tuple[Any, Any]]) -> None:
    """Check that a row that is gone is a tombstone."""
    by_key = {name: [value for key, value in found if key == {"k": name}] for name in ("a", "b", None)}
    assert by_key == {
        "a": [{"k": "a", "v": 1}, {"k": "a", "v": 5}],
        "b": [{"k": "b", "v": 2}, None],
        None: [{"k": None, "v": 9}],
    }


def require_envelopes(found: list[tuple[Any, Any]], times: Mapping[int, int]) -> None:
    changes = [(key["k"], value["op"], value["before"], value["after"]) for key, value in found]
    assert sorted(changes, key=repr) == sorted(
        [
            ("a", "c", None, {"k": "a", "v": 1}),
            ("b", "c", None, {"k": "b", "v": 2}),
            ("a", "u", {"k": "a", "v": 1}, {"k": "a", "v": 5}),
            ("b", "d", {"k": "b", "v": 2}, None),
            (None, "c", None, {"k": None, "v": 9}),
        ],
        key=repr,
    )
    assert {value["source"]["table"] for _, value in found} == {"out"}
    assert all(value["ts_ms"] == times[value["source"]["epoch"]] for _, value in found)


def test_a_session_that_grows_leaves_a_tombstone(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    early = [{"k": "a", "v": 1, "t": START}, {"k": "z", "v": 0, "t": START + 20 * MINUTE}]
    late = [{"k": "a", "v": 2, "t": START + 4 * MINUTE}, {"k": "z", "v": 0, "t": START + 21 * MINUTE}]
    sessions = (
        stream(early, late).key_by("k").window(tm.session("5 minutes")).allowed_lateness("1 hour").aggregate(n=tm.count()).uid("sessions")
    )
    output = tm.kafka_sink(sessions, servers=broker.address, topic=topic, mode="upsert")
    run(output, spark, tmp_path, end_of_input=True)
    newest: dict[str, Any] = {}
    written = Counter[str]()
    for key, value in records(broker, topic):
        newest[json.dumps(key)] = value
        written["gone" if value is None else "there"] += 1
    left = [(value["k"], value["n"]) for value in newest.values() if value is not None]
    assert sorted(left) == [("a", 2), ("z", 2)]
    assert written["gone"] >= 1


def test_values_that_are_made_by_the_job(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = stream([{"k": "a", "v": 1, "t": 1}]).select("k", value="concat(k, '=', v)")
    run(tm.kafka_sink(rows, servers=broker.address, topic=topic, key=["k"], format="raw"), spark, tmp_path)
    assert records(broker, topic) == [({"k": "a"}, "a=1")]


def test_other_columns_and_another_parallelism(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = stream(*([{"k": key, "v": number, "t": 10 * number}] for number, key in enumerate("abca")))
    before, after = rows.select("k", "v"), rows.select("k", "t", twice="2 * v")
    for number, (given, parallelism) in enumerate(((before, 1), (after, 3), (after, 2))):
        output = tm.kafka_sink(given, servers=broker.address, topic=topic, key=["k"], key_format="text")
        run(output, spark, tmp_path, parallelism=lambda wanted=parallelism: wanted, max_epochs=2 if number == 2 else 1)
    found = records(broker, topic)
    wanted = [
        ("a", {"k": "a", "v": 0}),
        ("a", {"k": "a", "t": 30, "twice": 6}),
        ("b", {"k": "b", "t": 10, "twice": 2}),
        ("c", {"k": "c", "t": 20, "twice": 4}),
    ]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert [value for key, value in found if key == "a"][-1]["t"] == 30, "a key's records stay in order"


def test_an_upsert_without_a_key_is_refused(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    rows = stream([{"k": None, "v": 1, "t": 1}]).select("k", "v")
    output = tm.kafka_sink(rows, servers=broker.address, topic=topic, key=["k"], key_format="text", mode="upsert")
    with pytest.raises(tm.TidemarkError, match="the key column k is null"):
        run(output, spark, tmp_path)
    assert records(broker, topic) == []


def test_wrong_servers_and_topics_are_named_before_anything_is_read(
    broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.spark.sinks.kafka.connection.FIND_S", 2.0)
    rows = stream([{"k": "a", "v": 1, "t": 1}])
    with pytest.raises(SinkError, match="the topic 'nowhere' of output 'out' does not exist"):
        run(tm.kafka_sink(rows, servers=broker.address, topic="nowhere"), spark, tmp_path)
    with pytest.raises(PublishError, match="the brokers of output 'out' cannot be reached"):
        run(tm.kafka_sink(rows, servers="127.0.0.1:9", topic="nowhere"), spark, tmp_path)


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    found = "marker-s3cret"
    monkeypatch.setenv("OUT_PASSWORD", found)
    monkeypatch.setattr("tidemark.spark.sinks.kafka.connection.FIND_S", 3.0)
    return found


def test_secrets_are_nowhere_in_the_store(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path, secret: str) -> None:
    rows = stream([{"k": "a", "v": 1, "t": 1}])
    # The option is not used without SASL: the job runs, and its record names the variable.
    output = tm.kafka_sink(rows, servers=broker.address, topic=topic, options_env={"sasl.password": "OUT_PASSWORD"})
    run(output, spark, tmp_path)
    assert len(records(broker, topic)) == 1
    refused = tm.kafka_sink(
        rows,
        servers=broker.address,
        topic=topic,
        options={"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ada"},
        options_env={"sasl.password": "OUT_PASSWORD"},
    )
    with pytest.raises((SinkError, PublishError)) as raised:
        run(refused, spark, tmp_path / "refused")
    assert secret not in str(raised.value)
    held = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert held == []
    assert any(b"OUT_PASSWORD" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_rewind_publishes_the_rows_again(broker: Broker, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    output = tm.kafka_sink(changelog(), servers=broker.address, topic=topic, mode="upsert")
    job, store = tm.Job("sinks", outputs={"out": output}), str(tmp_path / "store")
    tm.run(job, spark=spark, store=store, handle_signals=False, max_epochs=1)
    tm.savepoints_of(job, store=store).take("first")
    tm.run(job, spark=spark, store=store, handle_signals=False)
    once = records(broker, topic)
    tm.rewind(job, "first", store=store)
    assert records(broker, topic) == once, "records stay"
    tm.run(job, spark=spark, store=store, handle_signals=False)
    again = records(broker, topic)
    newest = {json.dumps(key): value for key, value in again}
    assert newest == {'{"k": "a"}': {"k": "a", "v": 5}, '{"k": "b"}': None, '{"k": null}': {"k": None, "v": 9}}
    assert len(again) == len(once) + 3


@pytest.mark.crash
@pytest.mark.parametrize(
    "points",
    [
        ("output-staged:2", "transaction-committed:2"),
        pytest.param(("output-staged:2", "records-sent:2", "transaction-committed:2", "staged-rows-deleted:2"), marks=only_long),
        pytest.param(("after-commit:2", "marker-sent:1"), marks=only_long),
    ],
    ids=" then ".join,
)
def test_a_job_that_is_killed(points: tuple[str, ...], broker: Broker, jvm: Mapping[str, str], spark: SparkSession, tmp_path: Path) -> None:
    suffix = f"killed{next(_names)}"
    fares, totals = (create_topic(broker.address, f"{name}-{suffix}") for name in ("fares", "totals"))
    for point in points:
        args = [str(tmp_path), broker.address, suffix]
        kill_at("tests.kafka.sink_jobs:drive", point, args, environment=jvm)
    tm.run(make_job(tmp_path, broker.address, suffix), spark=spark, handle_signals=False, takeover=True)
    found = [(record.key, json.loads(record.value or "")["fare"]) for record in read(broker.address, fares)]
    assert Counter(found) == Counter((trip["zone"], trip["fare"]) for epoch in range(EPOCHS) for trip in trips(epoch))
    newest: dict[str | None, Any] = {}
    upserts: list[Read] = read(broker.address, totals)
    for record in upserts:
        newest[record.key] = json.loads(record.value or "")
    assert newest == expected_totals()
    assert len(upserts) == EPOCHS * len(newest)
