"""Delta tables: Spark writes the Parquet files, ``deltalake`` commits them. Exactly once.

Each commit carries the application transaction (lineage/output, epoch); an epoch whose version is there is skipped.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from deltalake import DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tidemark.crashpoints import crash_point
from tidemark.errors import PublishError, SinkError, TidemarkError
from tidemark.locations import Location
from tidemark.spark.delta_commits import add_actions, append
from tidemark.spark.delta_maintenance import NEW_TABLE, Maintenance
from tidemark.spark.delta_merge import Merge
from tidemark.spark.delta_rewrite import APPENDED_BYTES, UPSERTED_BYTES, Change, Rewriter, SparkRewriter
from tidemark.spark.delta_tables import asks_too_much
from tidemark.spark.delta_upsert import Upsert, replaced_starts
from tidemark.spark.error_text import first_line
from tidemark.spark.staging import folder_of
from tidemark.state.delta_tags import EPOCH, LINEAGE
from tidemark.state.records import OutputRecord
from tidemark.state.redaction import without_secrets
from tidemark.state.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("tidemark")


class DeltaSink:
    """One table.

    What a record says goes before what the job says now: an epoch is published as it was staged.

    Args:
        name: of the output.
        path: of the table, local or of an object store.
        upsert: how rows replace older ones, None where all are added.
        rewriter: of the table's files, Spark's if there is none.
    """

    kind = "delta"

    def __init__(self, name: str, path: str, upsert: Upsert | None = None, rewriter: Rewriter | None = None) -> None:
        self._name = name
        self._location = Location.parse(path)
        self._table: DeltaTable | None = None
        self._checked: str | None = None
        self.upsert = upsert
        self.staging = JobStore.open(self._location)
        self._rewriter = rewriter or SparkRewriter(self.staging, APPENDED_BYTES if upsert is None else UPSERTED_BYTES)
        self._maintenance = Maintenance(name, self.staging, self._rewriter)

    def keep(self, versions: frozenset[int] | None) -> None:
        """Say which versions of the table savepoints need; None where that is not known: then nothing old is given up."""
        self._maintenance.needed = versions

    @property
    def location(self) -> str:
        """The table's path."""
        return str(self._location)

    def staging_folder(self, name: str) -> str:
        """Return a folder inside the table; Delta's readers see only files that the log names."""
        return f"tidemark-{name}"

    def check(self, schema: StructType) -> None:
        """Raise SinkError when rows cannot be known by their keys, or a table has other columns or types, or asks too much of a writer."""
        text = schema.json()
        if text == self._checked:
            return
        if self.upsert is not None:
            self.upsert.require_keys(schema, self._name)
        table = self._open()
        if table is not None:
            self._require_fit(table, text)
        self._checked = text

    def _require_fit(self, table: DeltaTable, text: str) -> None:
        wanted = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
        found = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
        if differences := _differences(wanted, found):
            raise SinkError(
                f"output {self._name!r} does not fit the table at {self.location}: {'; '.join(differences)}",
                fix="write to another path, or change the table's columns to match the output's",
                uid=self._name,
                place=self.location,
            )
        if demands := asks_too_much(table, json.loads(text), replacing=self.upsert is not None):
            verb = "appended" if self.upsert is None else "upserted"
            raise SinkError(
                f"output {self._name!r} cannot be {verb} to the table at {self.location}: {'; '.join(demands)}",
                fix="write to another path (the table is made there), or take these demands off the table",
                uid=self._name,
                place=self.location,
            )

    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Commit the staged files with the epoch's transaction, unless the table has it; then look after the table."""
        if record.schema is None:
            return
        upsert = Upsert.of_options(record.options)
        metadata = {LINEAGE: lineage, EPOCH: str(epoch)}
        try:
            table = self._open() or self._create(Schema.from_json(record.schema))
            if upsert is None:
                self._append(table, record, Transaction(self._application(lineage), epoch), metadata)
            else:
                change = Change(upsert, record.schema, record.files, replaced_starts(record.options))
                merge = Merge(self._name, change, folder_of(record), self._application(lineage), epoch, metadata)
                merge.publish(table, self.staging, self._rewriter)
        except (DeltaError, OSError, PySparkException) as error:
            self._table = None
            raise PublishError(
                f"output {self._name!r} of a committed epoch could not be published: {first_line(error)}",
                fix="mend the table's place (space, permission, network) and start the job again: it finishes this epoch first",
                uid=self._name,
                epoch=epoch,
                place=self.location,
            ) from without_secrets(error)
        self._maintain(table, record)

    def _append(self, table: DeltaTable, record: OutputRecord, transaction: Transaction, metadata: dict[str, str]) -> None:
        table.update_incremental()
        done = table.transaction_version(transaction.app_id)
        if done is None or done < transaction.version:
            append(table, add_actions(record.files), Schema.from_json(record.schema or ""), transaction=transaction, metadata=metadata)

    def _maintain(self, table: DeltaTable, record: OutputRecord) -> None:
        """Look after the table; the epoch is published, whatever comes of this."""
        try:
            self._maintenance.after_publication(table, folder_of(record))
        except (DeltaError, OSError, TidemarkError, PySparkException, Py4JError) as error:
            self._table = None
            logger.warning("output %r: looking after its table is put off: %s", self._name, first_line(error))

    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that the table has, by its transaction.

        Raises:
            SinkError: the table cannot be read.
        """
        table = self._open()
        return None if table is None else table.transaction_version(self._application(lineage))

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

    def _application(self, lineage: str) -> str:
        return f"{lineage}/{self._name}"

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
        self._table = DeltaTable.create(self._location.uri, schema, mode="ignore", configuration=NEW_TABLE)
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
