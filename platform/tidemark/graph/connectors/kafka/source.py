"""``kafka_source``: topics as a source, with the values of their records decoded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

from tidemark.errors import DefinitionError
from tidemark.graph.api.sources import streaming_format
from tidemark.graph.connectors.kafka.checks import SECRET, check_servers, check_topic
from tidemark.graph.connectors.kafka.decoding import decoding_of
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.record_decoding import ValueFormat
from tidemark.graph.model.secret_options import OptionChecks
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.names import is_blank

Start = Literal["earliest", "latest"]
Isolation = Literal["read_committed", "read_uncommitted"]
OnLoss = Literal["fail", "skip"]
OnRemade = Literal["fail", "restart"]

_CALLER: Final = "kafka_source"
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "start": get_args(Start),
    "isolation": get_args(Isolation),
    "on_loss": get_args(OnLoss),
    "on_remade": get_args(OnRemade),
}
_OWN: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "servers=",
    "subscribe": "topics=",
    "subscribepattern": "pattern=",
    "assign": "partitions=",
    "startingoffsets": "start= or from_offsets=",
    "startingtimestamp": "from_timestamp=",
    "startingoffsetsbytimestamp": "from_timestamp=",
    "startingoffsetsbytimestampstrategy": "from_timestamp=",
    "includeheaders": "headers=",
    "failondataloss": "on_loss=",
    "kafka.isolation.level": "isolation=",
    "maxoffsetspertrigger": "max_rows_per_epoch=",
}
_OPTIONS: Final = OptionChecks(_CALLER, _OWN, "{'kafka.client.id': 'fares'}", SECRET | {f"kafka.{name}" for name in SECRET})
_NEEDS_QUERY: Final = ("minoffsetspertrigger", "maxtriggerdelay")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SPECIAL_OFFSET: Final = -2
"""The least offset that can be named: -2 is the earliest, -1 the latest."""


def kafka_source(
    *,
    servers: str | Sequence[str],
    topics: str | Sequence[str] | None = None,
    pattern: str | None = None,
    partitions: Mapping[str, Sequence[int]] | None = None,
    format: ValueFormat = "raw",
    schema: str | None = None,
    registry: str | None = None,
    registry_env: str | None = None,
    subjects: Sequence[str] | None = None,
    start: Start = "earliest",
    from_timestamp: str | None = None,
    from_offsets: Mapping[str, Mapping[int, int]] | None = None,
    headers: bool = False,
    isolation: Isolation = "read_committed",
    on_loss: OnLoss = "fail",
    on_remade: OnRemade = "fail",
    options: Mapping[str, str | int | bool] | None = None,
    options_env: Mapping[str, str] | None = None,
    max_rows_per_epoch: int | None = None,
) -> FormatSpec:
    """Return a source of the records of topics; needs Spark's connector: ``tidemark connectors install kafka``.

    Rows have the columns ``key`` and ``value`` BINARY, ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType`` (0: of the
    producer, 1: of the broker), and with ``headers`` also ``headers``. With a format other than ``raw``, ``value`` is a struct of the
    schema's columns, null for a record without a value (a tombstone); a record that cannot be decoded is malformed, and its reason
    ends with its partition and offset.

    A job that has read before begins where its log says; ``start``, ``from_timestamp`` and ``from_offsets`` are for a source that the log
    does not have. New partitions, and new topics of a pattern, are read from their beginning.

    Args:
        servers: brokers to start from, ``host:port``.
        topics: names of topics.
        pattern: a regular expression of Java for whole names of topics, instead.
        partitions: numbers of partitions by topic, instead.
        format: of the value. ``raw`` leaves it as it is. ``json`` is an object. ``avro`` is Confluent's wire format: a zero byte, the
            id of the writer's schema in a registry in four bytes, and the record; it needs ``tidemark connectors install avro``.
        schema: Spark DDL of the columns to read of a value. Columns that the writer's schema lacks are null, or malformed where they are
            declared ``NOT NULL``.
        registry: address of the schema registry.
        registry_env: name of the environment variable with its credentials: ``user:password``, or a token.
        subjects: whose versions records are written with; by default ``TOPIC-value`` for each topic. Records with the id of another
            schema are malformed.
        start: ``earliest``, or ``latest``, which is the first record after the job's first start.
        from_timestamp: begin with the first records that are not older, such as ``"2026-11-26T08:00:00+00:00"``; in a partition that has
            none, with the next record.
        from_offsets: begin with these offsets, by topic and partition, such as ``{"fares": {0: 1200, 1: -2}}``: all partitions have to be
            named, -2 is the earliest and -1 the latest.
        headers: add the column ``headers``, an array of ``STRUCT<key: STRING, value: BINARY>``.
        isolation: ``read_committed`` leaves out records of transactions that are aborted, and waits for those that are open.
        on_loss: what to do if Kafka no longer has the next records: ``fail`` ends the job with an error, ``skip`` continues with the
            records that are left.
        on_remade: what to do if a topic was deleted and made again, as its id or offsets that go back say: ``fail`` ends the job with an
            error, ``restart`` reads the topic from its beginning. Brokers before 2.8 have no ids: with these a topic that has as many
            records again before the job looks cannot be distinguished from the old one.
        options: of Spark's source, such as ``minPartitions``, and of its consumers, such as ``kafka.security.protocol``.
        options_env: options whose values are secret, each with the name of the environment variable that holds it.
        max_rows_per_epoch: greatest number of records of one epoch; 5 million by default.

    Raises:
        DefinitionError: an argument is not of these, or they do not go together; the message repeats no secret.

    >>> kafka_source(servers="broker:9092", topics="fares", max_rows_per_epoch=100).options["maxOffsetsPerTrigger"]
    '100'
    """
    place = call_site()
    _check_choices({"start": start, "isolation": isolation, "on_loss": on_loss, "on_remade": on_remade}, place)
    own = _OPTIONS.plain(options, place)
    if on_remade == "restart" and any(name.lower() in _NEEDS_QUERY for name in own):
        raise DefinitionError(
            f"kafka_source(on_remade='restart') does not go with the options {' and '.join(_NEEDS_QUERY)}",
            fix="leave these options out, or on_remade",
            place=place,
        )
    found = streaming_format(
        "kafka",
        options={
            **own,
            "kafka.bootstrap.servers": check_servers(servers, place, caller=_CALLER),
            **_what(topics, pattern, partitions, place),
            **_start(start, from_timestamp, from_offsets, place),
            "kafka.isolation.level": isolation,
            **({"includeHeaders": "true"} if headers else {}),
            # Where offsets go back Spark's check would end the job; the planner tells the two cases apart.
            "failOnDataLoss": "true" if on_loss == "fail" else "false",
        },
        max_rows_per_epoch=max_rows_per_epoch,
    )
    return FormatSpec(
        format=found.format,
        options=found.options,
        environment=_OPTIONS.variables(options_env, place),
        decoding=decoding_of(format, schema, place, registry=registry, registry_env=registry_env, subjects=subjects),
        on_remade=on_remade,
    )


def _check_choices(given: Mapping[str, object], place: str) -> None:
    for name, value in given.items():
        if value not in _CHOICES[name]:
            raise DefinitionError(
                f"kafka_source({name}={shortened(repr(value))}) is not one of {', '.join(_CHOICES[name])}",
                fix=f"write {name}={_CHOICES[name][0]!r}",
                place=place,
            )


def _what(topics: object, pattern: object, partitions: object, place: str) -> dict[str, str]:
    """Return the option that says which partitions are read."""
    if sum(given is not None for given in (topics, pattern, partitions)) != 1:
        raise DefinitionError(
            "kafka_source reads topics, a pattern or partitions", fix="give exactly one, such as topics='fares'", place=place
        )
    if pattern is not None:
        if not isinstance(pattern, str) or is_blank(pattern):
            raise DefinitionError(f"kafka_source(pattern={shortened(repr(pattern))}) is no pattern", fix="write 'fares-.*'", place=place)
        return {"subscribePattern": pattern}
    if partitions is not None:
        return {"assign": json.dumps(_numbers(partitions, place))}
    given = [topics] if isinstance(topics, str) else topics
    if not isinstance(given, Sequence) or not given:
        raise DefinitionError(f"kafka_source(topics={shortened(repr(topics))}) names no topic", fix="write topics=['fares']", place=place)
    return {"subscribe": ",".join(check_topic(topic, place, caller=_CALLER) for topic in given)}


def _start(start: str, from_timestamp: object, from_offsets: object, place: str) -> dict[str, str]:
    """Return the options that say where a source begins that the job's log does not have."""
    if sum([start != "earliest", from_timestamp is not None, from_offsets is not None]) > 1:
        raise DefinitionError("kafka_source begins at one place", fix="give one of start, from_timestamp, from_offsets", place=place)
    if from_timestamp is not None:
        milliseconds = str(_milliseconds(from_timestamp, place))
        return {"startingTimestamp": milliseconds, "startingOffsetsByTimestampStrategy": "latest"}
    if from_offsets is not None:
        return {"startingOffsets": json.dumps(_offsets(from_offsets, place))}
    return {"startingOffsets": start}


