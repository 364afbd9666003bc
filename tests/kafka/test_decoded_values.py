"""Values in JSON and in Avro with a registry: schemas that change, and records that cannot be decoded."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import tidemark as tm
from tests.engine.lab import require_conservation
from tests.kafka.broker import NEEDS_AVRO, NEEDS_JARS, Broker, Topics
from tests.kafka.fares import MINUTE, START
from tests.kafka.schema_registry import Registry, encoded, schema_registry, wire
from tidemark.errors import SourceError
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.loop.driver import JobDriver
from tidemark.state.log.progress import EpochProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, NEEDS_AVRO, pytest.mark.spark, pytest.mark.slow]

MALFORMED: Final = tm.OutputTag("malformed")
SCHEMA: Final = (
    "zone INT NOT NULL, at TIMESTAMP, amount DECIMAL(8, 2), driver STRUCT<name: STRING, stars: DOUBLE>, stops ARRAY<BIGINT>, kind STRING"
)
AT: Final = {"type": "long", "logicalType": "timestamp-millis"}
MONEY: Final = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
FIRST: Final = {
    "type": "record",
    "name": "Fare",
    "namespace": "city",
    "fields": [{"name": "zone", "type": "int"}, {"name": "at", "type": AT}, {"name": "amount", "type": ["null", MONEY], "default": None}],
}
DRIVER: Final = {
    "type": "record",
    "name": "Driver",
    "fields": [{"name": "age", "type": "int"}, {"name": "stars", "type": "float"}, {"name": "name", "type": "string"}],
}
SECOND: Final = {
    **FIRST,
    "fields": [
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["YELLOW", "GREEN"]}},
        *FIRST["fields"],
        {"name": "driver", "type": ["null", DRIVER], "default": None},
        {"name": "stops", "type": {"type": "array", "items": "int"}},
        {"name": "note", "type": {"type": "map", "values": "string"}},
    ],
}
OTHER: Final = {**FIRST, "fields": [{"name": "zone", "type": "string"}, {"name": "at", "type": AT}]}
SECRET: Final = "hunter2-marker"  # noqa: S105 - looked for where it must not be


class Job:
    """A job that shows the values of a topic."""

    def __init__(self, spec: FormatSpec, folder: Path, spark: SparkSession) -> None:
        self._spark = spark
        watermarks = tm.bounded_out_of_orderness("1 minute", timestamp="value.at")
        source = tm.source("fares", spec, watermarks=watermarks, malformed_to=MALFORMED)
        self._names = {"rows": f"{folder}-rows", "malformed": f"{folder}-malformed"}
        named = {name: f"value.{name}" for name in ("zone", "amount", "driver", "stops", "kind")}
        rows = source.select("partition", "offset", **named)
        streams = {"rows": rows, "malformed": source.side_output(MALFORMED)}
        outputs = {name: tm.memory(stream, self._names[name]) for name, stream in streams.items()}
        self.job = tm.Job("fares", outputs=outputs, store=str(folder / "store"))
        self.epochs: list[EpochProgress] = []

    def run(self) -> None:
        for epoch in tm.run(self.job, spark=self._spark, handle_signals=False).epochs:
            require_conservation(epoch)
            self.epochs.append(epoch)

    def rows(self) -> dict[tuple[int, int], dict[str, Any]]:
        return {(row.pop("partition"), row.pop("offset")): row for row in self._table("rows")}

    def malformed(self) -> dict[str, str]:
        """Return the records by the reasons."""
        found = self._table("malformed")
        assert len({row["reason"] for row in found}) == len(found)
        return {row["reason"]: row["raw"] for row in found}

    def _table(self, output: str) -> list[dict[str, Any]]:
        table = tm.memory_table(self._names[output])
        return [] if table is None else table.to_pylist()


@dataclass
class World:
    """What a test has: a broker's topics, a registry with a password, and a session."""

    topics: Topics
    address: str
    registry: Registry
    spark: SparkSession
    folder: Path

    def source(self, topic: str, **arguments: Any) -> FormatSpec:
        given = {"format": "avro", "schema": SCHEMA, "registry": self.registry.url, "registry_env": "REGISTRY_USER", **arguments}
        return tm.kafka_source(servers=self.address, topics=topic, **given)

    def job(self, spec: FormatSpec, name: str = "job") -> Job:
        return Job(spec, self.folder / name, self.spark)


