"""What the driver asks a schema registry, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidemark as tm
from tests.kafka.schema_registry import Registry, schema_registry
from tidemark.errors import DefinitionError, SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.sources.kafka.registry import SchemaRegistry

MARKER = "hunter2-marker"
FARE = {"type": "record", "name": "Fare", "fields": [{"name": "zone", "type": "int"}]}
RIDE = {"type": "record", "name": "Ride", "fields": [{"name": "zone", "type": "int"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as found:
        yield found


@pytest.fixture
def asked(registry: Registry) -> SchemaRegistry:
    return SchemaRegistry(registry.url, None, _source())


def _source() -> SourceNode:
    spec = tm.kafka_source(servers="broker:9092", topics="fares")
    node = tm.source("fares", spec, watermarks=tm.bounded_out_of_orderness("1 minute", timestamp="timestamp")).node
    assert isinstance(node, SourceNode)
    return node


def test_a_subject_that_is_registered_again(registry: Registry, asked: SchemaRegistry) -> None:
    first, second = registry.register("fares-value", FARE), registry.register("fares-value", RIDE)
    assert set(asked.schemas(["fares-value"])) == {first, second}
    del registry.subjects["fares-value"]
    other = registry.register("fares-value", {**FARE, "name": "Other"})
    assert set(asked.schemas(["fares-value"])) == {other}


def test_a_version_that_is_deleted_for_good_while_it_is_asked_for(
    registry: Registry, asked: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = registry.register("fares-value", FARE)
    answer = registry.answer

    def with_one_more(path: str, authorization: str | None) -> tuple[int, object]:
        if path.startswith("/subjects/fares-value/versions?"):
            return 200, [1, 2]
        return (404, {"error_code": 40402}) if "/versions/2" in path else answer(path, authorization)

    monkeypatch.setattr(registry, "answer", with_one_more)
    assert set(asked.schemas(["fares-value"])) == {id_}


def test_topics_without_new_records_are_not_asked_for(registry: Registry, asked: SchemaRegistry) -> None:
    registry.register("fares-value", FARE)
    subjects = ["fares-value", "rides-value", "areas-value"]
    assert len(asked.schemas(["fares-value"], others=subjects)) == 1
    assert not [path for path in registry.asked if "fares" not in path]
    # A topic of records without a subject is an error only where no topic has one.
    assert asked.schemas(["rides-value"], others=subjects) == {}
    with pytest.raises(SourceError, match="has no subject rides-value or areas-value"):
        asked.schemas(["rides-value"], others=subjects[1:])


def test_schemas_that_are_not_of_avro_or_cannot_be_read(registry: Registry, asked: SchemaRegistry) -> None:
    registry.register("points", "not JSON")
    registry.register("protobuf-value", 'syntax = "proto3"; import "points.proto";', kind="PROTOBUF", references={"points.proto": "points"})
    registry.register("torn-value", FARE, references={"geo.Point": "points"})
    assert [each.kind for each in asked.schemas(["protobuf-value"]).values()] == ["PROTOBUF"]
    assert len(asked.schemas(["torn-value"])) == 1


@pytest.mark.parametrize("answer", [{"a": 1}, ["one"], [True]])
def test_what_is_no_registry(registry: Registry, asked: SchemaRegistry, answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def instead(path: str, authorization: str | None) -> tuple[int, Any]:
        del path, authorization
        return 200, answer

    monkeypatch.setattr(registry, "answer", instead)
    with pytest.raises(SourceError, match="gives another answer than a registry does"):
        asked.schemas(["fares-value"])


def test_credentials_are_in_no_error(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.register("fares-value", FARE)
    for value in (f"{MARKER}\r\nX", f"{MARKER} x", f"{MARKER}é", "\n"):
        monkeypatch.setenv("REGISTRY", value)
        with pytest.raises(DefinitionError, match="REGISTRY of source 'fares' holds neither user:password nor a token") as caught:
            SchemaRegistry(registry.url, "REGISTRY", _source())
        assert MARKER not in str(caught.value)
    registry.credentials = f"Bearer {MARKER}"
    monkeypatch.setenv("REGISTRY", f"{MARKER}\n")
    assert len(SchemaRegistry(registry.url, "REGISTRY", _source()).schemas(["fares-value"])) == 1