def _offsets(given: object, place: str) -> dict[str, dict[int, int]]:
    found = _by_topic(given)
    parts = [numbers.items() if isinstance(numbers, Mapping) and numbers else [(None, None)] for numbers in found.values()]
    if not found or not all(_is_number(number, 0) and _is_number(offset, _SPECIAL_OFFSET) for each in parts for number, offset in each):
        raise DefinitionError(
            f"kafka_source(from_offsets={shortened(repr(given))}) is no mapping of offsets by topic and partition",
            fix="write from_offsets={'fares': {0: 1200, 1: -2}}; -2 is the earliest, -1 the latest",
            place=place,
        )
    return {check_topic(topic, place, caller=_CALLER): dict(numbers) for topic, numbers in found.items()}  # type: ignore[call-overload]


def _numbers(given: object, place: str) -> dict[str, list[int]]:
    found = _by_topic(given)
    parts = [numbers if isinstance(numbers, Sequence) and numbers else [None] for numbers in found.values()]
    if not found or not all(_is_number(number, 0) for each in parts for number in each):
        raise DefinitionError(
            f"kafka_source(partitions={shortened(repr(given))}) is no mapping of partitions by topic",
            fix="write partitions={'fares': [0, 1]}",
            place=place,
        )
    return {check_topic(topic, place, caller=_CALLER): list(numbers) for topic, numbers in found.items()}  # type: ignore[call-overload]


def _by_topic(given: object) -> dict[object, object]:
    return dict(given) if isinstance(given, Mapping) else {}


def _is_number(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _milliseconds(text: object, place: str) -> int:
    try:
        found = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        found = None
    # To Kafka a time before 1970 means the newest or the earliest record.
    if found is None or found.tzinfo is None or re.fullmatch(r"\d+", str(text)) or found < _EPOCH:
        raise DefinitionError(
            f"kafka_source(from_timestamp={shortened(repr(text))}) is no time with an offset from UTC, 1970 or later",
            fix="write '2026-11-26T08:00:00+00:00'",
            place=place,
        )
    # Records have whole milliseconds: the first that is not older.
    return -((_EPOCH - found) // timedelta(milliseconds=1))
