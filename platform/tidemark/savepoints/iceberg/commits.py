"""Commits to a table: an epoch's data files with its property, and the empty snapshots by which rewinds fence older commits.

PyIceberg repeats a commit that another writer was faster than, on top of that writer's snapshot. So of two drivers that commit one epoch
the second would add its rows again: it would not see that the first has set the property. Such repetitions are turned off; each attempt
begins with the table as it is, and is refused unless the newest snapshot is the one that it began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidemark.crashpoints import crash_point
from tidemark.savepoints.iceberg.columns import NO_TEXTS, TableTexts, iceberg_type
from tidemark.savepoints.iceberg.history import LineageEpochs
from tidemark.savepoints.model.table_columns import Columns

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

    from tidemark.savepoints.iceberg.history import Ledger

EMPTY: Final = "empty"
"""The target of a rollback to before the first snapshot."""

_RETRIES: Final = "commit.retry.num-retries"
_MERGES: Final = "commit.manifest-merge.enabled"
_MAPPING: Final = "schema.name-mapping.default"


def append(
    table: Table, ledger: Ledger, lineage: str, epoch: int, *, wanted: Columns, files: Sequence[str], texts: TableTexts = NO_TEXTS
) -> None:
    """Add an epoch's data files in a new snapshot, with columns and texts that the table lacks and the epoch's property, in one commit.

    Args:
        table: as it is now; the commit fails if another writer is faster.
        ledger: of the output.
        lineage: of the epoch.
        epoch: its number.
        wanted: types of the rows' columns.
        files: addresses of the data files.
        texts: what the output says of the table and its columns.

    Raises:
        ValueError: a file does not fit the table.
    """
    transaction = _once(table)
    prepare(transaction, wanted)
    describe(transaction, texts)
    found = data_files(table, transaction, files)
    update = transaction.update_snapshot(snapshot_properties=ledger.summary(lineage, epoch))
    # As add_files does, which would read the footers again.
    merging = transaction.table_metadata.properties.get(_MERGES, "false").lower() == "true"
    with update.merge_append() if merging else update.fast_append() as snapshot:
        for file in found:
            snapshot.append_data_file(file)
    transaction.set_properties({ledger.key(lineage): LineageEpochs(epoch).encoded()})
    crash_point("iceberg-manifests-written")
    transaction.commit_transaction()


def prepare(transaction: Transaction, wanted: Columns) -> None:
    """Add the columns that a table lacks, and the names by which files without field numbers are read."""
    there = transaction.table_metadata.schema()
    missing = {name: kind for name, kind in wanted.items() if name not in there.column_names}
    if transaction.table_metadata.name_mapping() is None:
        transaction.set_properties({_MAPPING: there.name_mapping.model_dump_json()})
    if missing:
        with transaction.update_schema() as update:
            for name, kind in missing.items():
                update.add_column((name,), iceberg_type(kind), required=False)


def describe(transaction: Transaction, texts: TableTexts) -> None:
    """Give a table the texts that it lacks, in the transaction's commit."""
    metadata = transaction.table_metadata
    if new := {name: text for name, text in texts.properties.items() if metadata.properties.get(name) != text}:
        transaction.set_properties(new)
    there = {column.name: column.doc for column in metadata.schema().fields}
    changed = {name: text for name, text in texts.columns.items() if name in there and there[name] != text}
    if changed:
        with transaction.update_schema() as update:
            for name, text in changed.items():
                update.update_column((name,), doc=text)


def data_files(table: Table, transaction: Transaction, files: Sequence[str]) -> list[DataFile]:
    """Return data files as a commit adds them, with statistics and partitions by their footers.

    Raises:
        ValueError: a file does not fit the table, or its statistics do not show its partition.
    """
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.utils.concurrent import ExecutorFactory

    metadata = transaction.table_metadata
    threads = ExecutorFactory.get_or_create()
    found = list(threads.map(lambda path: parquet_file_to_data_file(table.io, metadata, path), files))
    for file in found:
        if len(file.split_offsets or ()) > 1:
            _leave_out_partial_bounds(table, metadata.schema(), file)
        for number, field in enumerate(metadata.spec().fields):
            nulls = file.null_value_counts or {}
            if file.partition[number] is None and nulls.get(field.source_id) != file.record_count and _is_written(file, field.source_id):
                raise ValueError(f"the statistics of {file.file_path} do not show its partition {field.name}")
    return found


def _leave_out_partial_bounds(table: Table, schema: Schema, file: DataFile) -> None:
    """Take the bounds of columns out of a file's statistics where a row group has none: the library's are those of the other row groups.

    Parquet has no bounds of long texts, and none of floating-point numbers among which is a NaN. Readers would skip the file for values
    that it has.
    """
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import parquet_path_to_id_mapping

    numbers = parquet_path_to_id_mapping(schema)
    with table.io.new_input(file.file_path).open() as stream:
        footer = pq.read_metadata(stream)
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for column in (group.column(number) for number in range(footer.num_columns)):
            known = column.statistics
            if known is None or not (known.has_min_max or known.null_count == column.num_values):
                for bounds in (file.lower_bounds, file.upper_bounds):
                    (bounds or {}).pop(numbers[column.path_in_schema], None)


def _is_written(file: DataFile, column: int) -> bool:
    """Return whether a file has a column; one that it lacks is null in all rows."""
    return column in (file.column_sizes or {})


def staged_transaction(table: Table, wanted: Columns) -> Transaction:
    """Return a transaction that is never committed, with the columns that the next commit adds."""
    transaction = _once(table)
    prepare(transaction, wanted)
    return transaction


def fence(
    table: Table, ledger: Ledger, rewind: str, *, target: str = "", properties: Mapping[str, str], newest: Mapping[str, LineageEpochs]
) -> None:
    """Roll a table back, if there is a target, and add an empty snapshot: commits that were begun before fail, whatever they began with.

    Args:
        table: as it is now.
        ledger: of the output.
        rewind: identity of the rewind.
        target: number of the snapshot to roll back to, ``EMPTY`` for before the first one, empty to keep the newest.
        properties: to set.
        newest: what the table's properties are to say of lineages.
    """
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table.update.snapshot import ManageSnapshots

    transaction, marker = _once(table), ledger.marker(rewind)
    if target == EMPTY:
        transaction.delete(AlwaysTrue(), snapshot_properties=marker)
    elif target:
        with ManageSnapshots(transaction) as snapshots:
            snapshots.rollback_to_snapshot(int(target))
    with transaction.update_snapshot(snapshot_properties=marker).fast_append():
        pass
    transaction.set_properties({**properties, **{ledger.key(lineage): found.encoded() for lineage, found in newest.items()}})
    transaction.commit_transaction()


def _once(table: Table) -> Transaction:
    """Return a transaction that is committed at most once, whatever the table's own setting is."""
    # Only this object's copy: the commit sends changes, and this is none.
    table.metadata.properties[_RETRIES] = "0"
    return table.transaction()
