"""The join with a table in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

from deltalake import DeltaTable
from pyarrow import dataset

from tidemark.errors import DefinitionError
from tidemark.graph.operators.join_keys import added_names
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.locations import Location
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, Row, value_of


class PureLookup(PureOperatorBase):
    """A join with a table on this machine; a newer version is read when ``refresh`` of processing time has passed.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: LookupNode, folds: Folds) -> None:
        del folds
        self._node = node
        self._given: list[Row] | None = None
        # When the version was read, its columns, and its rows.
        self._operator: tuple[int, list[str], list[Row]] | None = None
        self._emitted: list[Emitted] = []

    def set_table(self, rows: Sequence[Row]) -> None:
        """Set the rows of the table, which is not read then."""
        self._given = list(rows)

    def begin_epoch(self, processing_time: int) -> None:
        """Read the table, if it is time to.

        Raises:
            DefinitionError: it is a table of a database, and its rows were not given.
        """
        if self._operator is None or processing_time - self._operator[0] >= self._node.refresh_ms:
            self._operator = processing_time, *self._read()

    def process(self, element: Arrived) -> None:
        """Join an element with all rows of its key."""
        node = self._node
        if self._operator is None:
            raise ValueError("an element before its epoch began")
        _, columns, rows = self._operator
        what = "lookup key"
        key = [value_of(each.left, element.row, what=what, node=node) for each in node.on]
        chosen = None if node.columns is None else {name.lower() for name in node.columns}
        names = [name for name in added_names(node.on, columns) if chosen is None or name.lower() in chosen]
        found = [
            row
            for row in rows
            if None not in key and key == [value_of(each, row, what=what, node=node) for each in (pair.right for pair in node.on)]
        ]
        if not found and node.how == "left":
            self._emitted.append(Emitted({**element.row, **dict.fromkeys(names)}, element.time))
        self._emitted += [Emitted({**element.row, **{name: row[name] for name in names}}, element.time) for row in found]

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the joined rows."""
        del watermark
        emitted, self._emitted = self._emitted, []
        return emitted

    def state(self) -> list[dict[str, object]]:
        """Return nothing: it keeps no state."""
        return []

    def _read(self) -> tuple[list[str], list[Row]]:
        """Return the columns and the rows of the table; of declared columns, only these, and as they are spelled there."""
        declared = self._node.table.columns(None, frozenset())
        columns, rows = self._whole()
        if declared is None:
            return columns, rows
        spelled = {name.lower(): name for name in declared.names}
        kept = [(name, spelled[name.lower()]) for name in columns if name.lower() in spelled]
        return list(declared.names), [{new: row[name] for name, new in kept} for row in rows]

    def _whole(self) -> tuple[list[str], list[Row]]:
        table = self._node.table
        if self._given is not None:
            return list(dict.fromkeys(name for row in self._given for name in row)), self._given
        if table.format == "jdbc":
            raise DefinitionError(
                f"the harness reads no database, and the lookup is in {table.label!r}",
                fix="give the rows of the table: OperatorHarness(stream, table=[{'zone': 1, 'borough': 'Queens'}])",
                uid=self._node.uid,
                place=self._node.place,
            )
        location = Location.parse(table.path)
        if table.format == "delta":
            read = DeltaTable(location.uri).to_pyarrow_table()
        else:
            read = dataset.dataset(location.path, format="parquet", partitioning="hive").to_table()
        return read.column_names, read.to_pylist()
