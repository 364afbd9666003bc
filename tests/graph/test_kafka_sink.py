"""Topics as sinks: what is refused where they are declared, without a secret in the message; and what they are said to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, TidemarkError
from tidemark.graph import Job, code_version
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.savepoints.model.isolation import redirect_outputs

SECRET = "hunter2"  # noqa: S105 - what must not be shown
SCHEMA = "k STRING, v INT, tags MAP<STRING, INT>, at TIMESTAMP, t BIGINT"
ROWS = tm.source("rows", tm.from_elements(rows=[], schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
LOG = ROWS.as_changelog(["k"]).select("k", "v")


def sink(stream: tm.Stream = ROWS, *, servers: object = "b:9092", topic: object = "rows", **options: object) -> tm.Output:
    return tm.kafka_sink(stream, servers=servers, topic=topic, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "error", "message"),
    [
        (lambda: sink(servers="b"), DefinitionError, "servers='b') is no list of brokers"),
        (lambda: sink(servers=[]), DefinitionError, "no list of brokers"),
        (lambda: sink(servers=f"ada:{SECRET}@b:9092"), DefinitionError, "no list of brokers"),
        (lambda: sink(topic="a/b"), DefinitionError, "topic='a/b') is no name of a topic"),
        (lambda: sink(topic=".."), DefinitionError, "no name of a topic"),
        (lambda: sink(format="xml"), DefinitionError, "format='xml') is not one of json, debezium-json, raw"),
        (lambda: sink(guarantee="never"), DefinitionError, "not one of exactly_once, at_least_once"),
        (lambda: sink(mode="upsert", format="debezium-json", key=["k"]), DefinitionError, "either the newest row of each key"),
        (lambda: sink(rows_per_transaction=0), DefinitionError, "not a whole number of 1 or more"),
        (lambda: sink(id_prefix="a/b"), DefinitionError, "cannot begin a transactional id"),
        (lambda: sink(options={"acks": 1}), DefinitionError, "takes no option 'acks'"),
        (lambda: sink(options={"transactional.id": "x"}), DefinitionError, "takes no option 'transactional.id'"),
        (lambda: sink(options={"sasl.password": SECRET}), DefinitionError, "looks as if it holds a secret"),
        (lambda: sink(options={"ssl.key.pem": SECRET}), DefinitionError, "looks as if it holds a secret"),
        (lambda: sink(options={"x": f"password={SECRET}"}), DefinitionError, "looks as if it holds a secret"),
        (lambda: sink(options_env={"sasl.password": SECRET}), DefinitionError, "names no environment variable for 'sasl.password'"),
        (lambda: sink(key="k"), DefinitionError, "key='k') is not a list of columns"),
        (lambda: sink(key=["kk"]), ColumnError, "needs column 'kk'"),
        (lambda: sink(key=["k", "v"], key_format="text"), DefinitionError, "writes one column as the key, and there are 2"),
        (lambda: sink(key=["tags"], key_format="text"), ColumnError, "cannot write 'tags' of type MAP"),
        (lambda: sink(headers={"h": "nothing"}), ColumnError, "needs column 'nothing'"),
        (lambda: sink(headers=["h"]), DefinitionError, "kafka_sink(headers=['h']) is no mapping of columns by header"),
        (lambda: sink(format="raw"), ColumnError, "needs column 'value'"),
        (lambda: sink(ROWS.select("k", value="v"), format="raw"), ColumnError, "and its type is INT"),
        (lambda: sink(LOG, format="raw"), DefinitionError, "would not say which rows are gone"),
        (lambda: sink(mode="upsert"), DefinitionError, "kafka_sink(mode='upsert') does not know by which columns"),
        (lambda: sink(LOG, mode="upsert", key=["v"]), DefinitionError, "kafka_sink(key=['v']) are other columns than the key"),
        (lambda: sink(LOG.with_columns(epoch="v")), ColumnError, "adds a column 'epoch' of changes"),
    ],
)
def test_what_does_not_fit(declare: Callable[[], object], error: type[TidemarkError], message: str) -> None:
    with pytest.raises(error) as raised:
        declare()
    assert message in str(raised.value)
    assert "Fix: " in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "test_kafka_sink.py" in str(raised.value)


def test_changelogs_bring_their_key() -> None:
    for output in (sink(LOG), sink(LOG, mode="upsert"), sink(LOG, format="debezium-json")):
        assert isinstance(output.sink, KafkaSpec)
        assert output.sink.key == ("k",)


def test_what_is_guaranteed_and_shown() -> None:
    exactly, least = sink(key=["k"], servers=["b:9092", "c:9092"]), sink(guarantee="at_least_once")
    assert tm.guarantee(exactly.sink) == "exactly once for readers with isolation.level=read_committed"
    assert tm.guarantee(least.sink) == "at least once"
    shown = Job("j", outputs={"rows": exactly}).explain()
    assert "kafka b:9092,c:9092/rows as json, key k" in shown
    assert isinstance(exactly.sink, KafkaSpec)
    assert exactly.sink.location == "kafka://b:9092,c:9092/rows"


def test_two_outputs_do_not_share_a_topic() -> None:
    with pytest.raises(DefinitionError, match="both write to one place"):
        Job("j", outputs={"one": sink(), "two": sink(ROWS.filter("v > 1"))})


def test_a_fork_writes_to_a_topic_of_its_own() -> None:
    fork = redirect_outputs(Job("j", outputs={"rows": sink(topic="r" * 249)}), name="what-if", root="somewhere")
    found = fork.outputs["rows"].sink
    assert isinstance(found, KafkaSpec)
    assert found.topic == "r" * 241 + "-what-if"


def test_only_what_changes_records_changes_the_version_of_the_code() -> None:
    def version(**options: object) -> str:
        return code_version(Job("j", outputs={"rows": sink(**options)}))  # type: ignore[arg-type]

    same = version(servers="other:9092", topic="elsewhere", guarantee="at_least_once", options={"linger.ms": 5})
    assert version() == same
    assert len({version(), version(key=["k"]), version(format="debezium-json"), version(headers={"h": "k"})}) == 4