@pytest.fixture
def world(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("REGISTRY_USER", f"ada:{SECRET}")
    with schema_registry(user=f"ada:{SECRET}") as registry:
        yield World(topics, broker.address, registry, spark, tmp_path)


def millis(minute: int) -> int:
    return START + minute * MINUTE


def money(cents: int) -> bytes:
    return cents.to_bytes(4, "big", signed=True)


def test_avro_of_several_writers(world: World, caplog: pytest.LogCaptureFixture) -> None:
    topics, registry, topic = world.topics, world.registry, "avro.fares"
    topics.create(topic, 2)
    first = registry.register("avro.fares-value", FIRST)
    spec = world.source(topic)
    job = world.job(spec)
    topics.send(topic, 0, wire(first, FIRST, {"zone": 7, "at": millis(0), "amount": money(-1250)}))
    topics.send(topic, 1, wire(first, FIRST, {"zone": -3, "at": millis(1), "amount": None}))
    topics.flush()
    job.run()
    asked = len(registry.asked)
    # Writers change while the job has not: a schema with more columns in another order, and one that does not fit.
    second = registry.register("avro.fares-value", SECOND)
    other = registry.register("avro.fares-value", OTHER)
    fare = {"kind": "GREEN", "zone": 5, "at": millis(2), "amount": money(100), "stops": [4, 2], "note": {"a": "b"}}
    topics.send(topic, 0, wire(second, SECOND, {**fare, "driver": {"age": 41, "stars": 4.5, "name": "Zoë"}}))
    topics.send(topic, 0, wire(first, FIRST, {"zone": 8, "at": millis(3), "amount": None}))
    torn = wire(second, SECOND, {**fare, "driver": None})[:-9]
    # Its amount is of more bytes than the JVM has.
    huge = b"\0" + first.to_bytes(4, "big") + b"".join(encoded("long", each) for each in (7, millis(2), 1, 1_900_000_000)) + b"x"
    other_type = wire(other, OTHER, {"zone": "seven", "at": millis(2)})
    for value in (torn, other_type, b"\0\0\0\0\x11x", b'{"zone": 7}', b"\0\0", None, huge):
        topics.send(topic, 1, value)
    topics.flush()
    registry.failures = 2
    job.run()
    # The versions known before are not asked for again, and a registry that falters is asked again.
    assert len(registry.asked) == asked + 2 + 1 + 2
    nothing = {"driver": None, "stops": None, "kind": None}
    assert job.rows() == {
        (0, 0): {"zone": 7, "amount": Decimal("-12.50"), **nothing},
        (1, 0): {"zone": -3, "amount": None, **nothing},
        (0, 1): {"zone": 5, "amount": Decimal("1.00"), "driver": {"name": "Zoë", "stars": 4.5}, "stops": [4, 2], "kind": "GREEN"},
        (0, 2): {"zone": 8, "amount": None, **nothing},
    }
    no_wire = "value is not in the wire format of a registry: it does not begin with a zero byte and the id of a schema"
    found = job.malformed()
    assert set(found) == {
        f"value cannot be read with schema {second} (partition 1, offset 1)",
        f"schema {other} cannot be read: value.zone is string, and the source declares int (partition 1, offset 2)",
        "schema 17 is no version of subject avro.fares-value (partition 1, offset 3)",
        f"{no_wire} (partition 1, offset 4)",
        f"{no_wire} (partition 1, offset 5)",
        "event time 'value.at' is null (partition 1, offset 6)",
        f"value cannot be read with schema {first} (partition 1, offset 7)",
    }
    raw = json.loads(found[f"value cannot be read with schema {second} (partition 1, offset 1)"])
    assert base64.b64decode(raw["value"]) == torn
    assert [epoch.sources["fares"].rows_malformed for epoch in job.epochs] == [0, 7]
    everything = "".join(path.read_bytes().decode("latin-1") for path in world.folder.rglob("*") if path.is_file())
    assert SECRET not in everything + caplog.text + repr(spec) + str(job.job.explain())


def test_json_in_a_query(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobDriver, "plans_epochs", False)
    world.topics.create("queried.json", 1)
    at = datetime.fromtimestamp(START / 1000, UTC).isoformat()
    whole = f'{{"zone": 7, "at": "{at}", "amount": 2.5, "kind": "x"}}'
    torn = ['{"zone": 3000000000}', '{"zone": 1.5}', '{"zone": 1, "amount": 1234567.5}', '{"zone": 1, "stops": [1, "x"]}', "[1]", "null"]
    for value in (whole, '{"zone": "seven"}', "", f'{{"at": "{at}"}}', '{"zone":', f"{whole}{whole}", f"{whole} 1", *torn):
        world.topics.send("queried.json", 0, value)
    latin = f'{{"zone": 7, "at": "{at}", "kind": "Zoë"}}'.encode("latin-1")
    world.topics.send("queried.json", 0, latin)
    world.topics.send("queried.json", 0, f'  {{"at": "{at}", "extra": {{"a": [1]}}, "zone": 6, "zone": 7, "kind": null}} \n')
    more = [f'{{"zone": 1}},"value":{whole}', f'{whole} , "x": 1', f"{whole}}}", f"{whole}}} 1"]
    for value in more:
        world.topics.send("queried.json", 0, value)
    world.topics.flush()
    job = world.job(tm.kafka_source(servers=world.address, topics="queried.json", format="json", schema=SCHEMA))
    job.run()
    rows = {place: (row["zone"], row["amount"], row["kind"]) for place, row in job.rows().items()}
    assert rows == {(0, 0): (7, Decimal("2.50"), "x"), (0, 14): (7, None, None)}
    no_json = "value is no JSON object with the columns of the schema"
    found = job.malformed()
    record = json.loads(found.pop("value is not UTF-8 (partition 0, offset 13)"))
    assert base64.b64decode(record["value"]) == latin
    assert found == {
        **{f"{no_json} (partition 0, offset {offset})": value for offset, value in enumerate(torn, start=7)},
        **{f"{no_json} (partition 0, offset {offset})": value for offset, value in enumerate(more, start=15)},
        f"{no_json} (partition 0, offset 5)": f"{whole}{whole}",
        f"{no_json} (partition 0, offset 6)": f"{whole} 1",
        f"{no_json} (partition 0, offset 1)": '{"zone": "seven"}',
        f"{no_json} (partition 0, offset 2)": "",
        "column 'value.zone' is null, and the schema declares it NOT NULL (partition 0, offset 3)": f'{{"at": "{at}"}}',
        f"{no_json} (partition 0, offset 4)": '{"zone":',
    }


def test_another_schema_of_the_source_holds_from_the_next_epoch(world: World) -> None:
    at = datetime.fromtimestamp(START / 1000, UTC).isoformat()
    world.topics.create("changed.schema", 1)

    def run(schema: str, kind: str | None, *zones: int | None) -> Job:
        for zone in zones:
            world.topics.send("changed.schema", 0, json.dumps({"zone": zone, "at": at, "kind": kind}))
        world.topics.flush()
        job = world.job(tm.kafka_source(servers=world.address, topics="changed.schema", format="json", schema=schema))
        # A table in memory has the columns of one run.
        tm.clear_memory(f"{world.folder / 'job'}-rows")
        job.run()
        return job

    before = run(SCHEMA.replace("zone INT NOT NULL", "zone INT").replace("kind STRING", "kind INT"), None, 0, None)
    assert {place: row["zone"] for place, row in before.rows().items()} == {(0, 0): 0, (0, 1): None}
    after = run(SCHEMA, "taxi", 1, None)
    assert {place: (row["zone"], row["kind"]) for place, row in after.rows().items()} == {(0, 2): (1, "taxi")}
    assert set(after.malformed()) == {"column 'value.zone' is null, and the schema declares it NOT NULL (partition 0, offset 3)"}


def test_avro_in_a_query_of_another_subject(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobDriver, "plans_epochs", False)
    world.topics.create("queried.avro", 1)
    area = {"type": "record", "name": "Area", "namespace": "geo", "fields": [{"name": "zone", "type": "int"}]}
    world.registry.register("areas", area)
    schema = {"type": "record", "name": "Ride", "fields": [{"name": "driver", "type": "geo.Area"}, {"name": "at", "type": AT}]}
    whole = {**schema, "fields": [{"name": "driver", "type": area}, {"name": "at", "type": AT}]}
    id_ = world.registry.register("rides", schema, references={"geo.Area": "areas"})
    wanted = "at TIMESTAMP, driver STRUCT<zone: BIGINT>, zone INT, amount INT, stops INT, kind INT"
    job = world.job(world.source("queried.avro", schema=wanted, subjects=["rides"]))
    for number in range(2):
        world.topics.send("queried.avro", 0, wire(id_, whole, {"driver": {"zone": number}, "at": START}))
        world.topics.flush()
        job.run()
    assert [(row["driver"], row["zone"]) for row in job.rows().values()] == [({"zone": 0}, None), ({"zone": 1}, None)]


def test_a_registry_that_cannot_be_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = world.registry
    world.topics.create("unregistered", 1)
    world.topics.send("unregistered", 0, b"\0\0\0\0\1x")
    world.topics.flush()

    def failure(number: int, url: str) -> tm.TidemarkError:
        with pytest.raises(SourceError) as caught:
            world.job(world.source("unregistered", registry=url), str(number)).run()
        assert (caught.value.job, caught.value.uid) == ("fares", "fares")
        assert caught.value.place is not None
        assert SECRET not in str(caught.value)
        return caught.value

    monkeypatch.setenv("REGISTRY_USER", f"ada:{SECRET}-wrong")
    denied = failure(0, registry.url)
    assert (denied.code, denied.transient) == ("TM200", False)
    assert "refuses access (HTTP status 401)" in denied.what
    monkeypatch.setenv("REGISTRY_USER", f"ada:{SECRET}")
    assert "has no subject unregistered-value" in failure(1, registry.url).what
    registry.failures = 100
    away = failure(2, registry.url)
    assert (away.code, away.transient) == ("TM201", True)
    assert "does not answer: HTTP status 503" in away.what
    registry.failures = 0
    assert "answers with HTTP status 404" in failure(3, f"{registry.url}/elsewhere").what
    refused = failure(4, "http://127.0.0.1:1")
    assert refused.transient
    assert "127.0.0.1:1" in refused.what
