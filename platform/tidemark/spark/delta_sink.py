"""Delta tables: Spark writes the Parquet files, ``deltalake`` commits them. Exactly once.

Each commit carries the application transaction (lineage/output, epoch); an epoch whose version is there is skipped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from tidemark.clock import SYSTEM_CLOCK
from tidemark.crashpoints import crash_point
from tidemark.errors import PublishError, SinkError
from tidemark.locations import Location
from tidemark.spark.delta_tables import asks_too_much
from tidemark.spark.error_text import first_line
from tidemark.state.records import OutputRecord
from tidemark.state.redaction import without_secrets
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DeltaSink:
    """One table.

    Args:
        name: of the output.
        path: of the table, local or of an object store.
    """

    kind = "delta"

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._location = Location.parse(path)
        self._table: DeltaTable | None = None
        self._checked: str | None = None
        self.staging = JobStore.open(self._location)

    @property
    def location(self) -> str:
        """The table's path."""
        return str(self._location)

    def staging_folder(self, name: str) -> str:
        """Return a folder inside the table; Delta's readers see only files that the log names."""
        return f"tidemark-{name}"

    def check(self, schema: StructType) -> None:
        """Raise SinkError when an existing table has other columns or types, or asks more of a writer than an append."""
        text = schema.json()
        if text == self._checked:
            return
        table = self._open()
        if table is not None:
            wanted = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
            found = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
            if differences := _differences(wanted, found):
                raise SinkError(
                    f"output {self._name!r} does not fit the table at {self.location}: {'; '.join(differences)}",
                    fix="write to another path, or change the table's columns to match the output's",
                    uid=self._name,
                    place=self.location,
                )
            if demands := asks_too_much(table, json.loads(text)):
                raise SinkError(
                    f"output {self._name!r} cannot be appended to the table at {self.location}: {'; '.join(demands)}",
                    fix="write to another path (the table is made there), or take these demands off the table",
                    uid=self._name,
                    place=self.location,
                )
        self._checked = text

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Commit the staged files with the epoch's transaction, unless the table has it."""
        if record.schema is None:
            return
        application = f"{lineage}/{self._name}"
        schema = Schema.from_json(record.schema)
        try:
            table = self._open() or self._create(schema)
            table.update_incremental()
            done = table.transaction_version(application)
            if done is not None and done >= epoch:
                return
            table.create_write_transaction(
                actions=[
                    AddAction(
                        path=quote(file.path),
                        size=file.bytes,
                        partition_values={},
                        modification_time=SYSTEM_CLOCK.now_ms(),
                        data_change=True,
                        stats=json.dumps(file.stats or {"numRecords": file.rows}),
                    )
                    for file in record.files
                ],
                mode="append",
                schema=schema,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(application, epoch)],
                    custom_metadata={"tidemark.lineage": lineage, "tidemark.epoch": str(epoch)},
                ),
            )
        except (DeltaError, OSError) as error:
            self._table = None
            raise PublishError(
                f"output {self._name!r} of a committed epoch could not be published: {first_line(error)}",
                fix="mend the table's place (space, permission, network) and start the job again: it finishes this epoch first",
                uid=self._name,
                epoch=epoch,
                place=self.location,
            ) from without_secrets(error)

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that the table has, by its transaction.

        Raises:
            SinkError: the table cannot be read.
        """
        table = self._open()
        return None if table is None else table.transaction_version(f"{lineage}/{self._name}")

    def shown(self) -> frozenset[str]:
        """Return the files of the table's newest version.

        Raises:
            SinkError: the table cannot be read.
        """
        table = self._open()
        if table is None:
            return frozenset()
        table.update_incremental()
        return frozenset(map(str, table.get_add_actions()["path"].to_pylist()))

    def _open(self) -> DeltaTable | None:
        if self._table is None:
            try:
                self._table = DeltaTable(self._location.uri)
            except TableNotFoundError:
                return None
            except (DeltaError, OSError) as error:
                raise SinkError(
                    f"the Delta table of output {self._name!r} cannot be read: {first_line(error)}",
                    fix="repair or move the table, or write to another path",
                    uid=self._name,
                    place=self.location,
                ) from without_secrets(error)
        return self._table

    def _create(self, schema: Schema) -> DeltaTable:
        self._table = DeltaTable.create(self._location.uri, schema, mode="ignore")
        crash_point("table-created")
        return self._table


def _differences(wanted: dict[str, object], found: dict[str, object]) -> list[str]:
    missing = [f"the table lacks column {name!r} ({_shown(wanted[name])})" for name in wanted if name not in found]
    extra = [f"the output lacks column {name!r} ({_shown(found[name])})" for name in found if name not in wanted]
    other = [
        f"column {name!r} is {_shown(wanted[name])} in the output and {_shown(found[name])} in the table"
        for name in wanted
        if name in found and _shape(wanted[name]) != _shape(found[name])
    ]
    return missing + extra + other


def _shape(kind: object) -> object:
    """Return a type without its nullability and metadata, which tables are free to widen."""
    if isinstance(kind, dict):
        return {
            key: _shape(value) for key, value in kind.items() if key not in ("nullable", "containsNull", "valueContainsNull", "metadata")
        }
    if isinstance(kind, list):
        return [_shape(item) for item in kind]
    return kind


def _shown(kind: object) -> str:
    return kind if isinstance(kind, str) else json.dumps(_shape(kind))
