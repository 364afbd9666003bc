"""The connectors that have a sink: one entry for each, by the kind that records have."""

from __future__ import annotations

from tidemark.errors import SinkError
from tidemark.graph.connectors.iceberg.node import IcebergSpec, IcebergTable
from tidemark.graph.connectors.kafka.spec import KafkaSpec
from tidemark.graph.connectors.postgres.node import PostgresSpec, PostgresTable
from tidemark.graph.connectors.sql_table.node import SqlTable, SqlTableSpec
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import Output
from tidemark.savepoints.iceberg.columns import TableTexts
from tidemark.spark.sinks.iceberg.iceberg_sink import IcebergSink
from tidemark.spark.sinks.kafka.sink import KafkaSink
from tidemark.spark.sinks.postgres.postgres_sink import PostgresSink
from tidemark.spark.sinks.sql_table.sql_table_sink import SqlTableSink
from tidemark.spark.sinks.staging.connector_sink import ConnectorSink
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import OutputRecord


def open_connector(name: str, output: Output, spec: ConnectorSpec, owner: SinkOwner) -> ConnectorSink:
    """Return the sink of an output, as it is declared.

    Args:
        name: of the output.
        output: as it is declared.
        spec: its sink.
        owner: whose output it is.

    Raises:
        SinkError: this engine has no such connector.
    """
    match spec:
        case IcebergSpec(table, partition_by):
            texts = TableTexts(output.description, dict(output.column_texts))
            return IcebergSink(name, table, owner, partition_by=partition_by, texts=texts)
        case KafkaSpec():
            return KafkaSink(name, spec, owner)
        case PostgresSpec(table, mode, keys, with_epoch):
            return PostgresSink(name, table, owner, mode=mode, keys=keys, with_epoch=with_epoch)
        case SqlTableSpec(table, mode, keys, with_epoch):
            return SqlTableSink(name, table, owner, mode=mode, keys=keys, with_epoch=with_epoch)
    raise SinkError(f"output {name!r} has a sink of kind {spec.kind!r}, which this engine does not have", fix="use another sink", uid=name)


def reopen_connector(name: str, record: OutputRecord, owner: SinkOwner, *, former: bool = True) -> ConnectorSink | None:
    """Return the sink that an epoch's rows were staged for, to publish or delete them; None if the record is of no connector.

    Args:
        name: of the output.
        record: of it, in the epoch.
        owner: whose output it is.
        former: whether the job no longer has it: then its place need not be reached unless rows are staged for it.
    """
    if record.location is None:
        return None
    if record.sink == IcebergSpec.kind:
        return IcebergSink(name, IcebergTable.of_location(record.location), owner)
    if record.sink == KafkaSpec.kind:
        return KafkaSink.of_record(name, record, owner)
    if record.sink == PostgresSpec.kind:
        return PostgresSink(name, PostgresTable.of_location(record.location), owner, former=record if former else None)
    if record.sink == SqlTableSpec.kind:
        return SqlTableSink(name, SqlTable.of_location(record.location), owner, former=record if former else None)
    return None
