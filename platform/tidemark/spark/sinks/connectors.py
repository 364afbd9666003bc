"""The connectors' sinks by their specifications, and by the kind in an epoch's record. One folder for each connector."""

from __future__ import annotations

from tidemark.errors import SinkError
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.spark.sinks.connector import ConnectorSink, SinkOwner
from tidemark.spark.sinks.kafka.sink import KafkaSink
from tidemark.state.log.records import OutputRecord

KINDS = frozenset({KafkaSpec.KIND})
"""The kinds of connectors, as records name them."""


def connector_sink(name: str, spec: ConnectorSpec, owner: SinkOwner) -> ConnectorSink:
    """Return the sink of an output. Connects to nothing.

    Raises:
        SinkError: no connector of this engine has such a specification.
    """
    match spec:
        case KafkaSpec():
            return KafkaSink(name, spec, owner)
    raise SinkError(f"output {name!r} has no connector that this engine knows", fix="use a sink of tidemark's", uid=name)


def former_connector_sink(name: str, record: OutputRecord, owner: SinkOwner) -> ConnectorSink:
    """Return the sink that an epoch's rows were staged for, which the job no longer has.

    Raises:
        SinkError: as ``connector_sink``.
    """
    match record.sink:
        case KafkaSpec.KIND:
            return KafkaSink.of_record(name, record, owner)
    raise SinkError(
        f"output {name!r} was of kind {record.sink!r}, which this engine does not know", fix="use the release that wrote it", uid=name
    )
